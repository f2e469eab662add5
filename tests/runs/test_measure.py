"""Tasks of a plan: what is refused, what scores depend on, and the encoders of a sum."""

import numpy as np
import pandas as pd
import pytest

from lib import paths, runs
from lib.checks import ConfigError, DataError
from lib.data import load_sts
from lib.data.sts import STS_TASKS
from lib.data.transfer import EXPECTED_LINES
from lib.encoders import SentenceEncoder
from lib.encoders.heads import load_training_head
from lib.evaluation import RESULT_COLUMNS, evaluate_sts
from lib.runs.measure import KINDS, Evaluation, dev_pairs, dev_row, load_tasks, projected_dev, scores, with_encoders
from tests.conftest import fill

TOY = "text\tlabel\na dog\tx\na cat\ty\ntwo dogs\tx\ntwo cats\ty\n"


@pytest.fixture
def encoders(tiny_bert):
    poolings = ("cls", "mean", "first_last_mean", "embeddings_last_mean")
    return [SentenceEncoder.from_pretrained(tiny_bert, pooling=pooling) for pooling in poolings]


# --- Tasks and their scores ---


@pytest.mark.parametrize(
    ("kind", "names", "how", "words"),
    [
        ("sst", ["demo"], {}, "the kind of tasks 'sst' is unknown: choose one of sts, transfer, "),
        ("sts", [], {}, "give one task, or all of STS12, .*SICK-R"),
        ("sts", ["STS12", "STS13"], {}, "sts tasks .* give one task, or all of STS12"),
        ("sts", [*STS_TASKS, "mine.csv"], {}, "give one task, or all of STS12, .*SICK-R alone"),
        ("transfer", ["MR", "MR"], {}, "transfer tasks .* name each of them once"),
        ("clusters", ["toy.tsv", "./toy.tsv"], {}, "clusters tasks .* and files by different names"),
        ("beir", ["nonsense"], {}, "mteb task 'nonsense' not found"),
        ("clusters", ["toy.tsv"], {"clusters": [99]}, "clusters of toy must be at least 2, at most 4; got 99"),
        ("clusters", ["toy.tsv"], {"layouts": ["pca"]}, "the kind of a map 'pca' is unknown: choose one of tsne, umap"),
        ("clusters", ["toy.tsv"], {"layouts": ["tsne"]}, "texts of toy for a map must be at least 22; got 4"),
        ("pair", ["demo"], {"subset": "x", "line": 1}, "subset of demo 'x' is unknown: choose one of demo"),
        ("pair", ["demo"], {"subset": "demo", "line": 1000}, "line of demo, demo must be at least 1, at most"),
    ],
)
def test_tasks_that_are_refused(kind, names, how, words, tmp_path):
    (tmp_path / "toy.tsv").write_text(TOY)
    with pytest.raises(ConfigError, match=words):
        load_tasks(kind, names, tmp_path, **how)


def test_transfer_scores_depend_on_the_sentences(tmp_path):
    keys = []
    for word in ("good", "fine"):
        files = {name: f"{word}\n" * EXPECTED_LINES[name] for name in ("CR/custrev.pos", "CR/custrev.neg")}
        fill(tmp_path / "senteval/downstream", files)
        keys += [one.key for one in 2 * load_tasks("transfer", ["CR"], tmp_path)]
    assert keys[0] == keys[1] != keys[2] == keys[3]


@pytest.mark.parametrize("kind", ["sts", "transfer", "retrieval", "in-domain retrieval", "clusters"])
def test_data_that_are_missing_are_named_now(kind, tmp_path):
    names = list(STS_TASKS) if kind == "sts" else ["MR"] if kind == "transfer" else ["nowhere"]
    with pytest.raises(DataError):
        load_tasks(kind, names, tmp_path)
    assert kind == "sts" or load_tasks(kind, [], tmp_path) == []


def test_every_kind_gives_rows(tmp_path, encoders):
    documents = '{"_id": "1", "text": "a dog"}\n{"_id": "2", "text": "two cats sleep"}\n'
    files = {"corpus.jsonl": documents, "queries.jsonl": '{"_id": "q", "text": "two cats"}\n'}
    fill(tmp_path / "retrieval/toy", files | {"qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t2\t1\n"})
    (tmp_path / "toy.tsv").write_text(TOY)
    asked = {
        "sts": ("demo", {}, "demo"),
        "retrieval": ("toy", {}, "toy"),
        "in-domain retrieval": ("demo", {}, "demo retrieval"),
        "clusters": ("toy.tsv", {"clusters": [0, 3]}, "toy"),
        "pair": ("demo", {"subset": "demo", "line": 3}, "demo, demo, 3"),
    }
    assert {*asked, "transfer", "beir", "mteb"} == {*KINDS}  # these need data, or a network
    for kind, (name, how, task) in asked.items():
        evaluations = load_tasks(kind, [name], tmp_path, **how)
        rows = scores(encoders[0], evaluations)
        assert list(rows) == RESULT_COLUMNS and {*rows.task} == {task} and rows.value.notna().all()
    partners = load_tasks("in-domain retrieval", ["demo"], tmp_path)
    assert [one.name for one in partners] == ["in-domain-retrieval-first", "in-domain-retrieval-both"]


