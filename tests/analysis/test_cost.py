"""Operations counted by hand, and encoders without their last LayerNorms."""

import pytest
import torch

from lib.analysis import cost
from lib.checks import EncoderError
from lib.encoders import SentenceEncoder, ensemble
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


def test_encoders_that_embed_differently_have_different_fingerprints(tiny_bert, sentences):
    """Scores are kept under the fingerprint: two of these with the same one would share a number."""
    one, two = SentenceEncoder.from_pretrained(tiny_bert), SentenceEncoder.from_pretrained(tiny_bert, pooling="mean")
    twins = EncoderSum([one, two])
    variants = [cost.without_layer_norms(encoder, n) for encoder in (one, two, twins) for n in range(3)]
    variants += [ensemble.with_pooling(encoder, "first_last_mean") for encoder in (one, twins)]
    variants += [ensemble.merge([twins, one], weights) for weights in ([0.3, 0.7], [0.7, 0.3])]
    vectors = [encoder.encode(sentences[:4]) for encoder in variants]
    assert len({encoder.fingerprint() for encoder in variants}) == len(variants) == 13
    assert all(abs(a - b).max() > 1e-4 for i, a in enumerate(vectors) for b in vectors[:i])
    assert cost.without_layer_norms(one, 0).fingerprint() == one.fingerprint()
    assert ensemble.with_pooling(two, "cls").fingerprint() == one.fingerprint()


class Linear(torch.nn.Module):
    """A method of one matrix, whose costs can be counted by hand."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 3))
        self.unused = torch.nn.Parameter(torch.ones(100))

    def forward(self, batch):
        return {"one": (batch @ self.weight).sum(), "two": (batch @ self.weight).square().mean()}

    def after_step(self):
        pass


def test_a_training_step_by_hand():
    found = cost.training_step(Linear(), torch.ones(4, 8), repeats=1)
    product = 4 * 8 * 3  # forward twice, and the gradient of the weight twice; the batch has none
    assert found["operations"] == pytest.approx(4 * product / 1e9)
    assert found["kept"] == pytest.approx((4 * 8 + 4 * 3) * 4 / 2**20)  # the batch once, and what is squared
    assert found["trained"] == pytest.approx(24 / 1e6) and found["seconds"] > 0
