"""miCSE: the denominator, and the momentum queue, which ESimCSE has too."""

import pytest
import torch

from lib.losses import info_nce, positives_only
from tests.methods.conftest import builder, run

# everything off but InfoNCE; both layers of the tiny backbones
build = builder("micse", dropout=0.1, min_layer=0, max_layer=2, ami_weight=0.0, queue_size=0)


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("negatives", ["in_batch", "own_view"])
def test_the_denominator(tiny_bert, sentences, included, negatives, batch):
    method = build(tiny_bert, positive_in_denominator=included, negatives=negatives)
    views, terms = run(method, batch(method, sentences[:8]))
    expected = info_nce(*views.by_role().values(), include_positive=included, own_view=negatives == "own_view")
    assert torch.equal(terms["info_nce"], expected)
    method = build(tiny_bert, negatives="none", temperature=0.1)
    views, terms = run(method, batch(method, sentences[:8]))
    assert torch.equal(terms["info_nce"], positives_only(*views.by_role().values(), temperature=0.1))


QUEUES = [
    *(("micse", size, {"ami_weight": 0.0}) for size in (10, 3)),
    *(("esimcse", 10, {"projection": projection}) for projection in ("train_only", "none", "always")),
]


@pytest.mark.parametrize("name, size, options", QUEUES)
def test_the_queue_holds_the_slow_vectors_of_the_anchors_of_earlier_steps(
    tiny_bert, sentences, batch, shake, name, size, options
):
    """Read through the head as it is now; a full queue loses the oldest."""
    method = builder(name, queue_size=size, momentum=0.9, momentum_dropout=0.0, **options)(tiny_bert, dropout=0.1)
    slow, kept = {k: v.clone() for k, v in method.encoder.state_dict().items()}, torch.zeros(0, 32)
    head = method.training_head or torch.nn.Identity()
    for step in range(4):
        inputs = batch(method, sentences[4 * step : 4 * step + 4])
        views, terms = run(method, inputs)
        z = views.by_role()
        expected = info_nce(z["anchor"], z["positive"], queue=kept)
        torch.testing.assert_close(terms["info_nce"], expected, rtol=1e-4, atol=1e-5)
        shake(method.encoder)
        shake(head)
        method.after_step()
        fast = {k: v.clone() for k, v in method.encoder.state_dict().items()}
        slow = {k: 0.9 * v + 0.1 * fast[k] if v.is_floating_point() else v for k, v in slow.items()}
        method.encoder.load_state_dict(slow)
        kept = torch.cat([kept, head(method.encoder.eval()(*inputs.column("anchor"))).detach()])[-size:]
        method.encoder.train().load_state_dict(fast)
        torch.testing.assert_close(method.queue.negatives(), kept, rtol=1e-4, atol=1e-5)
    assert len(kept) == size and not method.queue.negatives().requires_grad


def test_the_copy_is_not_trained_and_has_its_own_dropout(tiny_bert):
    method = build(tiny_bert, queue_size=8, momentum_dropout=0.25)
    rates = [{m.p for m in x.modules() if isinstance(m, torch.nn.Dropout)} for x in (method.queue, method.encoder)]
    assert rates == [{0.25}, {0.1}]
    copied = list(method.queue.parameters())
    assert not any(p.requires_grad for p in copied)
    assert len(copied) == len(list(method.encoder.parameters()))  # no head of its own
