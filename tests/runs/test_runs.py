"""The store: naming, finding, locking, results, provenance, preflight."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from lib import paths, runs
from lib.checks import ConfigError, DataError, EncoderError
from lib.encoders import precision
from lib.evaluation import RESULT_COLUMNS
from lib.runs import store


def test_a_run_is_trained_once_and_found_again(config, sentences):
    first = runs.run(config)
    files = {"config.yaml", "metrics.json", "provenance.json", "history.csv", "encoder"}
    assert {path.name for path in first.folder.iterdir()} == files
    assert first.config == config and first.metrics["steps"] == 2 and len(first.history) == 3
    provenance = first.provenance
    assert provenance["rows"] == 200 and set(provenance["checksums"]) == {"corpus", "backbone", "dev"}
    assert {"torch", "transformers", "python"} <= set(provenance["versions"])
    assert provenance["device"] and provenance["commit"] and provenance["seconds"] > 0
    (first.folder / ".seal").write_text("of older code")
    left = paths.runs() / ".unfinished" / first.id
    left.mkdir()
    written = (first.folder / "metrics.json").stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psutil.virtual_memory", lambda: pytest.fail("a finished run needs no memory"))
        again = runs.run(config)
    assert (again.folder / "metrics.json").stat().st_mtime_ns == written and not left.exists()
    np.testing.assert_array_equal(again.encoder().encode(sentences[:3]), first.encoder().encode(sentences[:3]))
    (first.folder / "metrics.json").unlink()  # a damaged folder is trained again
    assert runs.run(config).metrics == first.metrics


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


def test_results_are_computed_once_per_key_and_still_read_where_older_code_trained_the_run(config):
    finished, calls = runs.run(config), []

    def rows(task):
        calls.append(task)
        return pd.DataFrame([(task, "test", "p", "all", "spearman", 1.0)], columns=RESULT_COLUMNS)

    for task in ("MR", "CR", "MR"):
        kept = finished.results("transfer", lambda task=task: rows(task), key=task)
        assert kept.task.tolist() == [task] and list(kept) == RESULT_COLUMNS
    assert calls == ["MR", "CR"]
    for path in (finished.folder / "results").iterdir():
        for content in (b"", b"\xff\xfe\x00", b"a,b\n1,2\n", path.read_bytes().replace(b"1.0", b"much")):
            path.write_bytes(content)
            with pytest.raises(DataError, match=f"{path} is damaged .*delete it, and it is measured again"):
                store.read_rows(path)
    unnamed = rows("pair").assign(aggregation="", value=float("nan"))  # an empty label is no missing number
    again = finished.results("pair", lambda: unnamed)
    assert again.aggregation.tolist() == [""] and again.value.isna().all()
    finished.results("sts", lambda: rows("STS-B").assign(value=50.0))
    stored = yaml.safe_load((finished.folder / "config.yaml").read_text())
    (finished.folder / "config.yaml").write_text(yaml.safe_dump(stored | {"method": "gone_method"}))
    older = runs.Run(finished.folder)
    assert older.results("sts", None).value.tolist() == [50.0]
    assert older.encoder().dimension == 32
    with pytest.raises(ConfigError, match="method 'gone_method' is unknown"):
        older.config  # noqa: B018


def test_the_settings_of_a_run_leave_out_places_and_what_differs_between_seeds(config):
    first = runs.run(config.replace(seed=1, corpus_seed=1, corpus_size=100))
    assert runs.run(first.config.replace(seed=2, corpus_seed=2, trace_until=1)).settings == first.settings
    assert first.settings["corpus_size"] == 100 and first.settings["method_arguments"]["temperature"] == 0.05
    other = runs.run(first.config.replace(temperature=0.1))
    assert other.settings != first.settings
    student = runs.run(config.replace(method="distill", teacher=str(first.folder / "encoder")))
    assert str(first.folder) not in str(student.settings)


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_run_says_that_its_bf16_was_computed_by_rounding_and_counts_the_memory_of_fp32(config, monkeypatch, has_bf16):
    monkeypatch.setattr(precision, "computes_bf16", lambda device: has_bf16)
    device = runs.run(config.replace(precision="bf16")).provenance["device"]
    assert device.startswith("CPU, ") and device.endswith(", bf16 by rounding") != has_bf16
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 22 * 2**20})())
    with nullcontext() if has_bf16 else pytest.raises(ConfigError, match="lower batch_size"):
        runs.preflight(config.replace(precision="bf16", batch_size=200, seed=9))


def test_short_sentences_need_no_memory_for_a_long_limit(config, tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 22 * 2**20})())
    for word, fits in (("a dog", True), ("a dog runs far away" * 9, False)):
        (tmp_path / "own.txt").write_text("".join(f"{word} {i}\n" for i in range(200)))
        own = config.replace(corpus=str(tmp_path / "own.txt"), batch_size=150, max_length=64)
        with nullcontext() if fits else pytest.raises(ConfigError, match="would need about .* or max_length"):
            runs.preflight(own)


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"corpus": "no-such.txt"}, DataError, "no such file"),
        ({"dev_task": "STS-B"}, DataError, "senteval"),
        ({"corpus_size": 1000}, DataError, "has 200 rows, corpus_size asks for 1,000"),
        ({"precision": "fp16"}, ConfigError, "needs a GPU, and there is none"),
        ({"batch_size": 512}, ConfigError, "less than one batch of 512"),
        ({"max_length": 100}, ConfigError, "more than backbone"),
        ({"method": "micse", "min_layer": 0, "max_layer": 2, "queue_size": 2**31 - 1}, ConfigError, "here: .*memory"),
        ({"backbone": "./nowhere"}, EncoderError, "neither an existing folder"),
        ({"method": "rankcse", "teacher": "./nowhere"}, EncoderError, "teacher './nowhere' is neither an existing"),
        ({"method": "ct", "augmentation": "shuffle"}, ConfigError, "trains on the columns anchor alone, but corpus"),
        ({"method": "jtcse", "cross_attention_layers": 5}, ConfigError, "does not divide the 2 layers"),
    ],
)
def test_preflight_names_what_is_wrong(config, change, error, words):
    with pytest.raises(error, match=words) as caught:
        runs.preflight(config.replace(**change))
    assert "\n" not in str(caught.value)
