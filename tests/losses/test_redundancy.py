"""The mask of redundant dimensions and the reduction by hand, against limits and numerical gradients."""

import statistics

import pytest
import torch

from lib.losses import deviations, reduce_redundancy, redundant_dimensions


def draw(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(9, 6, generator=generator, dtype=torch.float64) * torch.linspace(0.05, 1.2, 6)


def test_deviations_are_those_of_a_population():
    h = draw()
    assert deviations(h).tolist() == pytest.approx([statistics.pstdev(column) for column in h.T.tolist()])


def test_the_mask_and_the_reduction_by_hand():
    deviation, threshold = torch.tensor([0.1, 0.3, 0.2]), torch.tensor(0.2)
    mask = redundant_dimensions(deviation, threshold)
    assert mask.tolist() == [1, 0, 0]  # equal is not below
    h = torch.tensor([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]])
    assert reduce_redundancy(h, torch.tensor([10.0, 20.0, 30.0]), mask).tolist() == [[[-9, 2, 3]], [[-6, 5, 6]]]


def test_its_limits():
    deviation = deviations(draw())
    assert redundant_dimensions(deviation, 0.0).sum() == 0
    assert redundant_dimensions(deviation, 9.0).sum() == 6
    narrow = redundant_dimensions(deviation, 0.5, relaxation="soft", width=1e-4)
    torch.testing.assert_close(narrow, redundant_dimensions(deviation, 0.5), atol=1e-9, rtol=0)


def test_the_soft_mask_has_the_numerical_gradient_and_the_hard_one_borrows_it():
    deviation = deviations(draw()).requires_grad_()
    threshold = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda d, c: redundant_dimensions(d, c, relaxation="soft", width=0.2), (deviation, threshold)
    )
    weights, gradients = torch.arange(6).double(), []
    for relaxation in ("soft", "straight_through"):
        mask = redundant_dimensions(deviation, threshold, relaxation=relaxation, width=0.2)
        gradients.append(torch.autograd.grad((weights * mask).sum(), (deviation, threshold)))
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)
    assert set(mask.tolist()) == {0.0, 1.0}
