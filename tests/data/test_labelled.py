"""Labelled texts: the shipped ones, the known sets in their layouts, one's own table, and what is refused."""

import pytest

from lib.checks import DataError
from lib.data.files import manifest
from lib.data.labelled import load_labelled
from tests.conftest import fill


def test_the_shipped_titles_and_ones_own_table_with_its_fingerprint(tmp_path):
    task = load_labelled("", "demo")
    assert len(task) == 600 and len(set(task.labels)) == 20 and task.name == "demo"
    head = "text\tlabel\n"
    fill(tmp_path, {"mine.tsv": f"{head}a b\tx\nc\ty\n", "other.tsv": f"{head}a b\ty\nc\tx\n"})
    task = load_labelled(tmp_path, "mine.tsv")
    assert task.name == "mine" and task.fingerprint() == load_labelled("", str(tmp_path / "mine.tsv")).fingerprint()
    assert load_labelled(tmp_path, "other.tsv").fingerprint() != task.fingerprint()


def test_two_files_with_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setitem(manifest()["labelled"]["stackoverflow"], "rows", {"test": 3})
    titles, labels = "stackoverflow/title_StackOverflow.txt", "stackoverflow/label_StackOverflow.txt"
    fill(tmp_path, {titles: "how to sort\nmerge a branch\nsort a list\n", labels: "1\n2\n1\n"})
    task = load_labelled(tmp_path, "stackoverflow")
    assert task.texts == ("how to sort", "merge a branch", "sort a list") and task.labels == ("1", "2", "1")
    fill(tmp_path, {labels: "1\n2\n"})
    with pytest.raises(DataError, match=r"label_StackOverflow.txt: expected 3 lines, found 2"):
        load_labelled(tmp_path, "stackoverflow")


@pytest.mark.parametrize(
    "name, split, text, words",
    [
        ("mine.csv", "test", "title,label\na,x\nb,y\n", "line 1: the header must be text, label; got"),
        ("mine.csv", "test", "text,label\n ,x\nb,y\n", "1 rows without a text or a label, the first is"),
        ("mine.csv", "test", "text,label\na,x\nb,x\n", "2 texts with one label: there is nothing to tell apart"),
        ("stackoverflow", "train", "", "stackoverflow has no split 'train': there are test"),
        ("banking77", "test", "", "test.csv does not exist: check data_dir"),
        ("stackexchange", "test", "", "called 'stackexchange': choose from demo, stackoverflow, banking77, amazon"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, split, text, words):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load_labelled(tmp_path, name, split)
