"""Where embeddings lie: alignment and uniformity. Tensors in, numbers out."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Vectors = Tensor | np.ndarray


def _unit(x: Vectors) -> Tensor:
    return F.normalize((x if isinstance(x, Tensor) else torch.from_numpy(x)).float(), dim=-1)


def alignment(x: Vectors, y: Vectors, *, alpha: float = 2) -> Tensor:
    """Mean distance of positive pairs to the power alpha, on the unit sphere; lower is better.

    Wang and Isola 2020 (arXiv 2005.10242); SimCSE Eq. 2. x, y: [N, D], row i of each is a pair.
    """
    return (_unit(x) - _unit(y)).norm(dim=1).pow(alpha).mean()


def uniformity(x: Vectors, *, t: float = 2, rows_at_once: int = 2048) -> Tensor:
    """log E exp(-t |x - y|^2) over all unordered pairs of distinct rows, on the unit sphere; lower is better.

    Wang and Isola 2020 (arXiv 2005.10242); SimCSE Eq. 3. x: [N, D]; memory is rows_at_once x N. Raises
    ValueError for fewer than two rows.
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
