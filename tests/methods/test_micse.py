"""miCSE: the denominator, the attention term, the momentum queue."""

from functools import partial

import pytest
import torch

from lib.config import RunConfig
from lib.losses import info_nce, positives_only
from tests.methods.conftest import build as build_method

# everything off but InfoNCE; both layers of the tiny backbones
build = partial(build_method, "micse", dropout=0.1, min_layer=0, max_layer=2, ami_weight=0.0, queue_size=0)


def run(method, inputs, seed=1):
    """Terms, and the two views that the loss saw."""
    views = []
    handle = method.training_head.register_forward_hook(lambda module, args, z: views.append(z))
    torch.manual_seed(seed)
    terms = method(inputs)
    handle.remove()
    return terms, *views[0].unbind(1)


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("negatives", ["in_batch", "own_view"])
def test_the_denominator(tiny_bert, sentences, included, negatives, batch):
    method = build(tiny_bert, positive_in_denominator=included, negatives=negatives)
    terms, z1, z2 = run(method, batch(method, sentences[:8]))
    expected = info_nce(z1, z2, include_positive=included, own_view=negatives == "own_view")
    assert torch.equal(terms["info_nce"], expected)
    method = build(tiny_bert, negatives="none", temperature=0.1)
    terms, z1, z2 = run(method, batch(method, sentences[:8]))
    assert torch.equal(terms["info_nce"], positives_only(z1, z2, temperature=0.1))


def test_the_attention_term_trains_the_layers_it_reads_and_those_below(tiny_bert, sentences, batch):
    method = build(tiny_bert, ami_weight=1.0, min_layer=0, max_layer=1, slicing="head_pairs")
    run(method, batch(method, sentences[:8]))[0]["ami"].backward()
    first, second = method.encoder.backbone.encoder.layer
    assert first.attention.self.query.weight.grad.any() and first.attention.self.key.weight.grad.any()
    assert method.encoder.backbone.embeddings.word_embeddings.weight.grad.any()
    assert second.attention.self.query.weight.grad is None and method.training_head[0].weight.grad is None


@pytest.mark.parametrize("size, filled", [(10, [0, 4, 8, 10, 10]), (3, [0, 3, 3, 3, 3])])
def test_the_queue_fills_then_the_oldest_rows_go(tiny_bert, sentences, size, filled, batch, shake):
    method = build(tiny_bert, queue_size=size, momentum=1.0, momentum_dropout=0.0)
    start = {k: v.clone() for k, v in method.encoder.state_dict().items()}
    embedded, lengths = [], []
    for step in range(5):
        inputs = batch(method, sentences[4 * step : 4 * step + 4])
        lengths.append(len(method.queue.negatives()))
        method(inputs)
        shake(method.encoder)
        shake(method.training_head)
        method.after_step()
        trained = {k: v.clone() for k, v in method.encoder.state_dict().items()}
        method.encoder.load_state_dict(start)  # momentum 1: the copy never moves
        z = method.encoder.eval()(*inputs.column("anchor"))
        embedded.append(method.training_head(z))  # the head as it is now
        method.encoder.load_state_dict(trained)
        method.train()
        torch.testing.assert_close(method.queue.negatives(), torch.cat(embedded)[-size:], rtol=1e-4, atol=1e-5)
    assert lengths == filled
    assert not method.queue.negatives().requires_grad


def test_the_queue_holds_more_negatives_of_the_first_view(tiny_bert, sentences, batch):
    method = build(tiny_bert, queue_size=16)
    for step in range(3):
        inputs = batch(method, sentences[8 * step : 8 * step + 8])
        queue = method.queue.negatives().clone()
        terms, z1, z2 = run(method, inputs)
        method.after_step()
        assert len(queue) == 8 * step
        torch.testing.assert_close(terms["info_nce"], info_nce(z1, z2, queue=queue))


def test_the_copy_is_not_trained_and_has_its_own_dropout(tiny_bert, sentences, batch):
    method = build(tiny_bert, queue_size=8, momentum_dropout=0.25)
    rates = [{m.p for m in x.modules() if isinstance(m, torch.nn.Dropout)} for x in (method.queue, method.encoder)]
    assert rates == [{0.25}, {0.1}]
    sum(method(batch(method, sentences[:8])).values()).backward()
    copied = list(method.queue.parameters())
    assert all(p.grad is None and not p.requires_grad for p in copied)
    groups = method.parameter_groups(RunConfig())
    trained = {id(p) for group in groups for p in group["params"]}
    assert trained == {id(p) for p in [*method.encoder.parameters(), *method.training_head.parameters()]}
    assert len(copied) == len(list(method.encoder.parameters()))  # no head of its own
