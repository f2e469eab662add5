"""Contrastive Tension as a method: two encoders that start equal, and the attention term between them."""

import pytest
import torch

from lib.encoders import SentenceEncoder
from lib.losses import contrastive_tension
from lib.methods import REGISTRY

CT = REGISTRY["ct"]


def build(folder, dropout=0.1, pooling="mean", **arguments):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(folder, dropout=dropout, pooling=pooling)
    return CT(encoder, CT.Arguments(**({"min_layer": 0, "max_layer": 2} | arguments))).train()


def test_the_encoders_start_equal_share_nothing_and_are_both_trained(tiny_bert, sentences, batch):
    method = build(tiny_bert, dropout=0.0)
    pairs = list(zip(method.encoder.parameters(), method.twin.parameters(), strict=True))
    assert all(torch.equal(first, second) and first is not second for first, second in pairs)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    method(batch(method, sentences[:8]))["contrastive_tension"].backward()
    for encoder in (method.encoder, method.twin):
        assert encoder.backbone.embeddings.word_embeddings.weight.grad.any()
        assert all(layer.attention.self.value.weight.grad.any() for layer in encoder.backbone.encoder.layer)
    optimizer.step()
    assert not torch.equal(method.encoder.backbone.encoder.layer[0].attention.self.value.weight,
                           method.twin.backbone.encoder.layer[0].attention.self.value.weight)  # fmt: skip


@pytest.mark.parametrize("backbone", ["tiny_bert", "tiny_roberta"])
@pytest.mark.parametrize("negatives", [7, 2])
def test_the_term_is_the_loss_between_the_two_encoders(backbone, negatives, request, sentences, batch, shake):
    method = build(request.getfixturevalue(backbone), dropout=0.0, negatives_per_sentence=negatives)
    shake(method.twin)
    inputs = batch(method, sentences[:10])
    z1, z2 = (encoder(*inputs.column("anchor")) for encoder in (method.encoder, method.twin))
    terms = method(inputs)
    assert set(terms) == {"contrastive_tension"}
    expected = contrastive_tension(z1, z2, negatives=negatives)
    torch.testing.assert_close(terms["contrastive_tension"], expected)
    assert abs(expected - contrastive_tension(z2, z1, negatives=negatives)) > 1e-5  # the first encoder looks
