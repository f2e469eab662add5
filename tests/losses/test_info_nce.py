"""info_nce and positives_only against an obvious loop and hand-computed values."""

import itertools
import math

import pytest
import torch

from lib.losses import info_nce, positives_only
from tests.losses.conftest import cosine


def loop_reference(z1, z2, temperature, *, hard, alpha, queue, include_positive, own_view, margin, excluded):
    """The equation, written as loops over Python floats."""

    def wide(u, v):
        """Of a positive pair, its angle widened to at most 180 degrees."""
        return math.cos(min(math.pi, math.acos(cosine(u, v)) + math.radians(margin)))

    z1, z2, hard, queue, excluded = (None if z is None else z.tolist() for z in (z1, z2, hard, queue, excluded))
    total, n = 0.0, len(z1)
    for i in range(len(z1)):
        denominator = 0.0
        for j in range(len(z2)):
            if include_positive if j == i else not (excluded and excluded[i][j]):
                near = wide(z1[i], z2[i]) if j == i else cosine(z1[i], (z1 if own_view else z2)[j])
                denominator += math.exp(near / temperature)
            for k, negatives in enumerate(hard or [], start=1):  # of each row the first, the second, ...
                if not (excluded and excluded[i][k * n + j]):
                    denominator += (alpha if i == j else 1.0) * math.exp(cosine(z1[i], negatives[j]) / temperature)
        for q in queue or []:
            denominator += math.exp(cosine(z1[i], q) / temperature)
        total -= math.log(math.exp(wide(z1[i], z2[i]) / temperature) / denominator)
    return total / n


@pytest.mark.parametrize("n, d", [(2, 3), (7, 16)])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("hard, alpha", [(0, 1.0), (1, 1.0), (1, 0.5), (1, 0.0), (2, 0.5)])
def test_equals_the_loop(n, d, temperature, hard, alpha):
    random = torch.Generator().manual_seed(n)
    z1, z2, *negatives = torch.randn(2 + hard, n, d, generator=random, dtype=torch.float64)
    negatives = torch.stack(negatives) if hard else None
    queue = torch.randn(5, d, generator=random, dtype=torch.float64)
    excluded = (torch.arange(n)[:, None] + torch.arange((1 + hard) * n)) % 3 == 0
    given = negatives[0] if hard == 1 else negatives  # one of each row may come as [N, D]
    values = {"queue": (None, queue), "include_positive": (True, False), "own_view": (True, False)}
    values |= {"margin": (0.0, 10.0, 90.0), "excluded": (None, excluded)}
    for chosen in itertools.product(*values.values()):
        options = dict(zip(values, chosen, strict=True))
        found = info_nce(z1, z2, temperature=temperature, hard_negatives=given, hard_negative_weight=alpha, **options)
        expected = loop_reference(z1, z2, temperature, hard=negatives, alpha=alpha, **options)
        assert found.item() == pytest.approx(expected, rel=1e-9), options


def test_hand_values():
    """Orthogonal pairs, temperature 1: every row is -log(e / (e + 1)). All rows equal: log N."""
    z, same = torch.eye(2), torch.ones(8, 4)
    assert info_nce(z, z, temperature=1.0).item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert info_nce(same, same).item() == pytest.approx(math.log(8), rel=1e-5)


def test_a_margin_widens_the_angle_of_positive_pairs_up_to_half_a_turn():
    """Positives at 0 degrees count as at 60, negatives stay at 90; opposite positives stay opposite and learn nothing."""
    z = torch.eye(2)
    expected = -math.log(math.exp(0.5) / (math.exp(0.5) + 1))
    assert info_nce(z, z, temperature=1.0, margin=60.0).item() == pytest.approx(expected, abs=2e-3)
    opposite = (-z).requires_grad_()
    loss = info_nce(z, opposite, temperature=1.0, margin=30.0)
    assert loss.item() == pytest.approx(math.log1p(math.e), rel=1e-5)
    torch.testing.assert_close(torch.autograd.grad(loss, opposite)[0].diagonal(), torch.zeros(2), atol=1e-5, rtol=0)
    same = z.clone().requires_grad_()
    assert torch.autograd.grad(info_nce(same, same, margin=10.0), same)[0].isfinite().all()


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_positives_only_equals_the_loop(n, temperature):
    z1, z2 = torch.randn(2, n, 5, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    losses = []
    for u, v in zip(z1, z2, strict=True):
        positive = math.exp((u @ v / u.norm() / v.norm()).item() / temperature)
        losses.append(-math.log(positive / (positive + n - 1)))
    assert positives_only(z1, z2, temperature=temperature).item() == pytest.approx(sum(losses) / n, rel=1e-9, abs=1e-12)


def test_one_row_without_its_positive_still_has_a_queue_and_hard_negatives():
    z1, z2, other = torch.randn(3, 1, 4, generator=torch.Generator().manual_seed(0))
    for negatives in ({"queue": other}, {"hard_negatives": other}):
        assert info_nce(z1, z2, include_positive=False, **negatives).item() != 0.0
