"""In-domain retrieval among the sentences of STS-B test (DiffCSE, InfoCSE Table 11), and nearest texts.

Protocol: the corpus is every sentence of the pairs; the queries come from the pairs with the top gold score,
5.0 (97 in the STS-B test set); texts are ranked by cosine; recall@k is the share of queries whose partner is
among the first k. InfoCSE queries with sentence 1 (97 queries), DiffCSE with both sentences (194): their
numbers are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

TOP_SCORE = 5.0


def in_domain_retrieval(
    encode: Callable[[list[str]], np.ndarray],
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    gold: np.ndarray,
    *,
    queries: Literal["first", "both"] = "first",
    ks: Sequence[int] = (1, 5, 10),
) -> pd.DataFrame:
    """Recall of the partner sentence among all sentences of the STS-B test pairs.

    The corpus has every text once and the query's own text is left out of its ranking: with the copies in,
    recall@1 could not exceed 66 / 97 on the real data, less than any published value. A hit is the partner's
    text. Each pair is a query of its own, also where several share a sentence. Pairs of two identical texts
    have no partner to find and are skipped (the STS-B test set has none). Equal cosines rank in corpus order:
    sentences 1, then sentences 2.

    Args:
        encode: n texts -> embeddings [n, D]; called once, with the distinct texts.
        sentences1, sentences2: the n pairs, as texts.
        gold: [n] scores in 0..5.
        queries: `first`: sentence 1 of each pair (InfoCSE); `both`: either sentence (DiffCSE).

    Returns:
        One row per k: columns task, split, protocol, aggregation, metric (`recall@k`), value (x 100).

    Raises:
        ValueError: unknown `queries`, a k below 1, lists of unequal length, or no pair with the top score.
    """
    if queries not in ("first", "both"):
        raise ValueError(f"queries is {queries!r}: choose 'first' or 'both'.")
    if not ks or min(ks) < 1:
        raise ValueError(f"ks is {tuple(ks)}: give ranks from 1.")
    top = [
        (first, second)
        for first, second, score in zip(sentences1, sentences2, gold, strict=True)
        if score == TOP_SCORE and first != second
    ]
    if not top:
        raise ValueError(f"No pair of two different texts has the gold score {TOP_SCORE}.")
    if queries == "both":
        top += [(second, first) for first, second in top]

    corpus = {text: row for row, text in enumerate(dict.fromkeys([*sentences1, *sentences2]))}
    vectors = _unit_vectors(encode, list(corpus))
    query, partner = (np.array([corpus[text] for text in side]) for side in zip(*top, strict=True))
    cosines = vectors[query] @ vectors.T
    each = np.arange(len(query))
    cosines[each, query] = -np.inf
    of_partner = cosines[each, partner][:, None]
    earlier = np.arange(len(corpus)) < partner[:, None]
    ahead = (cosines > of_partner) | ((cosines == of_partner) & earlier)
    rank = 1 + ahead.sum(axis=1)

    rule = "sentence 1" if queries == "first" else "both sentences"
    protocol = f"gold 5 pairs, queries: {rule}, corpus: distinct texts without the query"
    rows = [("STS-B retrieval", "test", protocol, "-", f"recall@{k}", 100 * float((rank <= k).mean())) for k in ks]
    return pd.DataFrame(rows, columns=["task", "split", "protocol", "aggregation", "metric", "value"])


def nearest(
    encode: Callable[[list[str]], np.ndarray], queries: Sequence[str], corpus: Sequence[str], k: int = 3
) -> pd.DataFrame:
    """The k texts of a corpus nearest to each query by cosine, as in the papers' qualitative examples.

    The corpus is de-duplicated by text and the query's own text left out; equal cosines keep corpus order.

    Returns:
        Up to k rows per query, best first: columns query, rank (from 1), text, cosine.

    Raises:
        ValueError: k is below 1, or there is no query or no corpus.
    """
    if k < 1 or not queries or not corpus:
        raise ValueError("nearest needs k of at least 1, a query and a corpus.")
    rows = {text: row for row, text in enumerate(dict.fromkeys([*corpus, *queries]))}
    texts, size = list(rows), len(set(corpus))
    vectors = _unit_vectors(encode, texts)
    found = []
    for query in queries:
        cosines = vectors[:size] @ vectors[rows[query]]
        order = [row for row in np.argsort(-cosines, kind="stable")[: k + 1] if texts[row] != query][:k]
        found += [(query, rank, texts[row], float(cosines[row])) for rank, row in enumerate(order, start=1)]
    return pd.DataFrame(found, columns=["query", "rank", "text", "cosine"])


def _unit_vectors(encode: Callable[[list[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    """Embeddings of unit length, float64 [n, D]. As in the STS protocol, what is not a number counts as 0,
    and a zero vector has cosine 0 with everything."""
    vectors = np.nan_to_num(np.asarray(encode(texts), dtype=np.float64), posinf=0, neginf=0)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ValueError(f"encode gave an array of shape {vectors.shape} for {len(texts)} texts.")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)
