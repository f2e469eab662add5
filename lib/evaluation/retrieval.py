"""In-domain retrieval among the sentences of STS-B test (DiffCSE, InfoCSE Table 11), and nearest texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct

TOP_SCORE = 5.0


def in_domain_retrieval(
    encode: Encode,
    sentences1: Sequence[str],
    sentences2: Sequence[str],
    gold: np.ndarray,
    *,
    queries: Literal["first", "both"] = "first",
    ks: Sequence[int] = (1, 5, 10),
) -> pd.DataFrame:
    """Recall@k: the share of queries whose partner is among the k nearest sentences of all pairs, by cosine.

    The queries come from the pairs with the top gold score, 5.0 (97 in the STS-B test set); pairs that share a
    sentence are separate queries. Pairs of two identical texts have no partner to find and are skipped (the STS-B test
    set has none). The corpus has every text once, and a query's own text is left out of its ranking: with the copies
    in, recall@1 could not exceed 66 / 97 on the real data, less than any published value. Equal cosines rank in corpus
    order: sentences 1, then sentences 2.

    Args:
        encode: n texts -> embeddings [n, D]; called once, with the distinct texts.
        sentences1, sentences2: the n pairs, as texts.
        gold: [n] scores in 0..5.
        queries: `first`: sentence 1 of each pair (InfoCSE, 97 queries); `both`: either sentence (DiffCSE, 194). Their
            numbers are not comparable.

    Returns:
        One row per k: columns task, split, protocol, aggregation, metric (`recall@k`), value (x100).

    Raises:
        ValueError: unknown `queries`, a k below 1, lists of unequal length, no pair with the top score, or `encode`
            returned another shape than [n, D].
    """
    if queries not in ("first", "both"):
        raise ValueError(f"queries is {queries!r}: choose 'first' or 'both'.")
    if not ks or min(ks) < 1:
        raise ValueError(f"ks is {tuple(ks)}: give ranks from 1.")
    pairs = zip(sentences1, sentences2, gold, strict=True)
    top = [(first, second) for first, second, score in pairs if score == TOP_SCORE and first != second]
    if not top:
        raise ValueError(f"no pair of two different texts has the gold score {TOP_SCORE}.")
    if queries == "both":
        top += [(second, first) for first, second in top]

    vectors, row_of = _unit_vectors(encode, [*sentences1, *sentences2])
    query, partner = (np.array([row_of[text] for text in side]) for side in zip(*top, strict=True))
    cosines = vectors[query] @ vectors.T
    cosines[np.arange(len(query)), query] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")
    rank = 1 + (order == partner[:, None]).argmax(axis=1)

    rule = "sentence 1" if queries == "first" else "both sentences"
    protocol = f"gold 5 pairs, queries: {rule}, corpus: distinct texts without the query"
    rows = [("STS-B retrieval", "test", protocol, "-", f"recall@{k}", 100 * float((rank <= k).mean())) for k in ks]
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)


def nearest(encode: Encode, queries: Sequence[str], corpus: Sequence[str], k: int = 3) -> pd.DataFrame:
    """The k texts of a corpus nearest to each query by cosine, as in the papers' qualitative examples.

    The corpus is de-duplicated by text and the query's own text left out; equal cosines keep corpus order.

    Returns:
        Up to k rows per query, best first: columns query, rank (from 1), text, cosine.

    Raises:
        ValueError: k is below 1, there is no query or no corpus, or `encode` returned another shape than [n, D].
    """
    if k < 1 or not queries or not corpus:
        raise ValueError("nearest needs k of at least 1, a query and a corpus.")
    vectors, row_of = _unit_vectors(encode, [*corpus, *queries])
    texts, size = list(row_of), len(set(corpus))
    rows = []
    for query in queries:
        cosines = vectors[:size] @ vectors[row_of[query]]
        order = [row for row in np.argsort(-cosines, kind="stable")[: k + 1] if texts[row] != query][:k]
        rows += [(query, rank, texts[row], float(cosines[row])) for rank, row in enumerate(order, start=1)]
    return pd.DataFrame(rows, columns=["query", "rank", "text", "cosine"])


def _unit_vectors(encode: Encode, texts: Iterable[str]) -> tuple[np.ndarray, dict[str, int]]:
    """`encode_distinct` with float64 vectors of length 1. As in STS, numbers that are not finite count as 0."""
    vectors, row_of = encode_distinct(encode, texts, np.float64)
    vectors = np.nan_to_num(vectors, posinf=0, neginf=0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths), row_of  # a zero vector has cosine 0 with everything
