"""Where embeddings lie, and where attention goes: alignment, uniformity, agreement, shares. Tensors in, numbers out."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.losses.dimension_contrast import cross_correlation

Vectors = Tensor | np.ndarray


def _tensor(x: Vectors) -> Tensor:
    return x if isinstance(x, Tensor) else torch.from_numpy(x)


def _unit(x: Vectors) -> Tensor:
    return F.normalize(_tensor(x).float(), dim=-1)


def alignment(x: Vectors, y: Vectors, *, alpha: float = 2) -> Tensor:
    """Mean distance of positive pairs to the power alpha, on the unit sphere; lower is better.

    Wang and Isola 2020 (arXiv 2005.10242); SimCSE Eq. 2. x, y: [N, D], row i of each is a pair.
    """
    return (_unit(x) - _unit(y)).norm(dim=1).pow(alpha).mean()


def uniformity(x: Vectors, *, t: float = 2, rows_at_once: int = 2048) -> Tensor:
    """log E exp(-t |x - y|^2) over all unordered pairs of distinct rows, on the unit sphere; lower is better.

    Wang and Isola 2020 (arXiv 2005.10242); SimCSE Eq. 3. x: [N, D]; memory is rows_at_once x N.

    Raises:
        ValueError: fewer than two rows.
    """
    x = _unit(x)
    if len(x) < 2:
        raise ValueError("uniformity needs at least two rows.")
    parts = []
    for start in range(0, len(x), rows_at_once):
        rows = x[start : start + rows_at_once]
        exponent = -t * (2 - 2 * rows @ x[start:].T)
        not_later = torch.ones_like(exponent, dtype=torch.bool).tril()  # every pair counts once
        parts.append(torch.logsumexp(exponent.masked_fill(not_later, -math.inf).flatten(), 0))
    return torch.logsumexp(torch.stack(parts), 0) - math.log(len(x) * (len(x) - 1) / 2)


def dimension_agreement(x: Vectors, y: Vectors) -> dict[str, float]:
    """What MSSE's dimension-level contrast asks for, on pairs of any texts: `own`, the mean correlation of a dimension
    with itself in the partners (higher is better), and `others`, the root mean square of that with other dimensions.

    x, y: [N, D], row i of each is a pair; centred columns (MSSE Eq. 3). Independent columns have others near 1 / sqrt(N).

    Raises:
        ValueError: shapes that do not fit, or fewer than two pairs.
    """
    correlation = cross_correlation(_tensor(x).double(), _tensor(y).double())  # [D, D]
    own, size = correlation.diagonal(), len(correlation)
    others = (correlation.square().sum() - own.square().sum()) / max(1, size * (size - 1))
    return {"own": float(own.mean()), "others": float(others.sqrt())}


def attention_entropy(probabilities: Tensor) -> Tensor:
    """How evenly attention is spread: entropy over the keys divided by log n; 1 is uniform, 0 a single key.

    probabilities: [..., n], each row sums to 1, over the n >= 2 real tokens of one sentence -> [...].
    """
    return torch.special.entr(probabilities).sum(-1) / math.log(probabilities.size(-1))


def cls_energy(context: Tensor, mask: Tensor) -> Tensor:
    """Length of the first token's vector over the Frobenius norm of all others (JTCSE, Eq. 6).

    context: [..., N, L, D], the context tensor of a layer (its attention times its values); mask: [N, L], padding on
    the right -> [..., N]. Infinite for a sentence of one token.
    """
    lengths = context.norm(dim=-1) * mask  # [..., N, L]
    return lengths[..., 0] / lengths[..., 1:].norm(dim=-1)


def attention_shares(attention: Tensor, mask: Tensor, groups: Tensor, count: int) -> Tensor:
    """How much of the attention of a sentence's tokens goes to each group of tokens, mean over heads and queries.

    attention: [layers, N, heads, L, L], rows over the keys; mask: [N, L]; groups: [N, L] int64, the group of every
    token, padding is ignored -> [layers, N, count], which sums to 1 over the groups.
    """
    received = (attention.mean(2) * mask[:, :, None]).sum(2) / mask.sum(1)[:, None]  # [layers, N, L]
    shares = received.new_zeros(*received.shape[:2], count)
    return shares.scatter_add_(2, groups.expand_as(received), received * mask)
