"""What 3R calls redundant, in an encoder as it is: dimensions that hardly differ, and the vector of a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from lib.data import STSTask
from lib.encoders import SentenceEncoder
from lib.evaluation import evaluate_sts
from lib.losses import deviations, reduce_redundancy, redundant_dimensions


def dimension_statistics(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    pool: Sequence[str],
    *,
    threshold: float,
    dev: STSTask | None = None,
) -> dict[str, float]:
    """The deviations (3R, Eq. 3) of the dimensions over texts, in evaluation mode, and what the pool has to do with them.

    Args:
        pool: sentences whose mean vector is hbar.
        threshold: c.
        dev: pairs whose score is given, too, with and without the subtraction.

    Returns:
        `σ, smallest`, `σ, median` and `σ, largest` deviation; `redundant, %`, dimensions with a deviation below c;
        `cos(hbar, mean)` of hbar and the mean vector of the texts, over all dimensions, and `where redundant`, over
        these alone (NaN where there are none); `cosine of texts`, mean over their pairs, the same `after subtraction` of
        hbar in the redundant dimensions, and `after centring`, where the mean of the texts is taken away there instead;
        `dev, as it is`, `dev, c = 0.1`, the same for `threshold`, and `dev, everywhere`: in all dimensions.
    """
    h, hbar = torch.from_numpy(encoder.encode(list(texts))), torch.from_numpy(encoder.encode(list(pool))).mean(0)
    sigma, mean = deviations(h), h.mean(0)
    mask = redundant_dimensions(sigma, threshold)
    there = F.cosine_similarity(hbar * mask, mean * mask, dim=0).item() if mask.any() else float("nan")
    found = {
        "σ, smallest": sigma.min().item(),
        "σ, median": sigma.median().item(),
        "σ, largest": sigma.max().item(),
        "redundant, %": 100 * mask.mean().item(),
        "cos(hbar, mean)": F.cosine_similarity(hbar, mean, dim=0).item(),
        "where redundant": there,
        "cosine of texts": _mean_cosine(h),
        "after subtraction": _mean_cosine(reduce_redundancy(h, hbar, mask)),
        "after centring": _mean_cosine(reduce_redundancy(h, mean, mask)),
    }
    if dev is not None:
        found["dev, as it is"] = evaluate_sts(encoder.encode, [dev]).value[0]  # all
        for name, c in {"c = 0.1": 0.1, f"c = {threshold:g}": threshold, "everywhere": float("inf")}.items():
            left_on = subtracting(encoder, texts, pool, threshold=c)
            found[f"dev, {name}"] = evaluate_sts(left_on, [dev]).value[0]  # all
    return found


def subtracting(
    encoder: SentenceEncoder, texts: Sequence[str], pool: Sequence[str], *, threshold: float
) -> Callable[[Sequence[str]], np.ndarray]:
    """The encoder with 3R's subtraction left on: n texts -> [n, D]. The paper subtracts in training only.

    texts: whose deviations say which dimensions are redundant; mask and hbar are taken once.
    """
    sigma = deviations(torch.from_numpy(encoder.encode(list(texts))))
    taken = encoder.encode(list(pool)).mean(0) * redundant_dimensions(sigma, threshold).numpy()
    return lambda some: encoder.encode(some) - taken


def _mean_cosine(h: torch.Tensor) -> float:
    """Over all pairs of different rows of h [N, D]."""
    unit, n = F.normalize(h, dim=-1), len(h)
    return ((unit.sum(0).square().sum() - n) / (n * (n - 1))).item()
