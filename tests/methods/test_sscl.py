"""SSCL: the negatives of the layers below the last one, and who gets gradient."""

import pytest
import torch
import torch.nn.functional as F

from lib.losses import info_nce
from tests.methods.conftest import build, run


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(("layers", "projection"), [(1, "train_only"), (3, "train_only"), (3, "always")])
def test_equals_the_loop_over_layers(bert, sentences, batch, pooling, layers, projection):
    method = build("sscl", bert, pooling=pooling, negative_layers=layers, temperature=0.1, projection=projection)
    inputs = batch(method, sentences[:6], sentences[6:12], roles=("anchor", "positive"))

    def read(role, layer):
        ids, mask = inputs.column(role)
        hidden = method.encoder.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        hidden, keep = hidden[layer], mask.unsqueeze(-1).float()
        pooled = hidden[:, 0] if pooling == "cls" else (hidden * keep).sum(1) / keep.sum(1)
        return F.normalize((method.encoder.projection or method.training_head)(pooled), dim=-1)

    z1, z2 = read("anchor", -1), read("positive", -1)
    logits = [z1 @ z2.T]
    for layer in range(-2, -2 - layers, -1):
        logits += [z1 @ read("anchor", layer).T, z1 @ read("positive", layer).T]
    target = torch.arange(6)
    terms = method(inputs)
    plain = F.cross_entropy(logits[0] / 0.1, target)
    torch.testing.assert_close(terms["info_nce"], plain / 2, rtol=1e-4, atol=1e-5)
    against = F.cross_entropy(torch.cat(logits, 1) / 0.1, target)
    torch.testing.assert_close(terms["layers"], against / 2, rtol=1e-4, atol=1e-5)
    assert against > plain


def test_hard_negatives_in_both_terms_and_mlm_outside_the_average(bert, sentences, batch):
    roles = ("anchor", "positive", "hard_negative")
    method = build("sscl", bert, negative_layers=1, hard_negative_weight=2.0, mlm_weight=0.5)
    method.masked_lm = lambda batch: torch.tensor(3.0)
    inputs = batch(method, sentences[:6], sentences[6:12], sentences[12:18], roles=roles)
    views, terms = run(method, inputs)
    z = views.by_role()
    below = views.embeddings["layer -2"][:, :2].flatten(0, 1)
    how = {"temperature": 0.05, "hard_negatives": z["hard_negative"], "hard_negative_weight": 2.0}
    torch.testing.assert_close(terms["info_nce"], info_nce(z["anchor"], z["positive"], **how) / 2)
    torch.testing.assert_close(terms["layers"], info_nce(z["anchor"], z["positive"], queue=below, **how) / 2)
    assert terms["layers"] > terms["info_nce"] and terms["mlm"] == 1.5


def test_equal_texts_are_left_out_of_both_terms(bert, sentences, batch):
    method = build("sscl", bert, negative_layers=1, equal_texts="left_out")
    inputs = batch(method, sentences[:3], [sentences[3]] * 2 + [sentences[4]], roles=("anchor", "positive"))
    views, terms = run(method, inputs)
    z = views.by_role()
    excluded = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    below = views.embeddings["layer -2"].flatten(0, 1)
    for name, queue in {"info_nce": None, "layers": below}.items():
        expected = info_nce(z["anchor"], z["positive"], temperature=0.05, queue=queue, excluded=excluded)
        torch.testing.assert_close(terms[name], expected / 2)


@pytest.mark.parametrize("flows", [True, False])
def test_gradient_into_the_negatives(bert, sentences, batch, flows):
    method = build("sscl", bert, layers_gradient=flows, projection="none")
    views = method.embed(batch(method, sentences[:6]))
    assert views.embeddings["layer -2"].requires_grad is flows and views.embeddings["encoder"].requires_grad
