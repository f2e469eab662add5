"""Geometry against obvious loops and values computed by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.analysis.geometry import (
    alignment,
    attention_entropy,
    attention_shares,
    cls_energy,
    dimension_agreement,
    uniformity,
)


def test_uniformity_equals_pdist_and_does_not_depend_on_the_block_size():
    x = torch.randn(37, 6)
    expected = torch.pdist(F.normalize(x, dim=1)).pow(2).mul(-2).exp().mean().log()
    for rows in (4, 36, 37, 1000):
        torch.testing.assert_close(uniformity(x, rows_at_once=rows), expected, rtol=1e-4, atol=1e-5)


def test_alignment_equals_the_loop():
    x, y = torch.randn(2, 9, 4)
    distances = [float(((a / a.norm()) - (b / b.norm())).norm()) for a, b in zip(x, y, strict=True)]
    assert alignment(x, y).item() == pytest.approx(sum(d**2 for d in distances) / 9, rel=1e-5)
    assert alignment(x, y, alpha=1).item() == pytest.approx(sum(distances) / 9, rel=1e-5)


def test_hand_values():
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # distance 2
    assert uniformity(opposite).item() == pytest.approx(-8)
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-5)
    assert alignment(opposite[:1], opposite[1:]).item() == pytest.approx(4)


def test_scale_does_not_matter():
    x, y = torch.randn(2, 20, 5)
    torch.testing.assert_close(alignment(x, 7 * y), alignment(3 * x, y))
    torch.testing.assert_close(uniformity(100 * x), uniformity(x))


def test_uniformity_needs_two_rows():
    with pytest.raises(ValueError, match="two rows"):
        uniformity(torch.ones(1, 3))


def test_attention_entropy_is_1_for_uniform_and_0_for_one_key():
    uniform, single = torch.full((2, 3, 5, 5), 0.2), torch.eye(5).expand(2, 3, 5, 5)
    assert torch.allclose(attention_entropy(uniform), torch.ones(2, 3, 5))
    assert torch.equal(attention_entropy(single), torch.zeros(2, 3, 5))
    two = torch.tensor([0.5, 0.5, 0.0, 0.0])
    assert attention_entropy(two).item() == pytest.approx(0.5)  # log 2 / log 4


def test_cls_energy_is_the_first_vectors_length_over_that_of_all_others():
    hidden = torch.tensor([[[3.0, 4.0], [0.0, 2.0], [1.0, 2.0], [9.0, 9.0]]])
    mask = torch.tensor([[1, 1, 1, 0]])
    assert cls_energy(hidden, mask).tolist() == pytest.approx([5 / 3])
    layers = torch.stack([hidden, 2 * hidden, hidden + 1])
    energies = cls_energy(layers, mask)
    assert energies.shape == (3, 1) and energies[0, 0] == energies[1, 0] != energies[2, 0]


def test_attention_shares_are_those_of_the_obvious_loop():
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 3]
    attention = torch.zeros(2, 2, 3, 5, 5)
    for n, length in enumerate(lengths):
        attention[:, n, :, :length, :length] = torch.rand(2, 3, length, length, generator=generator).softmax(-1)
    attention[:, 1, :, 3:, :3] = 0.7  # padded queries do not count
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    groups = torch.tensor([[0, 2, 1, 2, 1], [0, 2, 2, 0, 0]])
    shares = attention_shares(attention, mask, groups, 3)
    for layer in range(2):
        for n, length in enumerate(lengths):
            expected = [0.0] * 3
            for head in range(3):
                for query in range(length):
                    for key in range(length):
                        expected[groups[n, key]] += attention[layer, n, head, query, key].item() / 3 / length
            assert shares[layer, n].tolist() == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, 2))


def test_dimension_agreement_is_that_of_the_obvious_loop():
    x = np.random.default_rng(0).normal(size=(30, 4)) + 5
    y = (
        x @ np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0.5, 0, 0, -1]]).T
    )  # the second and third change places
    table = np.corrcoef(x.T, y.T)[:4, 4:]
    off = [table[i, j] ** 2 for i in range(4) for j in range(4) if i != j]
    agreement = dimension_agreement(x, y)
    assert agreement["own"] == pytest.approx(np.diag(table).mean())
    assert agreement["others"] == pytest.approx(np.mean(off) ** 0.5)
    assert dimension_agreement(x, 3 * x - 1)["own"] == pytest.approx(1)
