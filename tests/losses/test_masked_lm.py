import math

import pytest
import torch

from lib.losses import mask_tokens, masked_lm


def test_rule_80_10_10_and_special_tokens_stay():
    ids = torch.full((400, 100), 7)
    maskable = torch.ones_like(ids, dtype=torch.bool)
    maskable[:, 0] = False
    masked, labels = mask_tokens(
        ids, maskable, mask_id=3, vocabulary_size=1000, generator=torch.Generator().manual_seed(0)
    )
    chosen = labels != -100
    assert not chosen[:, 0].any() and (masked[:, 0] == 7).all()
    assert (masked[~chosen] == 7).all() and (labels[chosen] == 7).all()
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert (masked[chosen] == 3).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (masked[chosen] == 7).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_loss_is_the_mean_over_chosen_tokens():
    logits = torch.randn(2, 3, 5)
    labels = torch.tensor([[1, -100, 4], [-100, -100, 0]])
    each = [-math.log(torch.softmax(logits[i, j], 0)[labels[i, j]]) for i, j in [(0, 0), (0, 2), (1, 2)]]
    assert masked_lm(logits, labels).item() == pytest.approx(sum(each) / 3, rel=1e-5)


def test_nothing_chosen_is_zero_with_a_gradient():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    loss = masked_lm(logits, torch.full((2, 3), -100))
    loss.backward()
    assert loss.item() == 0 and (logits.grad == 0).all()


def test_whole_words_are_chosen_together():
    ids = torch.randint(5, 1000, (300, 40), generator=torch.Generator().manual_seed(0))
    continues = torch.rand(300, 40, generator=torch.Generator().manual_seed(1)) < 0.4
    continues[:, :2] = False
    maskable = torch.ones_like(continues)
    maskable[:, 0] = False
    _, labels = mask_tokens(
        ids, maskable, mask_id=3, vocabulary_size=1000, continues=continues,
        generator=torch.Generator().manual_seed(2),
    )  # fmt: skip
    chosen = labels != -100
    for row in range(300):
        for j in range(1, 40):
            if continues[row, j]:
                assert chosen[row, j] == chosen[row, j - 1]
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.02)
    assert not chosen[:, 0].any()


def test_mask_only_hides_the_very_tokens_of_the_other_rule():
    ids = torch.full((50, 40), 7)
    results = [
        mask_tokens(
            ids, torch.ones_like(ids, dtype=torch.bool), mask_id=3, vocabulary_size=1000, mask_only=mask_only,
            generator=torch.Generator().manual_seed(0),
        )
        for mask_only in (False, True)
    ]  # fmt: skip
    (_, labels), (masked, same_labels) = results
    assert torch.equal(labels, same_labels)
    assert torch.equal(masked == 3, labels != -100)


def test_the_sum_is_the_mean_times_the_chosen_tokens():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, -100, 4], [-100, -100, 0]])
    torch.testing.assert_close(masked_lm(logits, labels, reduction="sum"), 3 * masked_lm(logits, labels))
    assert masked_lm(logits, torch.full((2, 3), -100), reduction="sum") == 0
