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

from lib import runs
from lib.config import ConfigError, RunConfig
from lib.data import DataError
from lib.encoder import EncoderError


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
        "config.yaml", "encoder", "history.csv", "metrics.json", "provenance.json",
    ]  # fmt: skip
    assert first.config == config and first.metrics["steps"] == 3 and len(first.history) == 4
    monkeypatch.setattr(runs, "train", lambda *a, **k: pytest.fail("trained again"))
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
    moved.write_text("\n".join(sentences[::-1]) + "\n")
    assert runs.prepare(config.replace(corpus=str(moved))).id != name
    for change in (
        {"seed": 1},
        {"temperature": 0.1},
        {"corpus_size": 100},
        {"pooling": "mean"},
        {"dropout": 0.2},
    ):
        assert runs.prepare(config.replace(**change)).id != name, change


def test_a_damaged_run_folder_is_trained_again(config):
    finished = runs.run(config)
    (finished.folder / "metrics.json").unlink()
    assert runs.run(config).metrics == finished.metrics


def test_two_processes_on_one_run_train_it_once(config, tmp_path):
    code = (
        "import sys, lib.runs as r, lib.training as t\n"
        "from lib.config import RunConfig\n"
        "real = r.train\n"
        "def train(*a, **k):\n    print('trains', flush=True)\n    return real(*a, **k)\n"
        "r.train = train\n"
        "print(r.run(RunConfig(**eval(sys.argv[1]))).id)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-c", code, repr(config.as_dict())]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    output = [p.communicate()[0].split() for p in both]
    assert sorted(len(o) for o in output) == [1, 2] and output[0][-1] == output[1][-1]


def test_results_are_computed_once_and_collected(config):
    finished = runs.run(config)
    calls = []

    def compute():
        calls.append(1)
        return pd.DataFrame([("STS-B", "test", "SentEval", "all", "spearman", 50.0)], columns=runs.ROW_COLUMNS[5:11])

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
    pd.testing.assert_frame_equal(runs.collect("demo"), rows)
    assert runs.collect("paper").empty


def test_publish_writes_rows_with_provenance(config, tmp_path, monkeypatch):
    monkeypatch.setattr(runs.paths, "root", lambda: tmp_path)
    finished = runs.run(config)
    rows = finished.results(
        "x",
        lambda: pd.DataFrame([("t", "dev", "p", "all", "spearman", 1.23456)], columns=runs.ROW_COLUMNS[5:11]),
    )
    path = runs.publish(rows, "demo", "x", "A note.")
    assert runs.published("demo", "x").value.tolist() == [1.23]
    provenance = json.loads(path.with_suffix(".provenance.json").read_text())
    assert provenance["note"] == "A note." and provenance["runs"][finished.id]["rows"] == 200
    assert runs.published("demo", "nothing").empty


def test_publishing_again_can_keep_what_was_not_measured_again(config, tmp_path, monkeypatch):
    monkeypatch.setattr(runs.paths, "root", lambda: tmp_path)
    finished = runs.run(config)

    def rows(task, value, run_id):
        part = pd.DataFrame([(task, "dev", "p", "all", "spearman", value)], columns=runs.ROW_COLUMNS[5:11])
        return runs.label_rows(part, config, run_id)

    runs.publish(pd.concat([rows("a", 1.0, finished.id), rows("b", 2.0, "")]), "demo", "x", "First.")
    shutil.rmtree(finished.folder)  # another machine: the run itself is gone
    path = runs.publish(rows("b", 3.0, ""), "demo", "x", "Second.", extend=True)
    assert runs.published("demo", "x").set_index("task").value.to_dict() == {"a": 1.0, "b": 3.0}
    provenance = json.loads(path.with_suffix(".provenance.json").read_text())
    assert provenance["note"] == "Second." and provenance["runs"][finished.id]["rows"] == 200
    runs.publish(rows("b", 4.0, ""), "demo", "x", "Third.")
    assert runs.published("demo", "x").value.tolist() == [4.0]


def test_emulated_bf16_is_told(config, monkeypatch, capsys):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    runs.warn_if_slow(config)
    assert capsys.readouterr().err == ""
    runs.warn_if_slow(config.replace(precision="bf16"))
    assert "fp32" in capsys.readouterr().err


def test_grid_validates_everything_before_the_first_run(config, monkeypatch):
    monkeypatch.setattr(runs, "run", lambda *a, **k: pytest.fail("started"))
    with pytest.raises(ConfigError, match="temperature"):
        runs.grid(config, {"temperature": [0.05, -1.0]})


def test_grid_rows(config):
    frame = runs.grid(config, {"temperature": [0.05, 0.5], "seed": [1, 2]})
    assert frame[["temperature", "seed"]].to_numpy().tolist() == [[0.05, 1], [0.05, 2], [0.5, 1], [0.5, 2]]
    assert frame.run_id.nunique() == 4 and frame.dev.notna().all()


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"corpus": "no-such.txt"}, DataError, "no such file"),
        ({"data_dir": "no/such/folder"}, DataError, "is not a folder"),
        ({"dev_task": "STS-B"}, DataError, "senteval"),
        ({"corpus_size": 1000}, DataError, "has 200 rows, corpus_size asks for 1,000"),
        ({"batch_size": 512}, ConfigError, "less than one batch of 512"),
        ({"max_length": 100}, ConfigError, "more than backbone"),
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
        config.replace(**change).preflight()
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_said_before_training(config, monkeypatch):
    monkeypatch.setattr(runs.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**20})())
    with pytest.raises(ConfigError, match="lower batch_size"):
        config.preflight()


def test_a_finished_run_needs_no_memory(config, monkeypatch):
    finished = runs.run(config)
    monkeypatch.setattr(runs.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**20})())
    assert runs.run(config).folder == finished.folder


def test_results_of_other_tasks_are_other_rows(config):
    finished = runs.run(config)

    def rows(task):
        return pd.DataFrame([(task, "test", "p", "all", "spearman", 1.0)], columns=runs.ROW_COLUMNS[5:11])

    for task in ("MR", "CR", "MR"):
        assert finished.results("transfer", lambda task=task: rows(task), key=[task]).task.tolist() == [task]
    assert len(runs.collect("demo")) == 2


def test_several_encoders_of_one_run_keep_their_names(config):
    finished = runs.run(config)

    def rows(value):
        return pd.DataFrame([("STS-B", "test", "p", "all", "spearman", value)], columns=runs.ROW_COLUMNS[5:11])

    for name, value in (("encoder I", 1.0), ("sum", 2.0)):
        finished.results("sts", lambda value=value: rows(value), key=[name], method=name, paper="x")
    found = runs.collect("demo").set_index("method")
    assert found.value.to_dict() == {"encoder I": 1.0, "sum": 2.0} and set(found.paper) == {"x"}
    assert finished.results("sts", None, key=["sum"], method="renamed").method.tolist() == ["renamed"]


def test_command_line(config, tmp_path, capsys):
    import yaml

    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(config.as_dict() | {"only_the_notebook_reads_this": 1}))
    assert runs.main(["-f", str(file), "-p", "max_steps=2"]) == 0
    assert '"steps": 2' in capsys.readouterr().out
    assert runs.main(["-f", str(file), "-p", "learning_rate=1e-5"]) == 2
    assert "write 1.0e-5" in capsys.readouterr().err
    assert runs.main(["-f", str(tmp_path / "none.yaml")]) == 2
    assert runs.main(["-f", str(file), "-p", "sed=9"]) == 2
    assert "did you mean 'seed'" in capsys.readouterr().err
    assert runs.main(["-f", str(file), "-p", "seed"]) == 2
