"""Retrieval by cosine: collections with judgements, STS-B test (DiffCSE, InfoCSE Table 11), and nearest texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pandas as pd
import pytrec_eval
import torch

from lib.data.retrieval import RetrievalTask
from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct

TOP_SCORE = 5.0
DEPTH = 1000  # documents ranked for each query, as in TREC
QUERY_BLOCK, CORPUS_BLOCK = 256, 16_384  # cosines computed at a time: 16 MiB


def top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest rows of a corpus by cosine, exactly; equal cosines rank in corpus order.

    Works in blocks: beside its input and output it needs about 250 MB, whatever the size of the corpus.

    Args:
        queries: [q, D]. corpus: [n, D], float32. A row of zeros, or one that is not finite, has cosine 0 with all.
        k: at most n are returned.

    Returns:
        Row numbers [q, k] and cosines [q, k], best first.

    Raises:
        ValueError: k is below 1, or the dimensions differ.
    """
    if k < 1 or queries.shape[1] != corpus.shape[1]:
        raise ValueError(f"top_k of {queries.shape} among {corpus.shape} with k {k}: k from 1, equal dimensions.")
    found = [_top_k_of_block(_unit(part), corpus, min(k, len(corpus))) for part in _blocks(queries, QUERY_BLOCK)]
    indices, cosines = zip(*found, strict=True)
    return np.concatenate(indices), np.concatenate(cosines)


def ranked(query: np.ndarray, corpus: np.ndarray, texts: Sequence[str], k: int) -> pd.DataFrame:
    """The k texts nearest to one query [1, D] among vectors [n, D] of the texts, by `top_k`: cosine and sentence, by rank from 1."""
    rows, cosines = top_k(query, corpus, k)
    index = pd.RangeIndex(1, rows.shape[1] + 1, name="rank")
    return pd.DataFrame({"cosine": cosines[0], "sentence": [texts[row] for row in rows[0]]}, index=index)


def _top_k_of_block(queries: torch.Tensor, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    best, rows = queries.new_empty(len(queries), 0), queries.new_empty(len(queries), 0, dtype=torch.long)
    for number, block in enumerate(_blocks(corpus, CORPUS_BLOCK)):
        cosines = queries @ _unit(block).T  # [q, b]
        own = number * CORPUS_BLOCK + torch.arange(len(block), device=queries.device)
        best = torch.cat([best, cosines], dim=1)  # earlier rows stand first
        rows = torch.cat([rows, own.expand(len(queries), -1)], dim=1)
        keep = min(k, best.size(1))
        smallest = best.kthvalue(best.size(1) - keep + 1, dim=1, keepdim=True).values
        ties = best == smallest
        above = best > smallest
        chosen = above | (ties & (ties.cumsum(1) <= keep - above.sum(1, keepdim=True)))  # the first of equals
        best, rows = (x[chosen].view(len(queries), keep) for x in (best, rows))
    order = best.argsort(dim=1, descending=True, stable=True)
    return rows.gather(1, order).numpy(), best.gather(1, order).numpy()


def _blocks(vectors: np.ndarray, size: int) -> list[np.ndarray]:
    return [vectors[start : start + size] for start in range(0, len(vectors), size)]


def _unit(vectors: np.ndarray) -> torch.Tensor:
    """Rows of length 1; numbers that are not finite count as 0."""
    rows = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32)).nan_to_num(0, posinf=0, neginf=0)
    return torch.nn.functional.normalize(rows, dim=1)


def evaluate_retrieval(encode: Encode, task: RetrievalTask, *, ks: Sequence[int] = (1, 10, 100)) -> pd.DataFrame:
    """Rank all documents for every query by cosine and score the ranking with trec_eval's measures.

    A document with the very text of the query is no answer and is left out of its ranking. Documents that are
    equally near to a query rank in corpus order; trec_eval alone would rank them by their ids.

    Args:
        encode: n texts -> embeddings [n, D]; what is longer than the encoder takes is cut by it.
        ks: depths of recall; nDCG is at 10, MAP and MRR at DEPTH.

    Returns:
        Rows task, split, protocol, aggregation, metric (`ndcg@10`, `map`, `mrr`, `recall@k`), value (x100).

    Raises:
        ValueError: a k below 1 or beyond DEPTH, or `encode` returned another shape than [n, D].
    """
    if not ks or min(ks) < 1 or max(ks) > DEPTH:
        raise ValueError(f"ks is {tuple(ks)}: give depths from 1 to {DEPTH}.")
    vectors, row_of = encode_distinct(encode, [*task.queries.values(), *task.documents.values()], np.float32)
    texts, names = list(task.documents.values()), list(task.documents)
    corpus = vectors[[row_of[text] for text in texts]]
    often = Counter(texts)
    copies = max((often[text] for text in task.queries.values()), default=0)
    nearest_rows, _ = top_k(vectors[[row_of[text] for text in task.queries.values()]], corpus, DEPTH + copies)
    ranking = {}
    for (query, text), rows in zip(task.queries.items(), nearest_rows, strict=True):
        kept = [names[row] for row in rows if texts[row] != text][:DEPTH]
        ranking[query] = {name: float(len(kept) - rank) for rank, name in enumerate(kept)}
    measures = {"ndcg@10": "ndcg_cut_10", "map": "map", "mrr": "recip_rank"}
    measures |= {f"recall@{k}": f"recall_{k}" for k in ks}
    asked = {"ndcg_cut.10", "map", "recip_rank", "recall." + ",".join(map(str, ks))}
    scores = pytrec_eval.RelevanceEvaluator(task.relevance, asked).evaluate(ranking)
    protocol = f"cosine, {len(task.queries):,} queries, {len(texts):,} documents"
    rows = [
        (task.name, task.split, protocol, "-", name, 100 * float(np.mean([s[measure] for s in scores.values()])))
        for name, measure in measures.items()
    ]
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)


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
