import pytest
import torch

from lib.losses import mutual_reconstruction


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_equals_the_loop(reduce):
    z1, z2 = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = 0.0
    for a, b in zip(z1.tolist(), z2.tolist(), strict=True):
        a, b = ([x / sum(y * y for y in v) ** 0.5 for x in v] for v in (a, b))
        squares = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
        total += 2 * squares / (5 if reduce == "mean" else 1)
    assert mutual_reconstruction(z1, z2, reduce=reduce).item() == pytest.approx(total / 6)


def test_by_hand():
    """Orthogonal vectors: 4 (1 - cos) = 4."""
    z1, z2 = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.5]])
    assert mutual_reconstruction(z1, z2, reduce="sum").item() == pytest.approx(4)
    assert mutual_reconstruction(z1, z2).item() == pytest.approx(2)
    assert mutual_reconstruction(z1, 7 * z1).item() == pytest.approx(0, abs=1e-12)
