"""Collections in BEIR's layout, and what can be wrong with them."""

import json

import pytest

from lib.checks import DataError
from lib.data.retrieval import load_retrieval
from tests.conftest import fill

DOCUMENTS = [
    {"_id": "1", "title": "Wings", "text": "of  a bird"}, {"_id": 2, "title": None, "text": ""}, {"_id": "3", "text": "x"},
]  # fmt: skip
QUERIES = [{"_id": "1", "text": "how birds fly"}, {"_id": "9", "text": "never judged"}]
JUDGED = ["query-id\tcorpus-id\tscore", "1\t1\t2", "1\t3\t0"]


@pytest.fixture
def collection(tmp_path):
    """Function (file -> other lines, or None) -> data_dir with a collection `toy`."""

    def make(changed=()):
        files = {"corpus.jsonl": map(json.dumps, DOCUMENTS), "queries.jsonl": map(json.dumps, QUERIES)}
        files |= {"qrels/test.tsv": JUDGED} | dict(changed)
        texts = {name: "\n".join(lines) + "\n" for name, lines in files.items() if lines is not None}
        fill(tmp_path / "retrieval/toy", texts)
        return tmp_path

    return make


def test_reads_titles_texts_and_judged_queries_of_which_the_fingerprint_is(collection):
    data_dir = collection()
    task = load_retrieval(data_dir, "toy")
    assert task.documents == {"1": "Wings of a bird", "2": "", "3": "x"}
    assert task.queries == {"1": "how birds fly"} and task.relevance == {"1": {"1": 2, "3": 0}}
    assert load_retrieval(data_dir, str(data_dir / "retrieval" / "toy")) == task
    grades_with_a_point = [JUDGED[0], "1\t1\t2.0", "1\t3\t0", ""]
    spaced = {"corpus.jsonl": [*map(json.dumps, DOCUMENTS), "", ""], "qrels/test.tsv": grades_with_a_point}
    assert load_retrieval(collection(spaced), "toy") == task
    other_text = map(json.dumps, [DOCUMENTS[0] | {"text": "of a bee"}, *DOCUMENTS[1:]])
    changes = [{}, {"qrels/test.tsv": [*JUDGED[:2], "1\t3\t1"]}, {"corpus.jsonl": other_text}]
    prints = [load_retrieval(collection(change), "toy").fingerprint() for change in changes]
    assert len({*prints}) == 3 and load_retrieval(collection(), "toy").fingerprint() == prints[0]


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"corpus.jsonl": ['{"_id": "1", "te']}, "corpus.jsonl, line 1: expected a JSON object with _id and text"),
        ({"queries.jsonl": ['{"_id": "1", "text": null}']}, "queries.jsonl, line 1: expected .* NoneType"),
        ({"queries.jsonl": ['{"id": "1", "text": "x"}']}, "queries.jsonl, line 1: expected .*there is no '_id'"),
        ({"qrels/test.tsv": [*JUDGED, "1\t1\t1.5"]}, "grade '1.5': expected ids of the texts and a whole number"),
        ({"corpus.jsonl": ['{"_id": "1", "text": "x"}'] * 2}, "line 2: the id '1' comes twice"),
        ({"qrels/test.tsv": None}, "test.tsv does not exist"),
        ({"qrels/test.tsv": JUDGED[1:]}, "line 1: the header must be query-id, corpus-id, score; got 1"),
        ({"qrels/test.tsv": JUDGED[:1]}, "holds no judgement"),
        ({"qrels/test.tsv": [*JUDGED, "1\t77\t1"]}, "document '77'.*: expected ids of the texts"),
        ({"qrels/test.tsv": [*JUDGED, "77\t1\t1"]}, "query '77'.*: expected ids of the texts"),
    ],
)
def test_what_is_wrong_is_named(collection, changed, words):
    with pytest.raises(DataError, match=words):
        load_retrieval(collection(changed), "toy")


def test_the_first_caption_of_a_picture_asks_for_the_others(tmp_path):
    fill(tmp_path, {"captions/few.tsv": "a.jpg\tA dog  runs.\tA dog.\tIt runs.\nb.jpg\tA cat.\tTwo cats.\n"})
    task = load_retrieval(tmp_path, "captions/few.tsv")
    assert task.name == "few" and task.queries == {"a.jpg": "A dog runs.", "b.jpg": "A cat."}
    assert list(task.documents.values()) == ["A dog.", "It runs.", "Two cats."]
    assert [len(grades) for grades in task.relevance.values()] == [2, 1]
    assert all(set(grades) <= set(task.documents) for grades in task.relevance.values())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.jpg\tA dog.\n", "line 1: expected a picture's name"),
        ("image\tcaption1\tcaption2\n", "line 1: expected .* no header"),
        ("a.jpg\tA dog.\tIt.\na.jpg\tA.\tB.\n", "line 2: expected a picture's name, given once"),
        ("a.jpg\tA dog.\t\n", "line 1"),
        ("", "holds no captions"),
    ],
)
def test_a_bad_table_of_captions_is_refused_by_its_line(tmp_path, text, words):
    (tmp_path / "few.tsv").write_text(text)
    with pytest.raises(DataError, match=words):
        load_retrieval(tmp_path, "few.tsv")
