import math

import pytest
import torch

from lib.losses import token_reconstruction


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, 6, (3, 4), generator=generator)
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    return logits, ids, valid


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_equals_the_loop_over_the_tokens(reduce):
    logits, ids, valid = draw()
    total, count = 0.0, 0
    for i in range(3):
        for j in range(4):
            if valid[i, j]:
                row = logits[i, j].tolist()
                total -= row[ids[i, j]] - math.log(sum(math.exp(x) for x in row))
                count += 1
    expected = total / count if reduce == "mean" else total
    loss = token_reconstruction(logits[valid], ids[valid], reduce=reduce)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_by_hand():
    """Two tokens, given probabilities 1/2 and 1/8."""
    logits = torch.tensor([[0.5, 0.5], [1 / 8, 7 / 8]]).log()
    ids = torch.tensor([1, 0])
    assert token_reconstruction(logits, ids).item() == pytest.approx(2 * math.log(2))
    assert token_reconstruction(logits, ids, reduce="sum").item() == pytest.approx(4 * math.log(2))


def test_an_empty_text_has_no_loss():
    logits, ids, _ = draw()
    assert token_reconstruction(logits[:0], ids[:0]).item() == 0
