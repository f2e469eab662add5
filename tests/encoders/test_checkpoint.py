"""Checkpoints of SimCSE's authors' script: the same vectors, the trained layer as projection, and nothing unpickled."""

import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lib.checks import EncoderError
from lib.encoders import SentenceEncoder
from lib.encoders.checkpoint import readable

TEXTS = ["A dog runs.", "Two people talk about the weather.", "Stocks fell."]


@pytest.fixture
def written(tmp_path, tiny_bert, tiny_roberta):
    """Writes a checkpoint as that script does; kind: bin, safetensors, or roberta (a bin)."""

    def write(kind, *, layer=True):
        source, prefix = (tiny_roberta, "roberta.") if kind == "roberta" else (tiny_bert, "bert.")
        folder = shutil.copytree(source, tmp_path / f"{kind}-{layer}")
        saved = load_file(folder / "model.safetensors")
        state = {prefix + name.removeprefix(prefix): x for name, x in saved.items() if not name.startswith("cls.")}
        state["lm_head.bias"] = torch.zeros(3)
        if layer:
            state |= {f"mlp.dense.{name}": x for name, x in nn.Linear(32, 32).state_dict().items()}
        if kind == "safetensors":
            save_file(state, folder / "model.safetensors")
        else:
            (folder / "model.safetensors").unlink()
            torch.save(state, folder / "pytorch_model.bin")
        return folder, state

    return write


@pytest.mark.parametrize("kind", ["bin", "safetensors", "roberta"])
def test_the_trained_layer_is_the_projection(written, tiny_bert, tiny_roberta, kind):
    folder, state = written(kind)
    encoder = SentenceEncoder.from_pretrained(readable(folder), pooling="cls")
    source = tiny_roberta if kind == "roberta" else tiny_bert
    plain = SentenceEncoder.from_pretrained(source, pooling="cls").encode(TEXTS)
    weight, bias = (state[f"mlp.dense.{name}"].numpy() for name in ("weight", "bias"))
    np.testing.assert_allclose(encoder.encode(TEXTS), np.tanh(plain @ weight.T + bias), atol=1e-5)
    encoder.projection = None
    np.testing.assert_allclose(encoder.encode(TEXTS), plain, atol=1e-6)
    assert readable(folder) == readable(folder) != folder


def test_without_the_layer_there_is_no_projection(written, tmp_path):
    folder, _ = written("bin", layer=False)
    assert SentenceEncoder.from_pretrained(readable(folder)).projection is None
    old = tmp_path / "old"
    SentenceEncoder.from_pretrained("demo", pooling="mean").save(old)
    torch.save(load_file(old / "model.safetensors"), old / "pytorch_model.bin")
    for name in ("model.safetensors", "sentence_encoder.json"):  # as sentence-transformers wrote it once
        (old / name).unlink()
    assert SentenceEncoder.from_pretrained(readable(old)).pooling == "mean"
    other, _ = written("safetensors", layer=False)
    assert readable(other) == other and readable("someone/bert") == "someone/bert"  # read as they are


def test_a_checkpoint_that_holds_more_than_tensors_runs_nothing(tmp_path, written):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    folder, _ = written("bin")
    for content in ({"bert.x": Evil()}, [1, 2], {"bert.x": 3}):
        torch.save(content, folder / "pytorch_model.bin")
        with pytest.raises(EncoderError, match="pytorch_model.bin (is damaged or )?holds"):
            readable(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cut")
    with pytest.raises(EncoderError, match="is damaged or holds more than tensors"):
        readable(folder)
    assert not (tmp_path / "ran").exists()
