"""What careless and hostile users give: one clear sentence before any work, nothing foreign read, nothing overwritten.

The cases are data: input, and words of the sentence. They run in this process, but for closed streams and full disks."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from lib import command, paths, runs
from lib.checks import ConfigError, DataError, EncoderError
from lib.data import load_sts
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.generator import Generator
from lib.evaluation import evaluate_sts
from lib.runs import __main__ as run_command
from tests.conftest import reweigh, rewrite

ROOT = paths.root()


# --- Encoders and checkpoints ---


FAR = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
FAR["vocab"] = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "dog": 500}
DENSE = "its dense layer is more than a linear layer"
TRANSFORMER = '{"type": "sentence_transformers.models.Transformer", "path": ""}'
DAMAGES = [
    ("config.json", {"is_decoder": True}, "makes it a decoder"),
    ("config.json", {"num_hidden_layers": 1}, "has weights that its layers do not have .bert.encoder.layer.1"),
    ("sentence_encoder.json", {"pooling": "nope"}, "its pooling 'nope' is none of"),
    ("modules.json", '[{"type": "evil.Transformer", "path": ""}]', "lists the step 'evil.Transformer'"),
    ("modules.json", '[{"type": "sentence_transformers.models.Dense", "path": "3_Dense"}]', "Dense' in '3_Dense'"),
    ("modules.json", f"[{TRANSFORMER}, {TRANSFORMER}]", "step 'sentence_transformers.models.Transformer' in ''"),
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling 'pooling_mode_max_tokens' is none of"),
    ("2_Dense/config.json", {"activation_function": "Tanh", "use_residual": True}, DENSE),
    ("2_Dense/config.json", {"activation_function": "Tanh", "module_input_name": "token_embeddings"}, DENSE),
    ("2_Dense/config.json", {"activation_function": "GELU"}, DENSE),
    ("config_sentence_transformers.json", {"default_prompt_name": "q", "prompts": {"q": "query: "}}, "puts a prompt"),
    ("tokenizer.json", {"post_processor": None}, "does not put its .CLS. before a text"),
    ("tokenizer.json", {"model": FAR}, "its tokenizer has 501 entries and its weights know"),
    (r"layer\.0\.attention\.self\.key\.weight$", lambda x: (x * 9).to(torch.int8), "stored as I8"),
    (r"LayerNorm\.weight$", torch.zeros_like, "its vectors are not finite, or the same"),
    (r"embeddings\.LayerNorm\.bias$", lambda x: x * float("nan"), "LayerNorm.bias holds NaN"),
    (r"layer\.0\.output\.dense\.weight$", lambda x: x[:16], r"do not belong together: .* has the shape \[16, 64\]"),
]


@pytest.mark.parametrize(("part", "change", "words"), DAMAGES, ids=range(len(DAMAGES)))
def test_an_encoder_that_cannot_be_meant_is_named(tmp_path, tiny_bert, part, change, words):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    (reweigh if callable(change) else rewrite)(folder, part, change)
    if part == "tokenizer.json":
        rewrite(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(EncoderError, match=words) as caught:
        SentenceEncoder.from_pretrained(folder, what="teacher")
    assert str(caught.value).startswith(f"teacher {str(folder)!r}") and "\n" not in str(caught.value)


def test_weights_in_several_files_are_read_from_safetensors_beside_the_list(tmp_path, tiny_bert):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "part.safetensors", {"format": "pt"})
    content = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}
    rewrite(folder, "model.safetensors.index.json", content)
    whole, parts = (SentenceEncoder.from_pretrained(place).encode(["the dog"]) for place in (tiny_bert, folder))
    np.testing.assert_array_equal(whole, parts)
    rewrite(folder, "model.safetensors.index.json", json.dumps(content | {"weight_map": {"a": "../part.safetensors"}}))
    with pytest.raises(EncoderError, match="names '../part.safetensors'"):
        SentenceEncoder.from_pretrained(folder)
    torch.save(weights, folder / "weights.bin")
    content["weight_map"] = dict.fromkeys(weights, "weights.bin")
    rewrite(folder, "model.safetensors.index.json", json.dumps(content))
    for load in (SentenceEncoder.from_pretrained, lambda place: Generator.from_pretrained(str(place))):
        with pytest.raises(EncoderError, match=r"names 'weights.bin': weights are read from safetensors files"):
            load(folder)


def test_what_is_encoded_is_a_list_of_texts(tiny_bert):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    total = ensemble.EncoderSum([encoder])
    texts = ["the dog", "the cat"]
    for one in (encoder, total):
        for form in (pd.Series(texts), np.array(texts)):
            np.testing.assert_allclose(one.encode(form), one.encode(texts), atol=1e-6)
        for wrong in ("a text", [1], [None]):
            with pytest.raises(TypeError, match="takes a list of strings"):
                one.encode(wrong)


def test_a_run_is_no_backbone(tmp_path):
    (tmp_path / "run/encoder").mkdir(parents=True)
    with pytest.raises(EncoderError, match="is the folder of a run: name the folder `encoder` in it"):
        SentenceEncoder.from_pretrained(tmp_path / "run")


def test_an_encoder_without_a_score_is_refused():
    task = load_sts(ROOT, "demo", "test")
    with pytest.raises(EncoderError, match="vectors are not finite"):
        evaluate_sts(lambda texts: np.full((len(texts), 3), np.nan), [task])
    with pytest.raises(EncoderError, match="all pairs of demo equally near"):
        evaluate_sts(lambda texts: np.ones((len(texts), 3)), [task])


def test_a_damaged_checkpoint_is_named(config):
    checkpoint = paths.runs() / ".unfinished" / runs.prepare(config).id / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    torch.save({"progress": torch.zeros(10_000)}, checkpoint)
    for content in (b"", checkpoint.read_bytes()[:20_000], checkpoint.read_bytes()):
        checkpoint.write_bytes(content)
        with pytest.raises(ConfigError, match="checkpoint.pt is damaged.*delete it, and training begins anew"):
            runs.run(config)


# --- Places that cannot be written, disks that are full, processes that are killed ---


@pytest.mark.parametrize("place", ["file", "/proc/x"])
def test_a_store_that_cannot_be_written(tmp_path, monkeypatch, config, capsys, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CSE_RUNS", place)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(config.as_dict()))
    before = {*tmp_path.iterdir()}
    assert run_command.main(["-f", "p.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "cannot be read or written" in err
    assert {*tmp_path.iterdir()} <= {*before, tmp_path / "cache"} and (tmp_path / "file").read_text() == "mine"


def test_what_is_in_the_way_of_a_run_is_named_before_it_trains(config):
    place = paths.runs() / "demo" / runs.prepare(config).id
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(DataError, match="is in the way of the run of this name: move it"):
        runs.run(config)
    place.unlink()
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="notes.txt lies where a run is to be trained again: move it"):
        runs.run(config)
    assert (place / "notes.txt").read_text() == "mine" and not paths.cache().exists(), "nothing was tokenised"


FULL = """
import json, resource, sys
from pathlib import Path
import matplotlib.pyplot as plt, numpy as np, pandas as pd, torch
from lib import figures, paths, runs
from lib.batch import report
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.data import Corpus, tokenize_corpus
from lib.encoders import SentenceEncoder, ensemble
from lib.training import whole_file

