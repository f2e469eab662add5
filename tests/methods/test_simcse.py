"""SimCSE and InforMin-CL: views, negatives, projection, the MLM term, what InforMin-CL adds."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from lib.data import Batch
from lib.losses import info_nce, mutual_reconstruction
from tests.methods.conftest import build


@pytest.mark.parametrize(
    "roles",
    [("anchor", "positive", "hard_negative"), ("anchor", "hard_negative", "positive"), ("anchor", "hard_negative"),
     ("anchor", "positive"), ("anchor",)],
)  # fmt: skip
@pytest.mark.parametrize("dropout_masks", ["independent", "identical"])
def test_roles_say_what_is_a_positive_and_what_a_hard_negative(tiny_bert, sentences, batch, roles, dropout_masks):
    """Whatever the order of the columns; without a positive column, the anchor is its own positive."""
    options = {"projection": "always", "hard_negative_weight": 0.5, "dropout_masks": dropout_masks}
    method = build("simcse", tiny_bert, pooling="mean", **options)
    texts = {"anchor": sentences[:8], "positive": sentences[8:16], "hard_negative": sentences[16:24]}
    z = {role: method.encoder(*batch(method, column).column("anchor")) for role, column in texts.items()}
    inputs = batch(method, *(texts[role] for role in roles), roles=roles)
    positive = z["positive" if "positive" in roles else "anchor"]
    negatives = z["hard_negative"] if "hard_negative" in roles else None
    expected = info_nce(z["anchor"], positive, hard_negatives=negatives, hard_negative_weight=0.5)
    terms = method(inputs)
    assert set(terms) == {"info_nce"}
    torch.testing.assert_close(terms["info_nce"], expected, rtol=1e-4, atol=1e-5)


def test_anchors_and_positives_are_masked_and_no_hard_negative(tiny_bert, sentences, batch):
    method = build("simcse", tiny_bert, pooling="mean", mlm_weight=0.1)
    columns = sentences[:8], sentences[8:16], sentences[16:24]
    triples = batch(method, *columns, roles=("anchor", "hard_negative", "positive"))
    columns = [triples.column(role) for role in ("anchor", "positive")]
    pairs = Batch(*(torch.stack(tensors, dim=1) for tensors in zip(*columns, strict=True)), ("anchor", "positive"))
    losses = []
    for inputs in (triples, pairs):
        torch.manual_seed(1)
        losses.append(method.masked_lm(inputs))
    assert torch.equal(*losses)


def test_the_masks_of_the_two_views(tiny_bert, sentences, batch):
    for masks, equal in (("independent", False), ("identical", True)):
        method = build("simcse", tiny_bert, pooling="mean", dropout=0.3, dropout_masks=masks)
        inputs = batch(method, sentences[:8])
        views = method.embed(inputs)
        z = views.embeddings["encoder"]
        assert views.roles == ("anchor", "positive") and z.shape == (8, 2, 32)
        assert torch.equal(z[:, 0], z[:, 1]) is equal
        assert not torch.equal(z, method.embed(inputs).embeddings["encoder"])  # new masks at every step


@pytest.mark.parametrize("roles", [("anchor",), ("positive", "anchor", "hard_negative")])
def test_the_backbones_mlm_writes_other_words_into_the_positive_alone(bert, sentences, batch, roles):
    method, mlm = build("simcse", bert, replacement_rate=0.3), AutoModelForMaskedLM.from_pretrained(bert).eval()
    inputs = batch(method, *(sentences[i : 8 + i] for i in range(len(roles))), roles=roles)
    given = inputs.input_ids.clone()
    torch.manual_seed(1)
    views = method.embed(inputs)
    torch.manual_seed(1)
    of = {role: inputs.column(role if role in roles else "anchor") for role in views.roles}
    ids, mask = of["positive"]
    masked, _ = method.replacement.masking(ids, mask)
    chosen = masked == method.encoder.tokenizer.mask_token_id
    guessed = torch.where(chosen, mlm(input_ids=masked, attention_mask=mask).logits.argmax(-1), ids)
    of["positive"] = guessed, mask
    for role, z in views.by_role().items():
        torch.testing.assert_close(z, method.encoder(*of[role]), rtol=1e-4, atol=1e-5)
    assert torch.equal(masked[~chosen], ids[~chosen]) and (guessed != ids).any()
    assert torch.equal(inputs.input_ids, given)
    assert not any(parameter.requires_grad for parameter in method.replacement.parameters())
    assert not any(module.training for module in method.train().replacement.modules())


@pytest.mark.parametrize("projection", ["none", "train_only"])
def test_informin_cl_rebuilds_the_raw_vectors_or_the_projected_ones(tiny_bert, sentences, batch, projection):
    method = build("informin_cl", tiny_bert, projection=projection, forgetting_weight=3.0, forgetting_reduce="sum")
    inputs = batch(method, sentences[:8], sentences[8:16], roles=("anchor", "positive"))
    z = [method.encoder(*inputs.column(role)) for role in inputs.roles]
    z = [x if method.training_head is None else method.training_head(x) for x in z]
    terms = method(inputs)
    torch.testing.assert_close(terms["info_nce"], info_nce(*z), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["forgetting"], 3 * mutual_reconstruction(*z, reduce="sum"), rtol=1e-4, atol=1e-5)
