"""What careless and hostile users give: one clear sentence before any work, nothing foreign read, nothing overwritten.

The cases are data: input, and words of the sentence."""

import json
import shutil
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from lib import paths, runs
from lib.batch import jobs
from lib.batch.execute import _literal
from lib.batch.parameters import read_file, read_text
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import RESULT_COLUMNS

NOTEBOOK = paths.root() / "notebooks" / "0_start_here.ipynb"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
YAML = {
    "seed: 1\nseed: 2": "seed stands twice: keep one of them",
    "grid: {seed: [1], seed: [2]}": "seed stands twice",
    BOMB: "refers to another place: write the value out",
    "[]": "is not a mapping",
    "false": "is not a mapping",
    "0": "is not a mapping",
    "seed: 2020-99-99": "not valid YAML",
    "seed: !!int abc": "not valid YAML",
    "seed: !!python/object/apply:os.system [ls]": "not valid YAML",
    "[" * 5000: "not valid YAML",
}


@pytest.mark.parametrize(("text", "words"), YAML.items(), ids=range(len(YAML)))
def test_parameters_that_are_no_plain_mapping(text, words):
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")):
        read_text(text, "-y")


def test_nothing_and_comments_alone_are_no_parameters():
    assert read_text("", "-y") == read_text("# later", "-y") == {}


@pytest.mark.parametrize("name", ["missing.yaml", "x" * 5000])
def test_a_parameter_file_that_cannot_be_read(tmp_path, name):
    with pytest.raises(ConfigError, match="no such file|cannot be read"):
        read_file(tmp_path / name)


def test_a_sweep_without_end_is_refused_at_once(tmp_path):
    grid = {name: list(range(1000)) for name in ("seed", "corpus_size", "batch_size")}
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(json.dumps({"notebook": "notebooks/0_start_here.ipynb", "grid": grid}))
    with pytest.raises(ConfigError, match="1,000,000,000 combinations, at most 10,000"):
        jobs.expand(sweep)


@pytest.mark.parametrize("content", ["my thesis", "{}", None])
def test_nobodys_file_is_taken_for_an_output(tmp_path, content):
    output = tmp_path / "mine.ipynb"
    if content is None:
        output.mkdir()
    else:
        output.write_text(content)
    with pytest.raises(ConfigError, match="is there already and is no executed notebook"):
        jobs.single(NOTEBOOK, output=output)
    notebook = nbformat.v4.new_notebook()
    nbformat.write(notebook, tmp_path / "own.ipynb")
    with pytest.raises(ConfigError, match="no executed notebook"):
        jobs.single(NOTEBOOK, output=tmp_path / "own.ipynb")
    notebook.metadata["papermill"] = {}
    nbformat.write(notebook, tmp_path / "old.ipynb")
    assert jobs.single(NOTEBOOK, output=tmp_path / "old.ipynb").output == tmp_path / "old.ipynb"


def test_braces_in_a_path_are_part_of_its_name():
    from papermill.parameterize import parameterize_path

    assert parameterize_path(_literal(Path("/a/{seed}/{}.ipynb")), {"seed": 3}) == "/a/{seed}/{}.ipynb"


LISTS = [
    {"encoders": ["../elsewhere"], "weights": [1.0]},
    {"encoders": ["/etc"], "weights": [1.0]},
    {"encoders": [".."], "weights": [1.0]},
    {"encoders": ["link"], "weights": [1.0]},
    {"encoders": [], "weights": []},
    {"encoders": ["0"], "weights": [0.0]},
    {"encoders": ["0"], "weights": [float("nan")]},
    {"encoders": ["0"], "weights": [float("inf")]},
    {"encoders": ["0"], "weights": ["much"]},
    {"encoders": ["0"], "weights": [1.0, 1.0]},
    {"encoders": "0", "weights": [1.0], "more": ".."},
    ["0"],
    {},
]


@pytest.mark.parametrize("listed", LISTS, ids=range(len(LISTS)))
def test_a_list_of_encoders_names_its_own_folders_and_finite_weights(tmp_path, tiny_bert, listed):
    folder = tmp_path / "sum"
    ensemble.EncoderSum([SentenceEncoder.from_pretrained(tiny_bert)]).save(folder)
    (folder / "link").symlink_to(tmp_path)
    (name,) = json.loads((folder / ensemble.LIST).read_text())["encoders"]
    (folder / ensemble.LIST).write_text(json.dumps(listed).replace('"0"', json.dumps(name)))
    with pytest.raises(EncoderError, match="ensemble.json is no list of encoders"):
        ensemble.load(folder)


WEIGHTS = {
    "embeddings.word_embeddings.weight": (torch.zeros_like, "all its word vectors are 0"),
    "encoder.layer.1.output.dense.weight": (
        lambda x: x * float("nan"),
        "encoder.layer.1.output.dense.weight holds NaN",
    ),
    "encoder.layer.0.output.dense.bias": (lambda x: x + float("inf"), "encoder.layer.0.output.dense.bias holds NaN"),
    "encoder.layer.0.attention.self.key.weight": (lambda x: (x * 9).to(torch.int8), "stored as whole numbers"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_cannot_be_meant(tmp_path, tiny_bert, name):
    change, words = WEIGHTS[name]
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    (full,) = (key for key in weights if key.endswith(name))
    save_file(weights | {full: change(weights[full]).contiguous()}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=words):
        SentenceEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"is_decoder": True}, "is_decoder is set"), ({"num_hidden_layers": 1}, "has 1 layers and its weights have more")],
)
def test_a_configuration_that_is_not_of_these_weights(tmp_path, tiny_bert, change, words):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(EncoderError, match=words):
        SentenceEncoder.from_pretrained(folder)


