"""BEIR through mteb, on a collection in memory under the name of one of its sets."""

import numpy as np
import pytest

from lib.checks import ConfigError, DataError
from lib.data.retrieval import RetrievalTask
from lib.evaluation.beir import BEIR_TASKS, evaluate_beir, load_beir
from lib.evaluation.retrieval import evaluate_retrieval


def bag_of_words(texts):
    words = "dog cat bird runs sleeps sings park house tree old".split()
    counts = np.array([[text.split().count(word) for word in words] for text in texts], dtype=np.float32)
    return counts * (1 + np.arange(len(words)) / 7) + 0.01  # no two cosines are equal: trec_eval ranks ties by id


TASK = RetrievalTask(
    "toy",
    "test",
    {"q1": "dog runs", "q2": "cat sleeps old", "q3": "bird sings tree"},
    {
        "d1": "dog runs park", "d2": "dog sleeps house", "d3": "cat sleeps house old", "d4": "bird sings",
        "d5": "cat runs tree", "d6": "old tree", "d7": "bird sings old tree park",
    },
    {"q1": {"d1": 2, "d5": 1}, "q2": {"d3": 1, "d2": 1}, "q3": {"d6": 1}},
)  # fmt: skip


@pytest.fixture
def scifact(monkeypatch):
    """mteb's SciFact with the collection above in the place of its data."""
    import mteb
    from datasets import Dataset

    task = mteb.get_task("SciFact")
    corpus = Dataset.from_list([{"id": i, "title": "", "text": text} for i, text in TASK.documents.items()])
    queries = Dataset.from_list([{"id": i, "text": text} for i, text in TASK.queries.items()])
    parts = {"corpus": corpus, "queries": queries, "relevant_docs": TASK.relevance, "top_ranked": None}
    task.dataset, task.data_loaded = {"default": {"test": parts}}, True
    monkeypatch.setattr(mteb, "get_task", lambda name: task)
    monkeypatch.setattr(task, "unload_data", lambda: None)


def test_mteb_and_our_evaluation_agree(scifact):
    theirs = evaluate_beir(bag_of_words, load_beir(["scifact"]))
    ours = evaluate_retrieval(bag_of_words, TASK).set_index("metric").value["ndcg@10"]
    assert theirs.task.tolist() == ["scifact"] and 0 < theirs.value[0] < 1
    assert 100 * theirs.value[0] == pytest.approx(ours, abs=0.01)


def test_the_fourteen_sets_of_the_paper_are_known_to_mteb():
    import mteb

    from lib.analysis import papers

    published = papers.table("infocse", "Table 3").method.unique()
    assert set(published) == {*BEIR_TASKS, "average"}
    for name in BEIR_TASKS.values():
        assert mteb.get_task(name).metadata.main_score == "ndcg_at_10"


def test_without_a_network_one_sentence_says_so():
    with pytest.raises(DataError, match="SciFact of BEIR is not in the hub's cache .* run this once with a network"):
        load_beir(["scifact"])
    with pytest.raises(DataError, match="CQADupstack.* of BEIR is not in the hub's cache"):
        load_beir(["cqadupstack"])
    with pytest.raises(ConfigError, match="beir_tasks 'msmarco' is unknown"):
        load_beir(["msmarco"])
    assert load_beir([]) == {}
