"""Labelled texts: the shipped ones, the known sets in their layouts, one's own table, and what is refused."""

import pytest

from lib.checks import DataError
from lib.data.files import manifest
from lib.data.labelled import load_labelled


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf8")
    return path


def test_the_shipped_titles():
    task = load_labelled("", "demo")
    assert len(task) == 600 and len(set(task.labels)) == 20 and task.name == "demo"


def test_two_files_with_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setitem(manifest()["labelled"]["stackoverflow"], "rows", {"test": 3})
    write(tmp_path, "stackoverflow/title_StackOverflow.txt", "how to sort\nmerge a branch\nsort a list\n")
    labels = write(tmp_path, "stackoverflow/label_StackOverflow.txt", "1\n2\n1\n")
    task = load_labelled(tmp_path, "stackoverflow")
    assert task.texts == ("how to sort", "merge a branch", "sort a list") and task.labels == ("1", "2", "1")
    labels.write_text("1\n2\n")
    with pytest.raises(DataError, match=r"label_StackOverflow.txt: expected 3 lines, found 2"):
        load_labelled(tmp_path, "stackoverflow")


def test_ones_own_table_and_its_fingerprint(tmp_path):
    path = write(tmp_path, "mine.tsv", "text\tlabel\na b\tx\nc\ty\n")
    task = load_labelled(tmp_path, "mine.tsv")
    assert task.name == "mine" and task.fingerprint() == load_labelled("", str(path)).fingerprint()
    write(tmp_path, "other.tsv", "text\tlabel\na b\ty\nc\tx\n")
    assert load_labelled(tmp_path, "other.tsv").fingerprint() != task.fingerprint()


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
    write(tmp_path, "mine.csv", text)
    with pytest.raises(DataError, match=words):
        load_labelled(tmp_path, name, split)
