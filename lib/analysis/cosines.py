"""Cosines of scored pairs (SimCSE's Figure G.1, miCSE's Figure 7) and the spectrum of their vectors (SimCSE's Figure F.1)."""

import numpy as np
import pandas as pd

from lib.data import STSTask
from lib.encoders import SentenceEncoder
from lib.evaluation.sts import cosine

MOST = 500  # points of a figure


def by_gold(encoder: SentenceEncoder, pairs: STSTask) -> pd.DataFrame:
    """Points, of at most 500 pairs evenly spread: x is the gold score, y the cosine.

    Returns:
        metric ("gold score"), group (empty), item, x, y.
    """
    values = {"x": pairs.gold, "y": cosine(encoder.encode(pairs.sentences1), encoder.encode(pairs.sentences2))}
    every = pd.DataFrame({"metric": "gold score", "group": ""} | values)[:: -(-len(pairs.gold) // MOST)]
    return every.reset_index(drop=True).rename_axis("item").reset_index()


def singular_values(encoder: SentenceEncoder, pairs: STSTask) -> pd.DataFrame:
    """A curve: the singular values of the vectors of all sentences of the pairs, divided by the largest, falling.

    Returns:
        metric ("singular value"), step (0 for the largest), value.
    """
    vectors = encoder.encode([*pairs.sentences1, *pairs.sentences2])
    values = np.linalg.svd(vectors, compute_uv=False)
    return pd.DataFrame({"metric": "singular value", "step": range(len(values)), "value": values / values[0]})