def test_scores_are_kept_for_the_content_of_an_encoder_and_what_they_depend_on(encoders, tiny_bert, config):
    asked = []

    def rows(encode):
        asked.append(encode(["a dog", "a cat"]).shape)
        return pd.DataFrame([("MR", "test", "p", "", "accuracy", 50.123456789)], columns=RESULT_COLUMNS)

    evaluation = Evaluation("transfer-MR", "MR", rows)
    run, same = runs.run(config), SentenceEncoder.from_pretrained(tiny_bert)
    for subject in (encoders[0], encoders[1], same, run, run):
        kept = scores(subject, [evaluation])
        assert kept.value.tolist() == [50.123456789] and kept.aggregation.tolist() == [""]
    assert len(asked) == 3
    for subject in (encoders[0], run):
        scores(subject, [Evaluation("transfer-MR", "MR, another", rows)])
    assert len(asked) == 5
    assert len(list((paths.runs() / "scores").glob("*.csv"))) == 3 and len(list(run.folder.glob("results/*.csv"))) == 2


def test_rows_of_a_file_of_pairs_that_is_renamed_have_its_new_name(encoders, config, tmp_path):
    (tmp_path / "first.csv").write_text(
        "sentence1,sentence2,score\na dog,a cat,1\na dog,two dogs,3\na cat,a dog runs,2\n"
    )
    for name in ("first.csv", "second.csv"):
        (found,) = tmp_path.glob("*.csv")
        found.rename(tmp_path / name)
        assert {*scores(encoders[0], load_tasks("sts", [name], tmp_path)).task} == {name}
        partners = scores(encoders[0], load_tasks("in-domain retrieval", [name], tmp_path))
        assert {*partners.task} == {f"{name} retrieval"}
        dev = dev_pairs(config.replace(dev_task=name, data_dir=str(tmp_path)))
        assert {*scores(encoders[0], dev).task} == {name}
        trained = runs.run(config.replace(dev_task=name, data_dir=str(tmp_path), projection="bn_mlp"))  # then found
        assert {*projected_dev(trained).task} == {*dev_row(trained).task} == {name}
        assert {*projected_dev(trained).protocol} == {*dev_row(trained).protocol} == {"own pairs"}


# --- Encoders of runs ---


def test_the_parts_of_a_sum_of_encoders_stand_before_it(config, sentences):
    def row(name, seed, **changes):
        run = runs.run(config.replace(seed=seed, **changes))
        return {"method": name, "settings": "given", "seed": seed, "run_id": run.id, "run": run}

    seeds = [[row("I", seed), row("II", seed, dropout=0.2), row("TNCSE", seed, method="tncse")] for seed in (1, 2)]
    done = pd.DataFrame([*seeds[0], *seeds[1]])
    shown = with_encoders(done, {"sum": ["II", "I"]})
    names = ["I", "II", "sum", "TNCSE I", "TNCSE II", "TNCSE"]
    assert shown.method.tolist() == names * 2 and shown.seed.tolist() == [1] * 6 + [2] * 6
    ids = done[done.seed == 2].set_index("method").run_id
    second = shown[shown.seed == 2].set_index("method")
    assert second.run_id.to_dict() == {
        "I": ids["I"], "II": ids["II"], "sum": ids["II"],
        "TNCSE I": ids["TNCSE"], "TNCSE II": ids["TNCSE"], "TNCSE": ids["TNCSE"],
    }  # fmt: skip
    vectors = {name: encoder.encode(sentences[:5]) for name, encoder in second.encoder.items()}
    np.testing.assert_allclose(vectors["TNCSE I"] + vectors["TNCSE II"], vectors["TNCSE"], atol=1e-5)
    np.testing.assert_allclose(vectors["I"] + vectors["II"], vectors["sum"], atol=1e-5)
    assert with_encoders(done[:1]).method.tolist() == ["I"] and with_encoders(done[:0]).empty


def test_the_dev_score_behind_the_training_projection_is_that_of_that_encoder(config):
    run = runs.run(config.replace(projection="bn_mlp"))
    behind = run.encoder(projection=load_training_head(run.folder / "encoder"))
    dev = evaluate_sts(behind.encode, [load_sts(config.data_folder(), "demo", "dev")])
    rows = projected_dev(run)
    assert rows.value.tolist() == dev[dev.aggregation == "all"].value.tolist() and rows.split.tolist() == ["dev"]
    assert rows.value[0] != run.metrics["dev"]
    assert projected_dev(runs.run(config.replace(projection="none"))).empty
