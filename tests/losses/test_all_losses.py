"""What holds for every loss: its gradient is the numerical one, and input that makes no sense is refused in a sentence."""

import pytest
import torch

from lib import losses
from lib.losses import attention_mutual_information, info_nce

TEACHER = torch.rand(4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
# loss -> shapes of what it is differentiated in, options
GRADIENTS = [
    ("contrastive_tension", [(4, 3)] * 2, {"negatives": 2}),
    ("dimension_contrast", [(5, 3)] * 2, {}),
    ("dimension_contrast", [(5, 3)] * 2, {"normalise": "l2", "reduce": "means"}),
    ("info_nce", [(4, 3)] * 2, {"temperature": 0.5}),
    ("info_nce", [(4, 3)] * 2, {"temperature": 0.5, "margin": 20.0}),
    ("list_mle", [(4, 3)] * 2, {"teacher": TEACHER, "temperature": 0.5}),
    ("list_net", [(4, 3)] * 2, {"teacher": TEACHER, "temperature": 0.5}),
    ("mutual_reconstruction", [(4, 3)] * 2, {}),
    ("positives_only", [(4, 3)] * 2, {"temperature": 0.5}),
    ("ranking_consistency", [(4, 3)] * 2, {"temperature": 0.5}),
    ("tensor_modulus", [(6, 6)] * 2 + [(6, 5)] * 2, {}),
    ("twin_info_nce", [(6, 3)], {"temperature": 0.5}),
    ("twin_info_nce", [(6, 3)] * 2, {"temperature": 0.5}),
]


@pytest.mark.parametrize(("name", "shapes", "options"), GRADIENTS)
def test_the_gradient_is_right(name, shapes, options):
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(lambda *x: getattr(losses, name)(*x, **options), inputs)


ROTATION = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q


def order(*rows):
    return lambda *views: [z[list(rows)] for z in views]


def rotated(*views):
    return [z @ ROTATION for z in views]


def scaled(first, *others):
    return [3 * first, *(0.1 * z for z in others)]


def order_of_one(first, *others):
    return [first.flip(0), *others]


def with_hard_negatives(z1, z2, negatives):
    return info_nce(z1, z2, hard_negatives=negatives)


def with_a_margin(z1, z2):
    return info_nce(z1, z2, margin=10.0)


def with_three_negatives(z1, z2):
    return losses.contrastive_tension(z1, z2, negatives=3)


def ranked(loss):
    return lambda z1, z2, t: loss(z1, z2, torch.nn.functional.normalize(t, dim=-1) @ t.T)


INVARIANT = [  # loss, number of views, changes of all views that leave it as it is, and one that does not
    (with_hard_negatives, 3, [scaled, rotated, order(3, 0, 5, 1, 4, 2)], lambda a, b, c: (b, a, c)),
    (with_a_margin, 2, [scaled, rotated, order(3, 0, 5, 1, 4, 2)], lambda a, b: (b, a)),
    (losses.twin_info_nce, 1, [scaled, rotated], order(0, 2, 1, 3, 4, 5)),
    (losses.twin_info_nce, 2, [scaled, rotated, order(4, 5, 0, 1, 2, 3), order(1, 0, 2, 3, 5, 4)], lambda a, b: (b, a)),
    (losses.ranking_consistency, 2, [scaled, rotated, order(3, 0, 5, 1, 4, 2), lambda a, b: (b, a)], order_of_one),
    (ranked(losses.list_mle), 3, [rotated, order(3, 0, 5, 1, 4, 2), lambda a, b, c: (3 * a, b / 3, c)], order_of_one),
    (ranked(losses.list_net), 3, [rotated, order(3, 0, 5, 1, 4, 2), lambda a, b, c: (3 * a, b / 3, c)], order_of_one),
    (with_three_negatives, 2, [rotated, order(4, 5, 0, 1, 2, 3), lambda a, b: (3 * a, b / 3)], scaled),
]


@pytest.mark.parametrize(("loss", "number", "same", "other"), INVARIANT)
def test_what_a_loss_depends_on_and_what_not(loss, number, same, other):
    """Exchanging the views changes most losses: only rows of the first argument look for partners."""
    views = torch.randn(number, 6, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for change in same:
        torch.testing.assert_close(loss(*change(*views)), loss(*views))
    assert abs(loss(*other(*views)) - loss(*views)) > 1e-3


def test_the_gradient_of_hard_negatives_is_right():
    inputs = [torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    options = {"temperature": 0.5, "hard_negative_weight": 2.0}
    assert torch.autograd.gradcheck(lambda a, b, c: info_nce(a, b, hard_negatives=c, **options), inputs)


A, B = (4, 3), (5, 3)
REFUSED = [
    ("contrastive_tension", [A, B], {}, "must both be"),
    ("contrastive_tension", [A, (4, 2)], {}, "must both be"),
    ("contrastive_tension", [(2, 4, 3)] * 2, {}, "must both be"),
    ("contrastive_tension", [A, A], {"negatives": -1}, "negatives"),
    ("dimension_contrast", [(1, 3)] * 2, {}, "at least two sentences"),
    ("dimension_contrast", [A, (4, 2)], {}, r"must both be \[N, D\]"),
    ("dimension_contrast", [A, A], {"reduce": "mean"}, "reduce 'mean' is unknown"),
    ("dimension_contrast", [A, A], {"normalise": "std"}, "normalise 'std' is unknown"),
    ("info_nce", [A, B], {}, "must both be"),
    ("info_nce", [A, A], {"temperature": 0.0}, "temperature must be positive"),
    ("info_nce", [A, A], {"hard_negative_weight": -1.0}, "not negative"),
    ("info_nce", [A, A], {"margin": 180.0}, "margin from 0 to 180"),
    ("info_nce", [A, A], {"hard_negatives": torch.zeros(3, 3)}, "like z1"),
    ("list_mle", [A, A, (4, 3)], {}, r"teacher \(4, 3\) must be \[N, N\], with N = 4"),
    ("list_mle", [A, B, (4, 4)], {}, "must both be"),
    ("list_net", [A, A, (5, 5)], {}, r"teacher \(5, 5\) must be"),
    ("list_net", [A, A, (4, 4)], {"teacher_temperature": 0.0}, "temperatures must be positive"),
    ("mutual_reconstruction", [A, A], {"reduce": "dim"}, "choose mean or sum"),
    ("mutual_reconstruction", [A, B], {}, r"must both be \[N, D\]"),
    ("positives_only", [A, A], {"temperature": -1.0}, "temperature must be positive"),
    ("positives_only", [A, (1, 3)], {}, "must both be"),
    ("ranking_consistency", [A, (4, 2)], {}, r"must both be \[N, D\]"),
    ("ranking_consistency", [A, A], {"temperature": -1.0}, "temperatures must be positive"),
    ("redundant_dimensions", [(3,), ()], {"relaxation": "hard"}, "choose straight_through or soft"),
    ("redundant_dimensions", [(3,), ()], {"width": 0.0}, "a positive width"),
    ("tensor_modulus", [A, (2, 3), A, A], {}, r"\[2N, D\]"),
    ("tensor_modulus", [A, A, (2, 3), (2, 3)], {}, r"\[2N, E\]"),
    ("tensor_modulus", [(3, 3)] * 4, {}, "2N"),
    ("twin_info_nce", [B], {}, "must"),
    ("twin_info_nce", [A, (6, 3)], {}, "must"),
    ("twin_info_nce", [(2, 4, 3)], {}, "must"),
    ("twin_info_nce", [A], {"temperature": 0.0}, "must"),
]


@pytest.mark.parametrize(("name", "shapes", "options", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(name, shapes, options, words):
    with pytest.raises(ValueError, match=words):
        getattr(losses, name)(*map(torch.rand, shapes), **options)


FOUR = (2, 2, 2, 4, 4)  # layers, sentences, heads, tokens, tokens
REFUSED_ATTENTION = [
    ((3, 2, 2, 4, 4), (3, 2, 2, 4, 4), (2, 4, 4), "layer_parity", "even number of layers, got 3"),
    ((2, 2, 3, 4, 4), (2, 2, 3, 4, 4), (2, 4, 4), "head_pairs", "even number of heads, got 3"),
    (FOUR, FOUR, (2, 4, 4), "layers", "choose one of layer_parity, head_pairs"),
    (FOUR, (2, 3, 2, 4, 4), (2, 4, 4), "layer_parity", "must be"),
    ((2, 2, 2, 4, 5), (2, 2, 2, 4, 5), (2, 4, 5), "layer_parity", "must be"),
    ((2, 2, 4, 4), (2, 2, 4, 4), (2, 4, 4), "layer_parity", "must be"),
    (FOUR, FOUR, (2, 4), "layer_parity", "valid"),
    (FOUR, FOUR, (1, 4, 4), "layer_parity", "valid"),
]


@pytest.mark.parametrize(("shape1", "shape2", "valid", "slicing", "words"), REFUSED_ATTENTION)
def test_attention_that_makes_no_sense_is_refused(shape1, shape2, valid, slicing, words):
    with pytest.raises(ValueError, match=words):
        attention_mutual_information(
            torch.rand(shape1), torch.rand(shape2), valid=torch.ones(valid, dtype=torch.bool), slicing=slicing
        )


def test_an_index_of_another_shape_is_refused():
    attention = torch.rand(2, 2, 3, 2, 4, 4)
    options = {"valid": torch.ones(3, 4, 4, dtype=torch.bool), "samples": 5}
    with pytest.raises(ValueError, match="12 rows kept, 5 samples"):
        attention_mutual_information(*attention, index=torch.zeros(3, 5, dtype=torch.long), **options)
