"""The store: naming, finding, locking, results, provenance, preflight."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lib import paths, runs
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.data import load_sts
from lib.evaluation import RESULT_COLUMNS, evaluate_sts, headline
from lib.runs import running, store
from lib.runs.prepare import warn_if_slow


@pytest.fixture
def config(tiny_bert, corpus_file):
    return RunConfig(
        corpus=str(corpus_file),
        backbone=str(tiny_bert),
        batch_size=32,
        max_steps=3,
        eval_every=2,
        max_length=16,
    )


def test_a_run_is_trained_once_and_found_again(config, monkeypatch, sentences):
    first = runs.run(config)
    assert sorted(p.name for p in first.folder.iterdir()) == [
        ".seal", "config.yaml", "encoder", "history.csv", "metrics.json", "provenance.json",
    ]  # fmt: skip
    assert first.config == config and first.metrics["steps"] == 3 and len(first.history) == 4
    monkeypatch.setattr(running, "train", lambda *a, **k: pytest.fail("trained again"))
    again = runs.run(config)
    assert again.folder == first.folder
    np.testing.assert_array_equal(again.encoder().encode(sentences[:3]), first.encoder().encode(sentences[:3]))


def test_provenance_says_what_with_what_where(config):
    provenance = runs.run(config).provenance
    assert provenance["rows"] == 200 and set(provenance["checksums"]) == {"corpus", "backbone", "dev"}
    assert {"torch", "transformers", "python"} <= set(provenance["versions"])
    assert provenance["device"] and provenance["commit"] and provenance["seconds"] > 0


def test_the_name_follows_content_not_place(config, tmp_path, sentences):
    name = runs.prepare(config).id
    moved = tmp_path / "elsewhere.txt"
    moved.write_text("\n".join(sentences) + "\n")
    assert runs.prepare(config.replace(corpus=str(moved), profile="small")).id == name
    for change in ({"seed": 1}, {"temperature": 0.1}, {"corpus_size": 100}, {"pooling": "mean"}, {"dropout": 0.2}):
        assert runs.prepare(config.replace(**change)).id != name, change
    moved.write_text("\n".join(sentences[::-1]) + "\n")
    assert runs.prepare(config.replace(corpus=str(moved))).id != name


def test_a_damaged_run_folder_is_trained_again(config):
    finished = runs.run(config)
    (finished.folder / "metrics.json").unlink()
    assert runs.run(config).metrics == finished.metrics


@pytest.mark.process
def test_two_processes_on_one_run_train_it_once(config):
    code = (
        "import sys\n"
        "from lib.config import RunConfig\n"
        "from lib.runs import running\n"
        "real = running.train\n"
        "def train(*a, **k):\n    print('trains', flush=True)\n    return real(*a, **k)\n"
        "running.train = train\n"
        "print(running.run(RunConfig(**eval(sys.argv[1]))).id)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", code, repr(config.as_dict())]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    outputs = [process.communicate()[0].split() for process in processes]
    assert sorted(len(words) for words in outputs) == [1, 2] and outputs[0][-1] == outputs[1][-1]


def test_results_are_computed_once(config):
    finished = runs.run(config)
    calls = []

    def compute():
        calls.append(1)
        return pd.DataFrame([("STS-B", "test", "SentEval", "all", "spearman", 50.0)], columns=RESULT_COLUMNS)

    for _ in range(2):
        rows = finished.results("sts", compute)
    assert calls == [1] and list(rows.columns) == runs.ROW_COLUMNS
    assert rows.iloc[0][["method", "profile", "seed", "run_id", "value"]].tolist() == [
        "simcse",
        "demo",
        42,
        finished.id,
        50.0,
    ]


def test_publish_writes_rows_with_provenance(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    finished = runs.run(config)
    rows = finished.results(
        "x",
        lambda: pd.DataFrame([("t", "dev", "p", "all", "spearman", 1.23456)], columns=RESULT_COLUMNS),
    )
    path = runs.publish(rows, "demo", "x", "A note.")
    assert runs.published("demo", "x").value.tolist() == [1.23]
    provenance = json.loads(path.with_suffix(".provenance.json").read_text())
    assert provenance["notes"] == ["A note."] and provenance["runs"][finished.id]["rows"] == 200
    assert runs.published("demo", "nothing").empty


def published_rows(config, task, value, run_id):
    part = pd.DataFrame([(task, "dev", "p", "all", "spearman", value)], columns=RESULT_COLUMNS)
    return runs.label_rows(part, runs.config_labels(config), run_id=run_id)


def test_publishing_again_keeps_what_was_not_measured_again(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    finished = runs.run(config)
    rows = [published_rows(config, "a", 1.0, finished.id), published_rows(config, "b", 2.0, "")]
    path = runs.publish(pd.concat(rows), "demo", "x", "First.")
    source = json.loads(path.with_suffix(".provenance.json").read_text())["runs"]
    shutil.rmtree(finished.folder)  # another machine: the run itself is gone
    runs.publish(published_rows(config, "b", 3.0, ""), "demo", "x", "Second.")
    assert runs.published("demo", "x").set_index("task").value.to_dict() == {"a": 1.0, "b": 3.0}
    provenance = json.loads(path.with_suffix(".provenance.json").read_text())
    assert provenance["notes"] == ["First.", "Second."] and provenance["runs"] == source
    finished.folder.mkdir()
    (finished.folder / "provenance.json").write_text('{"commit": "of a run that was trained again"}')
    runs.publish(published_rows(config, "b", 4.0, ""), "demo", "x", "Third.")
    assert json.loads(path.with_suffix(".provenance.json").read_text())["runs"] == source


def test_a_mean_never_mixes_settings(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    first, second = (config.replace(seed=seed, corpus_seed=seed, corpus_size=100) for seed in (1, 2))
    for one in (first, second):
        runs.publish(published_rows(one, "a", 1.0, runs.run(one).id), "demo", "x", "A note.")
    path = tmp_path / "results" / "demo" / "x.csv"
    before = path.read_text()
    changes = {
        "corpus_size": {"corpus_size": 150},
        "method_arguments": {"temperature": 0.1},
        "max_steps": {"max_steps": 2},
    }
    for name, change in changes.items():
        other = first.replace(**change)
        rows = published_rows(other, "a", 2.0, runs.run(other).id)
        with pytest.raises(
            DataError, match=rf"rows simcse, simcse, .* different {name} \(.* and .*\): measure every seed"
        ):
            runs.publish(rows, "demo", "x", "Another.")
        assert path.read_text() == before
    settings = json.loads(path.with_suffix(".provenance.json").read_text())["runs"][runs.run(first).id]["settings"]
    assert settings["corpus_size"] == 100 and settings["method_arguments"]["temperature"] == 0.05
    assert str(tmp_path) not in path.with_suffix(".provenance.json").read_text()
    assert runs.run(first.replace(trace_until=2)).settings == settings


def test_a_text_that_reads_like_a_number_is_the_same_row_again(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    for value in (1.0, 2.0):
        rows = published_rows(config, "a", value, "").assign(weight="1", step=8)
        runs.publish(rows, "demo", "x", "A note.")
    again = runs.published("demo", "x", columns=list(rows))
    assert again[["weight", "step", "value"]].to_numpy().tolist() == [[1, 8, 2.0]]


def test_rows_without_an_aggregation_cost_no_others(config, tmp_path, monkeypatch):
    """The cosine of a pair has none; read back as a number it would make rows of several aggregations one."""
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    three = [
        published_rows(config, "a", value, "").assign(aggregation=name)
        for value, name in enumerate(("all", "mean", "wmean"))
    ]
    runs.publish(pd.concat(three), "demo", "x", "First.")
    pair = published_rows(config, "pair", 5.0, "").assign(aggregation="")
    pair.to_csv(tmp_path / "kept.csv", index=False)
    runs.publish(store.read_rows(tmp_path / "kept.csv").fillna({"run_id": ""}), "demo", "x", "Second.")
    assert runs.published("demo", "x").aggregation.tolist() == ["all", "mean", "wmean", ""]
    with pytest.raises(
        DataError, match="x.csv: aggregation is missing, or a number, in every row; nothing was publish"
    ):
        runs.publish(pair.assign(aggregation=float("nan")), "demo", "x", "Third.")
    pair.assign(value=float("nan")).to_csv(tmp_path / "kept.csv", index=False)
    assert store.read_rows(tmp_path / "kept.csv").value.isna().all()


def test_nothing_is_published_of_a_run_that_is_not_there(config, tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    with pytest.raises(DataError, match="simcse-gone is not in the store"):
        runs.publish(published_rows(config, "a", 1.0, "simcse-gone"), "demo", "x", "A note.")
    assert not (tmp_path / "results" / "demo" / "x.csv").exists()


def test_a_dev_row_says_whose_pairs_they_are(config):
    labels = {"table": "Table 5", "method": "without a term", "backbone": "a start"}
    done = pd.DataFrame([{"run": runs.run(config)} | labels])
    rows = runs.dev_rows(done, paper="infocse")
    assert rows[["paper", "table", "method", "backbone", "protocol"]].to_numpy().tolist() == [
        ["infocse", "Table 5", "without a term", "a start", "demo pairs"]
    ]


def test_dev_rows_behind_the_training_projection_are_those_of_that_encoder(config):
    done = runs.run(config.replace(method="simcse", projection="bn_mlp"))
    frame = pd.DataFrame({"run": [done], "method": ["SimCSE"]})
    rows = runs.projected_dev_rows(frame, config.data_folder(), table="Table 9", paper="infocse")
    expected = evaluate_sts(done.encoder(training_head=True).encode, [load_sts(config.data_folder(), "demo", "dev")])
    assert rows.value.tolist() == [pytest.approx(headline(expected))] and rows.value[0] != done.metrics["dev"]
    assert rows[["table", "method", "split"]].to_numpy().tolist() == [["Table 9", "SimCSE", "dev"]]


def test_emulated_bf16_is_told(config, monkeypatch, capsys):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    warn_if_slow(config)
    assert capsys.readouterr().err == ""
    warn_if_slow(config.replace(precision="bf16"))
    assert "fp32" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"corpus": "no-such.txt"}, DataError, "no such file"),
        ({"data_dir": "no/such/folder"}, DataError, "is not a folder"),
        ({"data_dir": "~nobody-of-this-name/x"}, DataError, "in the home folder of nobody"),
        ({"backbone": "~nobody-of-this-name/x"}, DataError, "in the home folder of nobody"),
        ({"dev_task": "STS-B"}, DataError, "senteval"),
        ({"corpus_size": 1000}, DataError, "has 200 rows, corpus_size asks for 1,000"),
        ({"batch_size": 512}, ConfigError, "less than one batch of 512"),
        ({"max_length": 100}, ConfigError, "more than backbone"),
        ({"method": "micse", "min_layer": 0, "max_layer": 2, "queue_size": 2**31 - 1}, ConfigError, "here: .*memory"),
        ({"backbone": "./nowhere"}, EncoderError, "neither an existing folder"),
        ({"method": "micse"}, ConfigError, "beyond the 2 layers"),
        (
            {"corpus": "demo-triples", "augmentation": "shuffle", "batch_size": 16},
            ConfigError,
            "needs plain sentences",
        ),
    ],
)
def test_preflight_names_what_is_wrong(config, change, error, words):
    with pytest.raises(error, match=words) as caught:
        runs.preflight(config.replace(**change))
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_said_before_training(config, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 2**20})())
    with pytest.raises(ConfigError, match="lower batch_size"):
        runs.preflight(config)


def test_a_finished_run_needs_no_memory(config, monkeypatch):
    finished = runs.run(config)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 2**20})())
    assert runs.run(config).folder == finished.folder


def test_results_of_other_tasks_are_other_rows(config):
    finished = runs.run(config)

    def rows(task):
        return pd.DataFrame([(task, "test", "p", "all", "spearman", 1.0)], columns=RESULT_COLUMNS)

    for task in ("MR", "CR", "MR"):
        assert finished.results("transfer", lambda task=task: rows(task), key=[task]).task.tolist() == [task]
    assert finished.results("transfer", None, key=["CR"], method="renamed").method.tolist() == ["renamed"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"method_arguments": {"gone_argument": 1}}, "unknown argument of simcse 'gone_argument'"),
        ({"gone_parameter": 1}, "unknown parameter 'gone_parameter'"),
        ({"method": "gone_method"}, "method 'gone_method' is unknown"),
    ],
)
def test_rows_of_a_run_of_older_code_are_still_read(config, change, words):
    finished = runs.run(config)
    frame = pd.DataFrame([("STS-B", "test", "p", "all", "spearman", 50.0)], columns=RESULT_COLUMNS)
    finished.results("sts", lambda: frame)
    stored = yaml.safe_load((finished.folder / "config.yaml").read_text())
    (finished.folder / "config.yaml").write_text(yaml.safe_dump(stored | change))
    (finished.folder / paths.SEAL).unlink()  # older code wrote none
    older = runs.Run(finished.folder)
    rows = older.results("sts", None)
    assert rows.value.tolist() == [50.0] and rows.method.tolist() == [change.get("method", "simcse")]
    assert older.encoder().dimension == 32
    with pytest.raises(ConfigError, match=words):
        older.config  # noqa: B018


@pytest.mark.parametrize("method", ["ct", "jtcse", "micse", "mirror_bert", "mlm", "tncse"])
@pytest.mark.parametrize("augmented", [False, True])
def test_a_method_that_knows_anchors_alone_refuses_pairs_by_name(config, tmp_path, method, augmented):
    (tmp_path / "pairs.csv").write_text("first,second\n" + "".join(f"a dog {i},a cat {i}\n" for i in range(40)))
    change = {"augmentation": "shuffle"} if augmented else {"corpus": str(tmp_path / "pairs.csv")}
    arguments = {"jtcse": {"cross_attention_layers": 2}}.get(method, {})
    with pytest.raises(
        ConfigError, match=rf"method {method} trains on the columns anchor alone, but corpus .*holds anchor, positive\."
    ):
        runs.preflight(config.replace(method=method, **change, **arguments))


def test_the_header_of_a_table_says_what_its_columns_are(config, tmp_path):
    def table(header, words):
        rows = [",".join(f"{i % 2 + 1} {text}" for text in words.split(",")) for i in range(40)]
        (tmp_path / "table.csv").write_text("\n".join([header, *rows]))
        return config.replace(corpus=str(tmp_path / "table.csv"))

    histories = []
    for header, words in (
        ("anchor,positive,hard_negative", "a dog runs,a cat sleeps,the sun"),
        ("anchor,hard_negative,positive", "a dog runs,the sun,a cat sleeps"),
        ("anchor,hard_negative", "a dog runs,the sun"),
    ):
        table_config = table(header, words).replace(dropout=0.0)
        runs.preflight(table_config)
        histories.append(runs.run(table_config).history.loss.dropna().tolist())
    assert histories[0] == pytest.approx(histories[1], rel=1e-4) and histories[0][0] != histories[2][0]
    with pytest.raises(
        ConfigError,
        match="method simcse trains on the columns anchor and perhaps positive, hard_negative, but corpus "
        ".* holds anchor, negative",
    ):
        runs.preflight(table("anchor,negative", "a dog,the sun"))


def test_a_run_of_another_commit_is_named_where_progress_is_shown(config, monkeypatch, capsys):
    runs.run(config)
    monkeypatch.setattr(running.session, "git_commit", lambda: "c0ffee")
    monkeypatch.setenv("CSE_PROGRESS", "off")  # its lines would land in an executed notebook
    runs.run(config)
    assert "was trained at commit" not in capsys.readouterr().err
    monkeypatch.delenv("CSE_PROGRESS")
    runs.run(config)
    assert "was trained at commit" in capsys.readouterr().err


def test_a_commit_made_while_a_run_trains_is_not_its_own(config, monkeypatch):
    train = running.train

    def commit_meanwhile(*arguments, **options):
        trained = train(*arguments, **options)
        monkeypatch.setattr(running.session, "git_commit", lambda: "later")
        return trained

    monkeypatch.setattr(running, "train", commit_meanwhile)
    monkeypatch.setattr(running.session, "git_commit", lambda: "earlier")
    assert runs.run(config).provenance["commit"] == "earlier"
