"""Backbones without their last LayerNorms: what is left, and the same encoder on disk."""

import numpy as np
import pytest
import torch

from lib.checks import EncoderError
from lib.encoders import SentenceEncoder
from lib.encoders.layer_norms import MARK, remove_layer_norms
from tests.conftest import rewrite


def without(folder, layers):
    encoder = SentenceEncoder.from_pretrained(folder).eval()
    remove_layer_norms(encoder.backbone, layers)
    return encoder


def test_a_layer_without_them_is_the_sum_of_what_comes_in_and_what_it_computes(tiny_bert, sentences):
    encoder, stripped = SentenceEncoder.from_pretrained(tiny_bert).eval(), without(tiny_bert, 1)
    ids = encoder.tokenizer(sentences[:1], return_tensors="pt")
    with torch.no_grad():
        original, changed = (e.backbone(**ids, output_hidden_states=True).hidden_states for e in (encoder, stripped))
        layer = encoder.backbone.encoder.layer[1]
        attended = layer.attention.self(original[1])[0]
        residual = layer.attention.output.dense(attended) + original[1]
        expected = layer.output.dense(layer.intermediate(residual)) + residual
    assert torch.equal(original[1], changed[1])
    torch.testing.assert_close(changed[2], expected)
    vector = stripped.encode(sentences[:1])[0]  # the fast forward pass gives the same
    np.testing.assert_allclose(vector, expected[0, 0].numpy(), atol=1e-4)


def test_each_number_of_them_has_a_fingerprint_and_other_weights_that_are_missing_are_still_found(tiny_bert, tmp_path):
    """Scores are kept under it; a folder that says 1 and lacks those of both layers is incomplete."""
    without(tiny_bert, 2).save(tmp_path / "saved")
    rewrite(tmp_path / "saved", "config.json", {MARK: 1})
    with pytest.raises(EncoderError, match="it lacks 4 of its weights, the first is encoder.layer.0"):
        SentenceEncoder.from_pretrained(tmp_path / "saved")
    (encoder := without(tiny_bert, 1)).save(tmp_path / "one")
    assert SentenceEncoder.from_pretrained(tmp_path / "one").fingerprint() == encoder.fingerprint()
    assert len({without(tiny_bert, layers).fingerprint() for layers in range(3)}) == 3
    assert without(tiny_bert, 0).fingerprint() == SentenceEncoder.from_pretrained(tiny_bert).fingerprint()
