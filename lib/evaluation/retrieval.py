"""Retrieval by cosine: collections with judgements, STS-B test (DiffCSE, InfoCSE Table 11), and nearest texts."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import pytrec_eval
import torch

from lib.checks import DataError
from lib.data import STSTask
from lib.data.retrieval import RetrievalTask
from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct

TOP_SCORE = 5.0
DEPTH = 1000  # documents ranked for each query, as in TREC
QUERY_BLOCK = 256  # queries compared with the corpus at a time


def top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest rows of a corpus [n, D] by cosine to queries [q, D], exactly; equal cosines rank in corpus order:
    row numbers [q, k] and cosines [q, k], best first; k is at most n.

    A row of zeros has cosine 0 with all; numbers that are not finite count as 0. Beside its input it needs 4 kB for each
    row of the corpus.
    """
    unit, rows, cosines = _unit(corpus), [], []
    for block in _unit(queries).split(QUERY_BLOCK):
        values, order = (block @ unit.T).sort(dim=1, descending=True, stable=True)
        rows.append(order[:, :k])
        cosines.append(values[:, :k])
    return torch.cat(rows).numpy(), torch.cat(cosines).numpy()


def _unit(vectors: np.ndarray) -> torch.Tensor:
    rows = torch.from_numpy(np.ascontiguousarray(vectors)).nan_to_num(0, posinf=0, neginf=0)
    return torch.nn.functional.normalize(rows, dim=1)


def ranked(query: np.ndarray, corpus: np.ndarray, texts: Sequence[str], k: int) -> pd.DataFrame:
    """The k texts nearest to one query [1, D] among vectors [n, D] of the texts, by `top_k`: cosine and sentence, by rank from 1."""
    rows, cosines = top_k(query, corpus, k)
    index = pd.RangeIndex(1, rows.shape[1] + 1, name="rank")
    return pd.DataFrame({"cosine": cosines[0], "sentence": [texts[row] for row in rows[0]]}, index=index)


def evaluate_retrieval(encode: Encode, task: RetrievalTask, *, ks: Sequence[int] = (1, 10, 100)) -> pd.DataFrame:
    """Rank all documents for every query by cosine and score the ranking with trec_eval's measures, x 100, as RESULT_COLUMNS.

    A document with the very text of the query is no answer and is left out of its ranking. Documents that are
    equally near to a query rank in corpus order; trec_eval alone would rank them by their ids. ks: depths of recall, at most
    DEPTH; nDCG is at 10, MAP and MRR at DEPTH.
    """
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
    encode: Encode, task: STSTask, *, queries: Literal["first", "both"] = "first", ks: Sequence[int] = (1, 5, 10)
) -> pd.DataFrame:
    """Recall@k: the share of queries whose partner is among the k nearest sentences of all pairs, by cosine; a row for each k.

    Queries come from the pairs with the top gold score, 5.0 (97 in the STS-B test set; DataError where there is none); two
    identical texts have no partner to find and are skipped. The corpus has every text once, and a query's own text is left
    out of its ranking: with the copies in, recall@1 could not exceed 66 / 97 on the real data, less than any published value.
    Equal cosines rank in corpus order: sentences 1, then sentences 2.

    Args:
        queries: `first`: sentence 1 of each pair (InfoCSE, 97 queries); `both`: either sentence (DiffCSE, 194). Their
            numbers are not comparable.
    """
    pairs = zip(task.sentences1, task.sentences2, task.gold, strict=True)
    top = [(first, second) for first, second, score in pairs if score == TOP_SCORE and first != second]
    if not top:
        raise DataError(f"no pair of two different texts of {task.name} has the gold score {TOP_SCORE}.")
    if queries == "both":
        top += [(second, first) for first, second in top]

    vectors, row_of = encode_distinct(encode, [*task.sentences1, *task.sentences2], np.float64)
    query, partner = (np.array([row_of[text] for text in side]) for side in zip(*top, strict=True))
    order, _ = top_k(vectors[query], vectors, len(vectors))
    own, found = ((order == row[:, None]).argmax(axis=1) for row in (query, partner))
    rank = 1 + found - (own < found)  # without the query itself

    rule = "sentence 1" if queries == "first" else "both sentences"
    protocol = f"gold 5 pairs, queries: {rule}, corpus: distinct texts without the query"
    labels = (f"{task.name} retrieval", task.split, protocol, "-")
    rows = [(*labels, f"recall@{k}", 100 * float((rank <= k).mean())) for k in ks]
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)
