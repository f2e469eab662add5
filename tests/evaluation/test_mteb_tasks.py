"""Tasks through mteb, on a collection in memory and on local files under the names of its tasks."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from lib import paths
from lib.checks import ConfigError, DataError
from lib.data.files import manifest
from lib.data.retrieval import RetrievalTask
from lib.evaluation.mteb_tasks import BEIR_TASKS, FIGURE_5_TASKS, Encoder, evaluate_mteb, load_mteb
from lib.evaluation.retrieval import evaluate_retrieval


def bag_of_words(texts):
    words = "dog cat bird runs sleeps sings park house tree old".split()
    counts = np.array([[text.split().count(word) for word in words] for text in texts], dtype=np.float32)
    return counts * (1 + np.arange(len(words)) / 7) + 0.01  # no two cosines are equal: trec_eval ranks ties by id


def load_beir(names):
    return load_mteb(names, BEIR_TASKS, "beir_tasks", Path("nowhere"))


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
    monkeypatch.setattr(mteb, "get_task", lambda name, **subset: task)
    monkeypatch.setattr(task, "unload_data", lambda: None)


def test_mteb_and_our_evaluation_agree(scifact):
    theirs = evaluate_mteb(bag_of_words, load_beir(["scifact"]))
    ours = evaluate_retrieval(bag_of_words, TASK).set_index("metric").value["ndcg@10"]
    assert theirs.task.tolist() == ["scifact"] and 0 < theirs.value[0] < 100
    assert theirs.value[0] == pytest.approx(ours, abs=0.01)


def test_the_fourteen_sets_of_the_paper_are_known_to_mteb():
    import mteb

    from lib.analysis import papers

    published = papers.table("infocse", "Table 3").method.unique()
    assert set(published) == {*BEIR_TASKS, "average"}
    for name in BEIR_TASKS.values():
        assert mteb.get_task(name).metadata.main_score == "ndcg_at_10"


@pytest.mark.parametrize(
    ("file", "parameter", "known"),
    [("3_infocse", "beir_tasks", BEIR_TASKS), ("4_msse", "mteb_tasks", FIGURE_5_TASKS)],
)
def test_the_papers_lists_are_parameter_files(file, parameter, known):
    values = yaml.safe_load((paths.root() / f"params/paper/{file}.yaml").read_text(encoding="utf8"))
    assert values[parameter] == list(known)


def test_without_a_network_one_sentence_says_so():
    with pytest.raises(DataError, match="SciFact of MTEB is not in the hub's cache .* run this once with a network"):
        load_beir(["scifact"])
    with pytest.raises(DataError, match="CQADupstack.* of MTEB is not in the hub's cache"):
        load_beir(["cqadupstack"])
    with pytest.raises(ConfigError, match="beir_tasks 'msmarco' is unknown"):
        load_beir(["msmarco"])
    assert load_beir([]) == {}


def write_banking(folder, monkeypatch):
    """A small stand-in in the layout of Banking77: two intents by their words, and a third that has none of them."""
    rows = [(f"dog runs {i}", "dogs") for i in range(30)] + [(f"cat sleeps {i}", "cats") for i in range(30)]
    rows += [(f"old {i}", "rest") for i in range(30)]
    (folder / "banking77").mkdir()
    for split, part in (("train", rows[::2]), ("test", rows[1::2])):
        lines = ["text,category", *(f"{text},{label}" for text, label in part)]
        (folder / "banking77" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setitem(manifest()["labelled"]["banking77"], "rows", {"train": 45, "test": 45})


def test_a_task_from_local_files_is_scored_as_mteb_scores_it(tmp_path, monkeypatch):
    import mteb
    from datasets import Dataset, DatasetDict

    write_banking(tmp_path, monkeypatch)
    tasks = load_mteb(["BC"], FIGURE_5_TASKS, "mteb_tasks", tmp_path)
    key = tasks["BC"].key()
    assert key[1] == "Banking77Classification" and key[2] != tasks["BC"].task.metadata.dataset["revision"]
    for words in (("dog", "cat"), ("house", "tree"), ("dog", "cat")):  # the data are there for every encoder

        def encode(texts, words=words):
            return np.array([[text.split().count(w) for w in words] for text in texts], dtype=np.float32)

        row = evaluate_mteb(encode, tasks).iloc[0]
        rows = {
            split: (tmp_path / f"banking77/{split}.csv").read_text().strip().split("\n")[1:]
            for split in ("train", "test")
        }
        number = {"cats": 0, "dogs": 1, "rest": 2}
        parts = {
            split: {"text": [x.split(",")[0] for x in part], "label": [number[x.split(",")[1]] for x in part]}
            for split, part in rows.items()
        }
        own = mteb.get_task("Banking77Classification")
        own.dataset = DatasetDict({split: Dataset.from_dict(part) for split, part in parts.items()})
        own.data_loaded = True
        result = mteb.evaluate(Encoder(encode), own, cache=None, show_progress_bar=False)
        assert row.value == pytest.approx(100 * result.task_results[0].get_score(), abs=1e-2)
        assert (row.metric, row.value > 90) == ("accuracy", words[0] == "dog")


def test_what_lies_nowhere_is_asked_of_the_hub(tmp_path):
    for name, theirs in (("ACC", "AmazonCounterfactual"), ("QR", "QuoraRetrieval"), ("AUDQ", "AskUbuntu")):
        with pytest.raises(
            DataError, match=f"{theirs}.* of MTEB is not in the hub's cache.*leave it out of mteb_tasks"
        ):
            load_mteb([name], FIGURE_5_TASKS, "mteb_tasks", tmp_path)
    with pytest.raises(ConfigError, match="mteb_tasks 'SST' is unknown: choose one of ACC, BC, MIC, QR, AUDQ"):
        load_mteb(["SST"], FIGURE_5_TASKS, "mteb_tasks", tmp_path)
