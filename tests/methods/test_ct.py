"""Contrastive Tension: two encoders that start equal, and the term between them."""

import pytest
import torch

from lib.losses import contrastive_tension
from tests.methods.conftest import build


def test_the_encoders_start_equal_share_nothing_and_are_both_trained(tiny_bert, sentences, batch):
    method = build("ct", tiny_bert, pooling="mean")
    pairs = list(zip(method.encoder.parameters(), method.twin.parameters(), strict=True))
    assert all(torch.equal(first, second) and first is not second for first, second in pairs)
    method(batch(method, sentences[:8]))["contrastive_tension"].backward()
    for encoder in (method.encoder, method.twin):
        assert encoder.backbone.embeddings.word_embeddings.weight.grad.any()
        assert all(layer.attention.self.value.weight.grad.any() for layer in encoder.backbone.encoder.layer)


@pytest.mark.parametrize("negatives", [7, 2])
def test_the_term_is_the_loss_between_the_two_encoders(backbone, negatives, sentences, batch, shake):
    method = build("ct", backbone, pooling="mean", negatives_per_sentence=negatives)
    shake(method.twin)
    inputs = batch(method, sentences[:10])
    z1, z2 = (encoder(*inputs.column("anchor")) for encoder in (method.encoder, method.twin))
    terms = method(inputs)
    assert set(terms) == {"contrastive_tension"}
    expected = contrastive_tension(z1, z2, negatives=negatives)
    torch.testing.assert_close(terms["contrastive_tension"], expected)
    assert abs(expected - contrastive_tension(z2, z1, negatives=negatives)) > 1e-5  # the first encoder looks
