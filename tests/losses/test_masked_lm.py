import math
from functools import partial

import pytest
import torch

from lib.losses import mask_tokens, masked_lm

mask = partial(mask_tokens, mask_id=3, vocabulary_size=1000)


def test_rule_80_10_10_and_special_tokens_stay_and_mask_only_hides_the_very_tokens():
    ids = torch.full((400, 100), 7)
    maskable = torch.ones_like(ids, dtype=torch.bool)
    maskable[:, 0] = False
    masked, labels = mask(ids, maskable, generator=torch.Generator().manual_seed(0))
    chosen = labels != -100
    assert not chosen[:, 0].any() and (masked[:, 0] == 7).all()
    assert (masked[~chosen] == 7).all() and (labels[chosen] == 7).all()
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert (masked[chosen] == 3).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (masked[chosen] == 7).float().mean().item() == pytest.approx(0.1, abs=0.02)
    hidden, same_labels = mask(ids, maskable, mask_only=True, generator=torch.Generator().manual_seed(0))
    assert torch.equal(labels, same_labels) and torch.equal(hidden == 3, chosen)


@pytest.mark.parametrize("reduction, tokens", [("mean", 3), ("sum", 1)])
def test_loss_is_the_mean_over_chosen_tokens_or_their_sum(reduction, tokens):
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, -100, 4], [-100, -100, 0]])
    each = [-math.log(torch.softmax(logits[i, j], 0)[labels[i, j]]) for i, j in [(0, 0), (0, 2), (1, 2)]]
    assert masked_lm(logits, labels, reduction=reduction).item() == pytest.approx(sum(each) / tokens, rel=1e-5)
