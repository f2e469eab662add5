"""Tasks through mteb, on a collection in memory and on local files under the names of its tasks."""

import mteb
import numpy as np
import pytest
import yaml
from datasets import Dataset, DatasetDict

from lib import paths
from lib.analysis import papers
from lib.checks import DataError
from lib.data.files import manifest
from lib.data.retrieval import RetrievalTask
from lib.evaluation.mteb_tasks import FIGURE_5, evaluate_mteb, load_mteb, mteb_encoder
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


def test_mteb_and_our_evaluation_agree():
    """mteb's SciFact with the collection above in the place of its data."""
    task = mteb.get_task("SciFact")
    corpus = Dataset.from_list([{"id": i, "title": "", "text": text} for i, text in TASK.documents.items()])
    queries = Dataset.from_list([{"id": i, "text": text} for i, text in TASK.queries.items()])
    parts = {"corpus": corpus, "queries": queries, "relevant_docs": TASK.relevance, "top_ranked": None}
    task.dataset, task.data_loaded = {"default": {"test": parts}}, True
    theirs = evaluate_mteb(bag_of_words, "scifact", task)
    ours = evaluate_retrieval(bag_of_words, TASK).set_index("metric").value["ndcg@10"]
    assert theirs.task.tolist() == ["scifact"] and 0 < theirs.value[0] < 100
    assert theirs.value[0] == pytest.approx(ours, abs=0.01)


@pytest.mark.parametrize("file", ["3_infocse", "3_infocse_authors", "3_infocse_authors_large", "4_msse"])
def test_mteb_knows_the_tasks_of_the_parameter_files(file):
    values = yaml.safe_load((paths.root() / f"params/paper/{file}.yaml").read_text(encoding="utf8"))
    if file == "4_msse":
        assert values["mteb_tasks"] == list(FIGURE_5)
        assert all(mteb.get_task(name) for name in FIGURE_5.values())
    else:
        assert len(values["beir_tasks"]) == len(papers.table("infocse", "Table 3").method.unique()) - 1  # the average
        assert {mteb.get_task(name).metadata.main_score for name in values["beir_tasks"]} == {"ndcg_at_10"}


@pytest.mark.parametrize("name", ["SciFact", "QR"])
def test_without_a_network_one_sentence_says_so(tmp_path, name):
    message = f"{FIGURE_5.get(name, name)} of MTEB is not in the hub's cache .* run this once with a network"
    with pytest.raises(DataError, match=message):
        load_mteb([name], tmp_path)


def test_a_task_from_local_files_is_scored_as_mteb_scores_it(tmp_path, monkeypatch):
    """A small stand-in in the layout of Banking77: two intents by their words, and a third that has none of them."""
    rows = [(f"dog runs {i}", "dogs") for i in range(30)] + [(f"cat sleeps {i}", "cats") for i in range(30)]
    rows += [(f"old {i}", "rest") for i in range(30)]
    splits, numbers = {"train": rows[::2], "test": rows[1::2]}, {"cats": 0, "dogs": 1, "rest": 2}
    own = mteb.get_task("Banking77Classification")
    own.dataset, own.data_loaded = DatasetDict(), True
    (tmp_path / "banking77").mkdir()
    for split, part in splits.items():
        lines = ["text,category", *(f"{text},{label}" for text, label in part)]
        (tmp_path / "banking77" / f"{split}.csv").write_text("\n".join(lines) + "\n")
        columns = {"text": [text for text, _ in part], "label": [numbers[label] for _, label in part]}
        own.dataset[split] = Dataset.from_dict(columns)
    monkeypatch.setitem(manifest()["labelled"]["banking77"], "rows", {"train": 45, "test": 45})
    task, key = load_mteb(["BC"], tmp_path)["BC"]
    assert key[1] == "Banking77Classification" and key[2] != task.metadata.dataset["revision"]
    for words in (("dog", "cat"), ("house", "tree"), ("dog", "cat")):  # the data are there for every encoder

        def encode(texts, words=words):
            return np.array([[text.split().count(w) for w in words] for text in texts], dtype=np.float32)

        row = evaluate_mteb(encode, "BC", task).iloc[0]
        result = mteb.evaluate(mteb_encoder(encode), own, cache=None, show_progress_bar=False)
        assert row.value == pytest.approx(100 * result.task_results[0].get_score(), abs=1e-2)
        assert (row.metric, row.value > 90) == ("accuracy", words[0] == "dog")
