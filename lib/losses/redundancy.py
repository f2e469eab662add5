"""3R's reduction of redundant representations: which dimensions say little of a batch, and what is taken away there."""

import torch
from torch import Tensor

RELAXATIONS = ("straight_through", "soft")


def deviations(h: Tensor) -> Tensor:
    """sigma_d of 3R's Eq. 3: the population standard deviation of every dimension over the batch; h [N, D] -> [D]."""
    return h.std(0, correction=0)


def redundant_dimensions(
    deviation: Tensor, threshold: Tensor | float, *, relaxation: str = "straight_through", width: float = 0.05
) -> Tensor:
    """The mask of S = {d : sigma_d < c} (3R, Section 3.2): dimensions that hardly differ between the sentences of a batch.

    The comparison has no gradient, so c could not be learnt as printed; the paper does not say how it was.

    Args:
        deviation: [D], see `deviations`.
        threshold: c, a scalar.
        relaxation: `straight_through` gives 0 and 1, and the gradient of sigmoid((c - sigma) / width); `soft` gives that
            sigmoid itself.
        width: of the sigmoid.

    Returns:
        [D], 1 where a dimension is redundant.
    """
    if relaxation not in RELAXATIONS or width <= 0:
        raise ValueError(
            f"relaxation {relaxation!r}, width {width}: choose {' or '.join(RELAXATIONS)}, and a positive width."
        )
    soft = torch.sigmoid((threshold - deviation) / width)
    if relaxation == "soft":
        return soft
    hard = (deviation < threshold).to(deviation.dtype)
    return hard + (soft - soft.detach())  # the bracket is exactly 0


def reduce_redundancy(h: Tensor, redundant: Tensor, mask: Tensor) -> Tensor:
    """x^_d = x_d - hbar_d for the dimensions of the mask (3R, Eq. 5). h [..., D], redundant hbar [D], mask [D] -> [..., D]."""
    return h - mask * redundant