def test_a_list_cut_in_half_is_one_sentence(tmp_path, tiny_bert):
    folder = tmp_path / "sum"
    ensemble.EncoderSum([SentenceEncoder.from_pretrained(tiny_bert)]).save(folder)
    ensemble.load(folder)
    path = folder / ensemble.LIST
    path.write_text(path.read_text()[:9])
    with pytest.raises(EncoderError, match="is no list of encoders"):
        ensemble.load(folder)


# --- What the store wrote and somebody cut, changed or emptied ---


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, tiny_bert):
    corpus = tmp_path_factory.mktemp("corpus") / "lines.txt"
    corpus.write_text("".join(f"line {i} of a corpus\n" for i in range(16)))
    config = RunConfig(corpus=str(corpus), backbone=str(tiny_bert), max_steps=1, batch_size=8, max_length=16)
    return runs.run(config).folder


DAMAGES = {"cut": lambda data: data[: len(data) // 2], "empty": lambda data: b"", "changed": lambda data: data + b" "}
READ = {"metrics.json": "metrics", "history.csv": "history", "provenance.json": "provenance", "config.yaml": "config"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READ)
def test_a_damaged_run_is_named(tmp_path, finished_run, name, damage):
    folder = shutil.copytree(finished_run, tmp_path / finished_run.name)
    (folder / name).write_bytes(DAMAGES[damage]((folder / name).read_bytes()))
    with pytest.raises(DataError, match=f"{name} was cut or changed since it was written: delete {folder}, and it is"):
        getattr(runs.Run(folder), READ[name])


@pytest.mark.parametrize("name", ["metrics.json", "history.csv", "provenance.json"])
def test_a_run_of_an_older_store_that_cannot_be_read_is_named(tmp_path, finished_run, name):
    folder = shutil.copytree(finished_run, tmp_path / finished_run.name)
    (folder / paths.SEAL).unlink()
    getattr(runs.Run(folder), READ[name])
    (folder / name).write_bytes(b"")
    with pytest.raises(DataError, match=f"{name} is damaged .*delete {folder}, and it is trained again"):
        getattr(runs.Run(folder), READ[name])


def test_a_run_without_its_encoders_weights_is_named(tmp_path, finished_run):
    folder = shutil.copytree(finished_run, tmp_path / finished_run.name)
    next(folder.rglob("model.safetensors")).unlink()
    with pytest.raises(DataError, match="is damaged .*model.safetensors.*delete"):
        runs.Run(folder).encoder()


def test_kept_scores_that_were_cut_are_not_read(tmp_path, finished_run):
    run = runs.Run(shutil.copytree(finished_run, tmp_path / finished_run.name))
    row = dict(zip(RESULT_COLUMNS, ["demo", "test", "p", "all", "spearman", 1.0], strict=True))
    kept = [run.results("sts", lambda: pd.DataFrame([row] * 9)) for _ in range(2)]
    pd.testing.assert_frame_equal(*kept)
    path = run.results_file("sts")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(DataError, match=rf"{path.name} was cut or changed since it was written: delete {path}"):
        run.results("sts", lambda: pd.DataFrame([row]))


def test_a_cache_that_was_cut_is_not_read(tmp_path):
    for folder in (False, True):
        place = tmp_path / f"kept-{folder}"

        def make(new, folder=folder):
            (new / "tokens.npy" if folder else new).write_text("one\ntwo\n")

        assert paths.made_once(place, make, folder=folder) == paths.made_once(place, make, folder=folder)
        (place / "tokens.npy" if folder else place).write_text("one\n")
        with pytest.raises(DataError, match=f"was cut or changed since it was written: delete {place}, and it is"):
            paths.made_once(place, make, folder=folder)


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_damaged_checkpoint_is_named(tmp_path, tiny_bert, corpus_file, content):
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), max_steps=2, batch_size=8, max_length=16)
    identity = runs.prepare(config).id
    checkpoint = paths.runs() / ".unfinished" / identity / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    if content is None:
        torch.save({"progress": torch.zeros(10_000)}, checkpoint)
        content = checkpoint.read_bytes()[:20_000]
    checkpoint.write_bytes(content)
    with pytest.raises(ConfigError, match="checkpoint.pt is damaged .*delete it, and training begins anew"):
        runs.run(config)


def test_published_rows_are_those_that_were_measured(tmp_path, monkeypatch):
    measured = sorted((paths.root() / "results").rglob("*.csv"))
    assert len(measured) >= 20
    for path in measured:
        columns = path.read_text(encoding="utf8").splitlines()[0].split(",")
        runs.published(path.parent.name, path.stem, columns=columns)
        assert "sha256" in json.loads(path.with_suffix(".provenance.json").read_text(encoding="utf8"))
    folder = shutil.copytree(paths.root() / "results", tmp_path / "results")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    path = folder / "small" / "msse.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match="msse.csv was cut or changed since it was published: restore it and msse.prov"):
        runs.published("small", "msse")


def test_a_home_folder_of_nobody_is_a_folder_that_is_not_there(monkeypatch):
    assert paths.expanded("~nosuchuser/x") == Path("~nosuchuser/x")
    monkeypatch.setenv("CSE_RUNS", "~nosuchuser/runs")
    assert paths.runs() == Path.cwd() / "~nosuchuser" / "runs"
    with pytest.raises(EncoderError):
        SentenceEncoder.from_pretrained("~nosuchuser/bert")
