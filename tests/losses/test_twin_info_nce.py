"""twin_info_nce against an obvious loop and hand values."""

import math

import pytest
import torch

from lib.losses import twin_info_nce
from tests.losses.conftest import cosine


def loop_reference(a, b, temperature):
    a, b = a.tolist(), b.tolist()
    total = 0.0
    for i in range(len(a)):
        partner = i + 1 if i % 2 == 0 else i - 1
        others = [math.exp(cosine(a[i], b[j]) / temperature) for j in range(len(b)) if j != i]
        total -= math.log(math.exp(cosine(a[i], b[partner]) / temperature) / sum(others))
    return total / len(a)


@pytest.mark.parametrize("rows", [4, 10])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("encoders", [1, 2])
def test_equals_the_loop(rows, temperature, encoders):
    a, b = torch.randn(2, rows, 6, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    found = twin_info_nce(a, b if encoders == 2 else None, temperature=temperature)
    expected = loop_reference(a, b if encoders == 2 else a, temperature)
    assert found.item() == pytest.approx(expected, rel=1e-9)


def test_hand_values():
    """Two sentences at right angles, temperature 1: one partner at cosine 1, two others at 0."""
    z = torch.eye(2).repeat_interleave(2, 0)
    assert twin_info_nce(z, temperature=1.0).item() == pytest.approx(math.log(1 + 2 / math.e))
    assert twin_info_nce(torch.ones(8, 4)).item() == pytest.approx(math.log(7), rel=1e-5)


def test_the_same_row_of_the_other_encoder_is_neither_positive_nor_negative():
    """a is 1 where b is 1, yet nothing is gained: row i of b is seen by all rows of a but row i."""
    a = torch.eye(4, dtype=torch.float64)
    b = torch.eye(4, dtype=torch.float64)[[1, 0, 3, 2]]
    assert twin_info_nce(a, b, temperature=1.0).item() == pytest.approx(math.log(1 + 2 / math.e))
    assert twin_info_nce(a, a, temperature=1.0).item() == pytest.approx(math.log(3))  # cosine 1 on the diagonal only
