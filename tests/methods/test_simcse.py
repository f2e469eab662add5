"""SimCSE as a method: views, negatives, projection, the MLM term."""

import pytest
import torch

from lib.config import ConfigError
from lib.encoder import SentenceEncoder
from lib.losses import info_nce
from lib.methods import REGISTRY

SimCSE = REGISTRY["simcse"]


def build(folder, dropout=0.1, pooling="mean", **arguments):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(folder, dropout=dropout, pooling=pooling)
    return SimCSE(encoder, SimCSE.Arguments(**arguments)).train()


def batch(method, *columns):
    rows = [s for row in zip(*columns, strict=True) for s in row]
    ids = method.encoder.tokenizer(rows, padding=True, return_tensors="pt")
    return {k: ids[k].view(len(columns[0]), len(columns), -1) for k in ("input_ids", "attention_mask")}


def test_unsupervised_is_the_same_sentence_twice(tiny_bert, sentences):
    """Without dropout both views are z, and the loss is info_nce(z, z)."""
    method = build(tiny_bert, dropout=0.0)
    inputs = batch(method, sentences[:8])
    z = method.training_head(method.encoder(inputs["input_ids"][:, 0], inputs["attention_mask"][:, 0]))
    torch.testing.assert_close(method(inputs)["info_nce"], info_nce(z, z), rtol=1e-4, atol=1e-5)


def test_supervised_takes_the_third_column_as_hard_negatives(tiny_bert, sentences):
    method = build(tiny_bert, dropout=0.0, projection="always", hard_negative_weight=0.5)
    columns = sentences[:8], sentences[8:16], sentences[16:24]
    z = [method.encoder(*(v[:, 0] for v in batch(method, c).values())) for c in columns]
    expected = info_nce(z[0], z[1], hard_negatives=z[2], hard_negative_weight=0.5)
    torch.testing.assert_close(method(batch(method, *columns))["info_nce"], expected, rtol=1e-4, atol=1e-5)


def test_the_masks_of_the_two_views(tiny_bert, sentences):
    inputs = None
    for masks, equal in (("independent", False), ("identical", True)):
        method = build(tiny_bert, dropout=0.3, dropout_masks=masks)
        inputs = batch(method, sentences[:8])
        two = {k: v.repeat(1, 2, 1) for k, v in inputs.items()}
        z = method.embed(two["input_ids"], two["attention_mask"])
        assert torch.equal(z[:, 0], z[:, 1]) is equal
        assert not torch.equal(z, method.embed(two["input_ids"], two["attention_mask"]))  # new masks at every step


@pytest.mark.parametrize(
    "projection, in_method, in_encoder",
    [("train_only", True, False), ("always", False, True), ("none", False, False)],
)
def test_where_the_projection_lives(tiny_bert, projection, in_method, in_encoder):
    method = build(tiny_bert, projection=projection)
    assert (method.training_head is not None) is in_method
    assert (method.encoder.projection is not None) is in_encoder
    saved = {k for k in method.encoder.state_dict() if k.startswith("projection")}
    assert bool(saved) is in_encoder


def test_mlm_term_is_weighted_and_switched_off_by_its_weight(tiny_bert, sentences):
    inputs = batch(build(tiny_bert), sentences[:8])
    assert set(build(tiny_bert)(inputs)) == {"info_nce"}
    terms = {}
    for weight in (0.1, 1.0):
        method = build(tiny_bert, dropout=0.0, mlm_weight=weight)
        torch.manual_seed(1)
        terms[weight] = method(inputs)["mlm"]
    torch.testing.assert_close(terms[1.0], 10 * terms[0.1])
    terms[1.0].backward()
    decoder = method.mlm_head.predictions.decoder.weight
    assert decoder.grad is not None and decoder is not method.encoder.backbone.embeddings.word_embeddings.weight


def test_mlm_needs_a_pretrained_head(tiny_roberta):
    with pytest.raises(ConfigError, match="MLM head"):
        build(tiny_roberta, mlm_weight=0.1)


def test_learns_from_roberta_too(tiny_roberta, sentences):
    method = build(tiny_roberta, dropout=0.05)
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        loss = method(batch(method, sentences[:32]))["info_nce"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
