"""SimCSE as a method: views, negatives, projection, the MLM term."""

import pytest
import torch

from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.losses import info_nce
from lib.methods import REGISTRY
from lib.methods.simcse import SWEEPS, variants

SimCSE = REGISTRY["simcse"]


def build(folder, dropout=0.1, pooling="mean", **arguments):
    torch.manual_seed(0)
    encoder = SentenceEncoder.from_pretrained(folder, dropout=dropout, pooling=pooling)
    return SimCSE(encoder, SimCSE.Arguments(**arguments)).train()


def test_unsupervised_is_the_same_sentence_twice(tiny_bert, sentences, batch):
    """Without dropout both views are z, and the loss is info_nce(z, z)."""
    method = build(tiny_bert, dropout=0.0)
    inputs = batch(method, sentences[:8])
    z = method.training_head(method.encoder(inputs.input_ids[:, 0], inputs.attention_mask[:, 0]))
    torch.testing.assert_close(method(inputs)["info_nce"], info_nce(z, z), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "roles",
    [("anchor", "positive", "hard_negative"), ("anchor", "hard_negative", "positive"), ("anchor", "hard_negative"),
     ("anchor", "positive")],
)  # fmt: skip
@pytest.mark.parametrize("dropout_masks", ["independent", "identical"])
def test_roles_say_what_is_a_positive_and_what_a_hard_negative(tiny_bert, sentences, batch, roles, dropout_masks):
    """Whatever the order of the columns; without a positive column, the anchor is its own positive."""
    options = {"projection": "always", "hard_negative_weight": 0.5, "dropout_masks": dropout_masks}
    method = build(tiny_bert, dropout=0.0, **options)
    texts = {"anchor": sentences[:8], "positive": sentences[8:16], "hard_negative": sentences[16:24]}
    z = {role: method.encoder(*batch(method, column).column("anchor")) for role, column in texts.items()}
    inputs = batch(method, *(texts[role] for role in roles), roles=roles)
    expected = info_nce(
        z["anchor"],
        z["positive" if "positive" in roles else "anchor"],
        hard_negatives=z["hard_negative"] if "hard_negative" in roles else None,
        hard_negative_weight=0.5,
    )
    terms = method(inputs)
    assert set(terms) == {"info_nce"}
    torch.testing.assert_close(terms["info_nce"], expected, rtol=1e-4, atol=1e-5)


def test_anchors_and_positives_are_masked_and_no_hard_negative(tiny_bert, sentences, batch):
    method = build(tiny_bert, dropout=0.0, mlm_weight=0.1)
    triples = batch(
        method, sentences[:8], sentences[8:16], sentences[16:24], roles=("anchor", "hard_negative", "positive")
    )
    columns = [triples.column(role) for role in ("anchor", "positive")]
    pairs = Batch(*(torch.stack(tensors, dim=1) for tensors in zip(*columns, strict=True)), ("anchor", "positive"))
    losses = []
    for inputs in (triples, pairs):
        torch.manual_seed(1)
        losses.append(method.masked_lm(inputs))
    assert torch.equal(*losses)


def test_the_masks_of_the_two_views(tiny_bert, sentences, batch):
    for masks, equal in (("independent", False), ("identical", True)):
        method = build(tiny_bert, dropout=0.3, dropout_masks=masks)
        inputs = batch(method, sentences[:8])
        views = method.embed(inputs)
        z = views.embeddings["encoder"]
        assert views.roles == ("anchor", "positive") and z.shape == (8, 2, 32)
        assert torch.equal(z[:, 0], z[:, 1]) is equal
        assert not torch.equal(z, method.embed(inputs).embeddings["encoder"])  # new masks at every step


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


def test_tables_of_the_notebook():
    lists = [values for values, *_ in SWEEPS.values()]
    empty = dict.fromkeys([*lists, "learning_rates", "choice_epochs", "choice_batch_sizes"], [])
    taught = {"triples": "t.csv", "triples_size": 9}
    taught |= {"supervised_epochs": 3, "supervised_learning_rate": 0.1, "supervised_batch_size": 8}
    tables = variants(empty | taught | {"figure_2_steps": 0})
    assert {name for name, rows in tables.items() if rows} == {"supervised"}
    given = {"dropout_rates": [0.0], "hard_negative_weights": [0.5], "learning_rates": [1e-5, 1e-3]}
    given |= {"choice_epochs": [2], "choice_batch_sizes": [16], "figure_2_steps": 10}
    tables = variants(empty | taught | given)
    assert [*tables["Table 3"]] == ["dropout 0.0", "identical masks, dropout 0.1"] and not tables["Table 1"]
    assert tables["Table 7"] == {"α = 0.5": tables["supervised"]["given"] | {"hard_negative_weight": 0.5}}
    assert [*tables["choice"]] == ["rate 1e-05, epochs 2, batch_size 16", "rate 0.001, epochs 2, batch_size 16"]
    assert len(tables["Figure 2"]) == 4
