"""tensor_modulus against an obvious loop, hand values and its limits."""

import math

import pytest
import torch

from lib.losses import tensor_modulus
from tests.losses.conftest import cosine


def loop_reference(h, g, p, q, halved):
    h, g, p, q = (x.tolist() for x in (h, g, p, q))
    total, sentences = 0.0, len(h) // 2
    for k in range(sentences):
        i, j = 2 * k, 2 * k + 1
        near = cosine(h[i], g[j])
        weight = -math.log(near if near > 0 else 1e-4)
        total += weight * math.dist(p[i], q[j]) / ((2 if halved else 1) * (math.hypot(*p[i]) + math.hypot(*q[j])))
    return total / sentences


def draw(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    h, g = torch.randn(2, rows, 6, generator=generator, dtype=torch.float64)
    p, q = torch.randn(2, rows, 5, generator=generator, dtype=torch.float64)
    return h, g, p, q


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("halved", [True, False])
def test_equals_the_loop_with_cosines_of_both_signs(rows, halved):
    tensors = draw(rows)
    assert tensor_modulus(*tensors, halved=halved).item() == pytest.approx(loop_reference(*tensors, halved), rel=1e-12)
    cosines = torch.cosine_similarity(tensors[0][0::2], tensors[1][1::2])
    assert rows == 2 or ((cosines > 0).any() and (cosines < 0).any())


def test_hand_values():
    """Cosine 1/2, lengths 3 and 1 in the same direction: log 2 * 2/4, halved."""
    h = torch.tensor([[1.0, 0.0], [9.0, 9.0]])
    g = torch.tensor([[9.0, 9.0], [0.5, math.sqrt(0.75)]])
    p, q = torch.tensor([[3.0, 0.0], [7.0, 7.0]]), torch.tensor([[7.0, 7.0], [1.0, 0.0]])
    assert tensor_modulus(h, g, p, q).item() == pytest.approx(math.log(2) / 4)
    assert tensor_modulus(h, g, p, q, halved=False).item() == pytest.approx(math.log(2) / 2)


def test_it_vanishes_for_equal_directions_or_equal_vectors():
    h, g, p, q = draw(8)
    other = h.roll(-1, 0)[0::2].repeat_interleave(2, 0)  # row 2k + 1 of g lies along row 2k of h
    along = h[0::2].repeat_interleave(2, 0) * 3
    assert tensor_modulus(h, along, p, q).item() == pytest.approx(0, abs=1e-9)
    assert tensor_modulus(h, other, p, p[0::2].repeat_interleave(2, 0)).item() == 0


def test_a_negative_cosine_is_a_constant_and_the_lengths_still_learn():
    h, g, p, q = (x.requires_grad_() for x in draw(40, seed=3))
    cosines = torch.cosine_similarity(h[0::2], g[1::2])
    tensor_modulus(h, g, p, q).backward()
    negative = cosines < 0
    assert negative.any() and not h.grad[0::2][negative].any() and p.grad[0::2][negative].any(1).all()
    assert h.grad[0::2][~negative].any(1).all()
