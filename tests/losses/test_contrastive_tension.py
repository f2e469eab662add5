"""contrastive_tension against an obvious loop and hand-computed values."""

import math

import pytest
import torch

from lib.losses import contrastive_tension


def loop_reference(z1, z2, negatives):
    z1, z2 = z1.tolist(), z2.tolist()
    losses = []
    for i in range(len(z1)):
        for step in range(min(negatives, len(z1) - 1) + 1):
            other = z2[(i + step) % len(z1)]
            probability = 1 / (1 + math.exp(-sum(x * y for x, y in zip(z1[i], other, strict=True))))
            losses.append(-math.log(probability if step == 0 else 1 - probability))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("n, negatives", [(1, 7), (2, 7), (6, 7), (12, 7), (12, 1), (12, 0)])
def test_equals_the_loop(n, negatives):
    z1, z2 = torch.randn(2, n, 5, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    found = contrastive_tension(z1, z2, negatives=negatives)
    assert found.item() == pytest.approx(loop_reference(z1, z2, negatives), rel=1e-9)


def test_hand_value():
    """Dot product 1 with itself, 0 with the other sentence."""
    z = torch.eye(2)
    expected = (math.log(1 + math.exp(-1)) + math.log(2)) / 2
    assert contrastive_tension(z, z).item() == pytest.approx(expected)


def test_large_dot_products_stay_finite():
    z = torch.full((4, 2), 100.0, requires_grad=True)
    loss = contrastive_tension(z, z)
    loss.backward()
    assert loss.item() == pytest.approx(20000 * 3 / 4) and z.grad.isfinite().all()
