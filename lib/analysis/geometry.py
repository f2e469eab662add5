"""Where embeddings lie: alignment and uniformity, cosines of scored pairs, the spectrum."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.data import STSTask
from lib.encoders import SentenceEncoder
from lib.evaluation.sts import cosine

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


def gold_cosines(encoder: SentenceEncoder, pairs: STSTask) -> pd.DataFrame:
    """Gold score (x) and cosine (y) of at most 500 pairs, evenly spread (SimCSE, Figure G.1; miCSE, Figure 7): metric, item, x, y."""
    spread = slice(None, None, -(-len(pairs.gold) // 500))
    first, second = (encoder.encode(texts[spread]) for texts in (pairs.sentences1, pairs.sentences2))
    values = {"metric": "gold score", "x": pairs.gold[spread], "y": cosine(first, second).round(5)}
    return pd.DataFrame(values).rename_axis("item").reset_index()


def spectrum(encoder: SentenceEncoder, texts: Sequence[str]) -> pd.DataFrame:
    """Singular values of the texts' embeddings, falling, over the largest (y), and their numbers from 1 (x) (SimCSE,
    Figure F.1): metric, item, x, y."""
    values = np.linalg.svd(encoder.encode(texts), compute_uv=False)
    numbers = np.arange(len(values))
    return pd.DataFrame(
        {"metric": "singular value", "item": numbers, "x": 1 + numbers, "y": (values / values[0]).round(5)}
    )
