"""info_nce against an obvious loop, a hand-computed value, and its invariances."""

import math

import pytest
import torch

from lib.losses import info_nce


def loop_reference(z1, z2, temperature, hard=None, alpha=1.0, queue=None, include_positive=True):
    """The equation, written as loops over Python floats."""

    def cos(u, v):
        dot = sum(a * b for a, b in zip(u, v, strict=True))
        return dot / math.sqrt(sum(a * a for a in u)) / math.sqrt(sum(b * b for b in v))

    z1, z2 = z1.tolist(), z2.tolist()
    total = 0.0
    for i in range(len(z1)):
        denominator = 0.0
        for j in range(len(z2)):
            if include_positive or j != i:
                denominator += math.exp(cos(z1[i], z2[j]) / temperature)
            if hard is not None:
                weight = alpha if i == j else 1.0
                denominator += weight * math.exp(cos(z1[i], hard.tolist()[j]) / temperature)
        for q in [] if queue is None else queue.tolist():
            denominator += math.exp(cos(z1[i], q) / temperature)
        total -= math.log(math.exp(cos(z1[i], z2[i]) / temperature) / denominator)
    return total / len(z1)


@pytest.mark.parametrize("n, d", [(2, 3), (7, 16)])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("hard, alpha", [(False, 1.0), (True, 1.0), (True, 0.5), (True, 0.0)])
@pytest.mark.parametrize("queued", [0, 5])
@pytest.mark.parametrize("include_positive", [True, False])
def test_equals_the_loop(n, d, temperature, hard, alpha, queued, include_positive):
    random = torch.Generator().manual_seed(n)
    z1, z2, negatives = torch.randn(3, n, d, generator=random, dtype=torch.float64)
    queue = torch.randn(queued, d, generator=random, dtype=torch.float64) if queued else None
    options = {"queue": queue, "include_positive": include_positive}
    negatives = negatives if hard else None
    found = info_nce(z1, z2, temperature=temperature, hard_negatives=negatives, hard_negative_weight=alpha, **options)
    expected = loop_reference(z1, z2, temperature, hard=negatives, alpha=alpha, **options)
    assert found.item() == pytest.approx(expected, rel=1e-9)


def test_hand_value():
    """Orthogonal pairs, temperature 1: every row is -log(e / (e + 1))."""
    z = torch.eye(2)
    assert info_nce(z, z, temperature=1.0).item() == pytest.approx(math.log(1 + math.exp(-1)))


def test_all_equal_rows_give_log_n():
    z = torch.ones(8, 4)
    assert info_nce(z, z).item() == pytest.approx(math.log(8), rel=1e-5)


def test_invariant_to_scale_rotation_and_joint_permutation():
    z1, z2, negatives = torch.randn(3, 6, 5, dtype=torch.float64)
    loss = info_nce(z1, z2, hard_negatives=negatives)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    order = torch.randperm(6)
    torch.testing.assert_close(info_nce(3 * z1, 0.1 * z2, hard_negatives=negatives), loss)
    torch.testing.assert_close(info_nce(z1 @ rotation, z2 @ rotation, hard_negatives=negatives @ rotation), loss)
    torch.testing.assert_close(info_nce(z1[order], z2[order], hard_negatives=negatives[order]), loss)


def test_direction_matters():
    """Only rows of the first argument look for partners: exchanging the views changes the loss."""
    z1, z2 = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
    assert abs(info_nce(z1, z2) - info_nce(z2, z1)) > 1e-3


def test_gradient_is_right():
    z1, z2, negatives = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    function = lambda a, b, c: info_nce(a, b, temperature=0.5, hard_negatives=c, hard_negative_weight=2.0)  # noqa: E731
    assert torch.autograd.gradcheck(function, (z1, z2, negatives))


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"hard_negative_weight": -1.0}, {"hard_negatives": torch.zeros(3, 3)}]
)
def test_refuses_what_makes_no_sense(options):
    with pytest.raises(ValueError):
        info_nce(torch.randn(4, 3), torch.randn(4, 3), **options)
    with pytest.raises(ValueError):
        info_nce(torch.randn(4, 3), torch.randn(5, 3))