tmp, bert, finished, corpus = Path(sys.argv[1]), *sys.argv[2:]
encoder, run = SentenceEncoder.from_pretrained(bert, device="cpu"), runs.Run(Path(finished))
rows = pd.DataFrame({"value": np.arange(2000.0)})
lines = Corpus("lines", [[f"line {i} of the corpus" for i in range(600)]])
figure = plt.figure()
config = RunConfig(corpus=corpus, backbone=bert, max_steps=1, batch_size=8, max_length=16, seed=5)

def checkpoint():
    with whole_file(tmp / "checkpoint.pt") as new:
        torch.save({"a": torch.zeros(10_000)}, new)

tries = {
    "encoder": lambda: encoder.save(tmp / "encoder"),
    "ensemble": lambda: ensemble.EncoderSum([encoder]).save(tmp / "ensemble"),
    "tokens": lambda: tokenize_corpus(lines, encoder, max_length=16),
    "checkpoint": checkpoint,
    "results": lambda: run.results("full", lambda: rows),
    "figure": lambda: figures.save_figure(figure, "full", rows),
    "run": lambda: runs.run(config),
    "report": lambda: report.write("demo", []),
}
for limit in (300, 2_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for name, attempt in tries.items():
        try:
            attempt()
            said = "nothing"
        except (ConfigError, DataError, EncoderError) as error:
            said = str(error)
        except BaseException as error:
            said = f"TRACEBACK {type(error).__name__} {error}"
        print(json.dumps([limit, name, said]), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([0, "left", sorted(path.name for path in tmp.rglob("*") if path.is_file() and path.suffix != ".lock")]))
"""


@pytest.mark.process
def test_a_full_disk_is_said_and_leaves_nothing_half(tmp_path, config):
    (tmp_path / "written").mkdir()
    arguments = [str(tmp_path / "written"), config.backbone, str(runs.run(config).folder), config.corpus]
    places = {"CSE_RUNS": "runs", "CSE_CACHE": "cache", "CSE_FIGURES": "figures"}
    environment = os.environ | {name: str(tmp_path / "written" / place) for name, place in places.items()}
    command = [sys.executable, "-c", FULL, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(said) == 17, ended.stderr
    for limit, name, text in said[:-1]:
        assert "(File too large): check" in text and "\n" not in text, (limit, name, text)
    assert said[-1][2] == []


# --- Commands ---


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PermissionError(13, "not allowed", "/a/b"), 2, "/a/b cannot be read or written (not allowed): check"),
        (OSError("connection lost\nagain"), 2, "connection lost again: check"),
        (DataError("two\nlines"), 2, "two lines"),
        (KeyboardInterrupt(), 130, "Interrupted; start the same command again"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_how_a_command_ends(capfd, error, code, words):
    def work():
        raise error

    standard_output = os.dup(1)
    assert command.ended(work) == code
    os.dup2(standard_output, 1)  # that of the next tests
    out, err = capfd.readouterr()
    assert out == "" and err.startswith(words) and err.count("\n") == bool(words)
