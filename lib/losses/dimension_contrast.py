"""Dimension-level contrast of MSSE (anonymous ACL submission): Barlow Twins on the two views of a batch of sentences."""

import torch
import torch.nn.functional as F
from torch import Tensor

NORMALISATIONS = ("zscore", "l2")
REDUCTIONS = ("dim2", "dim", "sum", "means")


def cross_correlation(h: Tensor, h_pos: Tensor, *, normalise: str = "zscore") -> Tensor:
    """C [D, D] of MSSE's Eq. 3: the cosine between column i of h and column j of h_pos, both taken over the batch.

    Args:
        h, h_pos: [N, D], the two views of N sentences.
        normalise: `zscore` takes the mean of every column away first, so that C holds Pearson correlations; `l2` does
            not. A column that is constant (`zscore`) or zero (`l2`) has correlation 0 with all.
    """
    if normalise not in NORMALISATIONS:
        raise ValueError(f"normalise {normalise!r} is unknown: choose one of {', '.join(NORMALISATIONS)}.")
    if h.shape != h_pos.shape or h.dim() != 2:
        raise ValueError(f"h {tuple(h.shape)} and h_pos {tuple(h_pos.shape)} must both be [N, D].")
    if len(h) < 2:
        raise ValueError("columns are compared over a batch: give at least two sentences.")
    return _unit_columns(h, normalise).T @ _unit_columns(h_pos, normalise)


def _unit_columns(h: Tensor, normalise: str) -> Tensor:
    """Columns of length 1, centred for `zscore`; constant ones are zero, without the huge gradient of their direction."""
    centred = h - h.mean(0) if normalise == "zscore" else h
    is_constant = centred.norm(dim=0) <= 1e-6 * h.norm(dim=0)
    return F.normalize(torch.where(is_constant, 0.0, centred), dim=0, eps=1e-8)


def dimension_contrast(
    h: Tensor,
    h_pos: Tensor,
    *,
    normalise: str = "zscore",
    reduce: str = "dim",
    diagonal_weight: float = 1.0,
    off_diagonal_weight: float = 1.0,
) -> Tensor:
    """L_DCM of MSSE's Eq. 4: a dimension agrees with itself in the other view, and with no other dimension.

        L = w_d sum_i (C_ii - 1)^2 + w_o sum_{i != j} C_ij^2

    Args:
        h, h_pos: [N, D], the two views of N sentences.
        normalise: see `cross_correlation`.
        reduce: `sum` as printed; `dim` and `dim2` divide it by D and D^2; `means` takes the mean of each of the two
            sums over its own entries (the authors' code).
        diagonal_weight, off_diagonal_weight: w_d and w_o; 1 and 1 in the paper, 2 and 0.05 in the authors' code.
    """
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce {reduce!r} is unknown: choose one of {', '.join(REDUCTIONS)}.")
    correlation = cross_correlation(h, h_pos, normalise=normalise)  # [D, D]
    dimensions, diagonal = len(correlation), correlation.diagonal()
    agree = (diagonal - 1).square().sum()
    differ = correlation.square().sum() - diagonal.square().sum()
    entries = {"sum": (1, 1), "dim": (dimensions,) * 2, "dim2": (dimensions**2,) * 2}
    entries["means"] = dimensions, max(1, dimensions * (dimensions - 1))
    return diagonal_weight * agree / entries[reduce][0] + off_diagonal_weight * differ / entries[reduce][1]
