"""What holds for every loss: its gradient is the numerical one, and input that makes no sense is refused in a sentence."""

from functools import partial

import pytest
import torch

from lib import losses
from lib.losses import attention_mutual_information, info_nce

ROTATION = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q


def order(*rows):
    return lambda *views: [z[list(rows)] for z in views]


def rotated(*views):
    return [z @ ROTATION for z in views]


def scaled(first, *others):
    return [3 * first, *(0.1 * z for z in others)]


def exchanged(first, second, *others):
    return [second, first, *others]


def order_of_one(first, *others):
    return [first.flip(0), *others]


def with_hard_negatives(z1, z2, negatives, **options):
    return info_nce(z1, z2, hard_negatives=negatives, **options)


def ranked(loss):
    return lambda z1, z2, t: loss(z1, z2, torch.nn.functional.normalize(t, dim=-1) @ t.T)


with_a_margin = partial(info_nce, margin=10.0)
with_three_negatives = partial(losses.contrastive_tension, negatives=3)
TEACHER = torch.rand(4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
# loss, shapes of what it is differentiated in, options
GRADIENTS = [
    (losses.contrastive_tension, [(4, 3)] * 2, {"negatives": 2}),
    (losses.dimension_contrast, [(5, 3)] * 2, {}),
    (losses.dimension_contrast, [(5, 3)] * 2, {"normalise": "l2", "reduce": "means"}),
    (losses.info_nce, [(4, 3)] * 2, {"temperature": 0.5}),
    (losses.info_nce, [(4, 3)] * 2, {"temperature": 0.5, "margin": 20.0}),
    (with_hard_negatives, [(4, 3)] * 3, {"temperature": 0.5, "hard_negative_weight": 2.0}),
    (losses.list_mle, [(4, 3)] * 2, {"teacher": TEACHER, "temperature": 0.5}),
    (losses.list_net, [(4, 3)] * 2, {"teacher": TEACHER, "temperature": 0.5}),
    (losses.mutual_reconstruction, [(4, 3)] * 2, {}),
    (losses.positives_only, [(4, 3)] * 2, {"temperature": 0.5}),
    (losses.ranking_consistency, [(4, 3)] * 2, {"temperature": 0.5}),
    (losses.tensor_modulus, [(6, 6)] * 2 + [(6, 5)] * 2, {}),
    (losses.twin_info_nce, [(6, 3)], {"temperature": 0.5}),
    (losses.twin_info_nce, [(6, 3)] * 2, {"temperature": 0.5}),
]


@pytest.mark.parametrize(("loss", "shapes", "options"), GRADIENTS)
def test_the_gradient_is_right(loss, shapes, options):
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(lambda *x: loss(*x, **options), inputs)


SCALES = torch.tensor([0.1, 2.0, 3.0, 1.0, 50.0], dtype=torch.float64)
SHUFFLED = order(3, 0, 5, 1, 4, 2)
INVARIANT = [  # loss, number of views, changes of all views that leave it as it is, and one that does not
    (with_hard_negatives, 3, [scaled, rotated, SHUFFLED], exchanged),
    (with_a_margin, 2, [scaled, rotated, SHUFFLED], exchanged),
    (losses.dimension_contrast, 2, [lambda a, b: (a * SCALES + SCALES, b), SHUFFLED], order_of_one),
    (losses.mutual_reconstruction, 2, [scaled, rotated, SHUFFLED, exchanged], order_of_one),
    (losses.positives_only, 2, [scaled, rotated, SHUFFLED, exchanged], order_of_one),
    (losses.twin_info_nce, 1, [scaled, rotated], order(0, 2, 1, 3, 4, 5)),
    (losses.twin_info_nce, 2, [scaled, rotated, order(4, 5, 0, 1, 2, 3), order(1, 0, 2, 3, 5, 4)], exchanged),
    (losses.ranking_consistency, 2, [scaled, rotated, SHUFFLED, exchanged], order_of_one),
    (ranked(losses.list_mle), 3, [rotated, SHUFFLED, lambda a, b, c: (3 * a, b / 3, c)], order_of_one),
    (ranked(losses.list_net), 3, [rotated, SHUFFLED, lambda a, b, c: (3 * a, b / 3, c)], order_of_one),
    (with_three_negatives, 2, [rotated, order(4, 5, 0, 1, 2, 3), lambda a, b: (3 * a, b / 3)], scaled),
]


@pytest.mark.parametrize(("loss", "number", "same", "other"), INVARIANT)
def test_what_a_loss_depends_on_and_what_not(loss, number, same, other):
    """Exchanging the views changes most losses: only rows of the first argument look for partners."""
    views = torch.randn(number, 6, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for change in same:
        torch.testing.assert_close(loss(*change(*views)), loss(*views))
    assert abs(loss(*other(*views)) - loss(*views)) > 1e-3


ONE = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(6))  # two views of one sentence
SECOND_EMPTY = torch.tensor([True, False, True]).view(3, 1, 1).expand(3, 4, 4)  # of three sentences
NO_WORD = {"labels": torch.full((2, 3), -100)}
NOTHING = [  # loss, views, options
    (attention_mutual_information, torch.rand(2, 2, 3, 2, 4, 4), {"valid": SECOND_EMPTY}),
    (info_nce, ONE, {"include_positive": False}),
    (losses.list_mle, ONE, {"teacher": torch.ones(1, 1)}),
    (losses.list_net, ONE, {"teacher": torch.ones(1, 1)}),
    (losses.masked_lm, [torch.randn(2, 3, 5)], NO_WORD),
    (losses.masked_lm, [torch.randn(2, 3, 5)], NO_WORD | {"reduction": "sum"}),
    (losses.positives_only, ONE, {}),
    (losses.ranking_consistency, ONE, {}),
    (losses.tensor_modulus, [*torch.randn(2, 2, 4), *torch.zeros(2, 2, 4)], {}),
    (losses.twin_info_nce, [ONE.flatten(0, 1)], {}),
]


@pytest.mark.parametrize(("loss", "views", "options"), NOTHING)
def test_where_there_is_nothing_to_compare_the_loss_is_0_and_so_is_its_gradient(loss, views, options):
    views = [z.clone().requires_grad_() for z in views]
    value = loss(*views, **options)
    value.backward()
    assert value.item() == 0 and not any(z.grad.any() for z in views)


A, B = (4, 3), (5, 3)
FOUR = (2, 2, 2, 4, 4)  # layers, sentences, heads, tokens, tokens
VALID = {"valid": torch.ones(2, 4, 4, dtype=torch.bool)}  # sentences, tokens, tokens
INDEX = {"samples": 5, "index": torch.zeros(3, 5, dtype=torch.long)}
REFUSED = [
    ("attention_mutual_information", [(3, 2, 2, 4, 4)] * 2, VALID, "even number of layers, got 3"),
    ("attention_mutual_information", [(2, 2, 3, 4, 4)] * 2, VALID | {"slicing": "head_pairs"}, "of heads, got 3"),
    ("attention_mutual_information", [FOUR, FOUR], VALID | {"slicing": "layers"}, "one of layer_parity, head_pairs"),
    ("attention_mutual_information", [FOUR, (2, 3, 2, 4, 4)], VALID, "must be"),
    ("attention_mutual_information", [FOUR, FOUR], {"valid": torch.ones(2, 4) > 0}, "valid"),
    ("attention_mutual_information", [FOUR, FOUR], VALID | INDEX, "8 rows kept, 5 samples"),
    ("contrastive_tension", [A, B], {}, "must both be"),
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
    ("twin_info_nce", [B], {}, "must"),
    ("twin_info_nce", [A, (6, 3)], {}, "must"),
    ("twin_info_nce", [A], {"temperature": 0.0}, "must"),
]


@pytest.mark.parametrize(("name", "shapes", "options", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(name, shapes, options, words):
    with pytest.raises(ValueError, match=words):
        getattr(losses, name)(*map(torch.rand, shapes), **options)
