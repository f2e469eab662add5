"""Operations counted by hand, and encoders without their last LayerNorms."""

import pytest
import torch

from lib.analysis import cost
from lib.checks import EncoderError
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum


@pytest.mark.parametrize("length", [8, 20])
def test_multiply_accumulates_are_those_of_the_matrix_products(tiny_bert, length):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    linear = 4 * 32 * 32 + 2 * 32 * 64  # query, key, value, output, and the feed-forward part, per token and layer
    attention = 2 * length * 32  # scores and weighted values, per token and layer
    expected = 2 * length * (linear + attention) / 1e9
    assert cost.multiply_accumulates(encoder, length) == pytest.approx(expected)
    assert cost.multiply_accumulates(EncoderSum([encoder, encoder]), length) == pytest.approx(2 * expected)


def test_without_layer_norms_only_the_last_layers_change(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert).eval()
    before = encoder.encode(sentences[:4])
    stripped = cost.without_layer_norms(encoder, 1)
    ids = encoder.tokenizer(sentences[:1], return_tensors="pt")
    with torch.no_grad():
        original, changed = (e.backbone(**ids, output_hidden_states=True).hidden_states for e in (encoder, stripped))
        layer = encoder.backbone.encoder.layer[1]
        attended = layer.attention.self(original[1])[0]
        residual = layer.attention.output.dense(attended) + original[1]
        expected = layer.output.dense(layer.intermediate(residual)) + residual
    assert torch.equal(original[1], changed[1])
    torch.testing.assert_close(changed[2], expected)
    assert abs(before - encoder.encode(sentences[:4])).max() == 0  # the encoder itself is as before
    both = cost.without_layer_norms(EncoderSum([encoder, encoder]), 1).encode(sentences[:4])
    assert abs(both - 2 * stripped.encode(sentences[:4])).max() < 1e-5
    assert abs(cost.without_layer_norms(encoder, 0).encode(sentences[:4]) - before).max() == 0
    with pytest.raises(EncoderError, match="has 2"):
        cost.without_layer_norms(encoder, 3)
