"""dimension_contrast against an obvious loop, hand values and its limits."""

import pytest
import torch

from lib.losses import dimension_contrast
from lib.losses.dimension_contrast import cross_correlation
from tests.losses.conftest import cosine


def loop_reference(h, h_pos, normalise, reduce, diagonal_weight, off_diagonal_weight):
    columns, others = h.T.tolist(), h_pos.T.tolist()
    size, agree, differ = len(columns), 0.0, 0.0

    def centred(column):
        mean = sum(column) / len(column) if normalise == "zscore" else 0.0
        return [x - mean for x in column]

    for i in range(size):
        for j in range(size):
            correlation = cosine(centred(columns[i]), centred(others[j]))
            if i == j:
                agree += (correlation - 1) ** 2
            else:
                differ += correlation**2
    if reduce == "means":
        agree, differ = agree / size, differ / (size * (size - 1))
    else:
        scale = {"sum": 1, "dim": size, "dim2": size**2}[reduce]
        agree, differ = agree / scale, differ / scale
    return diagonal_weight * agree + off_diagonal_weight * differ


def draw(rows=9, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, rows, columns, generator=generator, dtype=torch.float64) + 0.7


@pytest.mark.parametrize("normalise", ["zscore", "l2"])
@pytest.mark.parametrize("reduce", ["dim2", "dim", "sum", "means"])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 0.05)])
def test_equals_the_loop(normalise, reduce, weights):
    h, h_pos = draw()
    options = {"normalise": normalise, "reduce": reduce}
    options |= {"diagonal_weight": weights[0], "off_diagonal_weight": weights[1]}
    expected = loop_reference(h, h_pos, **options)
    assert dimension_contrast(h, h_pos, **options).item() == pytest.approx(expected, rel=1e-12)


def test_hand_values():
    """Two sentences: every centred column is (1, -1) or (-1, 1), so every correlation is 1 or -1."""
    h = torch.tensor([[3.0, 0.0], [1.0, 4.0]])
    h_pos = torch.tensor([[5.0, 1.0], [2.0, 0.0]])
    torch.testing.assert_close(cross_correlation(h, h_pos), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    assert dimension_contrast(h, h_pos, reduce="sum").item() == pytest.approx(0 + 4 + 1 + 1)
    assert dimension_contrast(h, h_pos, reduce="dim2").item() == pytest.approx(6 / 4)
    code = dimension_contrast(h, h_pos, reduce="means", diagonal_weight=2.0, off_diagonal_weight=0.05)
    assert code.item() == pytest.approx(2 * 2 + 0.05 * 1)


def test_it_vanishes_for_equal_views_whose_dimensions_are_uncorrelated():
    h = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    assert dimension_contrast(h, h * 3 + 1, reduce="sum").item() == pytest.approx(0, abs=1e-12)


def test_a_constant_dimension_is_correlated_with_nothing_and_keeps_its_gradient_finite():
    h, h_pos = (x.float() for x in draw(100))
    h[:, 2] = 4.1 + 1e-7 * torch.randn(100)  # what rounding leaves of a constant
    h.requires_grad_()
    loss = dimension_contrast(h, h_pos)
    loss.backward()
    assert cross_correlation(h, h_pos)[2].abs().max() == 0
    assert h.grad.isfinite().all() and h.grad[:, 2].norm() <= h.grad.norm(dim=0).median()
