"""STS as the papers of this field score it: Spearman of cosine and gold, x100, no regressor."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from lib.checks import EncoderError
from lib.data.sts import SCALE, STS_TASKS, STSTask
from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct


def spearman(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Spearman correlation x100 with average ranks for ties; NaN when one side is constant."""
    return pearson(rankdata(predicted), rankdata(gold))


def pearson(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Pearson correlation x100; NaN when one side is constant."""
    both = np.stack([predicted, gold])
    both = both - both.mean(1, keepdims=True)
    norms = np.linalg.norm(both, axis=1)
    return float(100 * both[0] @ both[1] / norms.prod()) if norms.all() else float("nan")


def cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Row-wise cosine, float64 [n]. NaN (from a zero or broken vector) becomes 0, as in SentEval."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (x * y).sum(1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1))
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def task_scores(task: STSTask, predicted: np.ndarray, *, ranks: bool = True) -> dict[str, float]:
    """The three aggregations for predictions [n] in the order of the task's concatenated subsets.

    all: one correlation over the concatenation (SimCSE and its successors). mean: unweighted mean of the subsets'
    correlations. wmean: their mean weighted by the number of scored pairs. With one subset the three are equal.
    ranks: Spearman's correlation; Pearson's otherwise.
    """
    correlate = spearman if ranks else pearson
    sizes = [len(subset) for subset in task.subsets.values()]
    parts = np.split(predicted, np.cumsum(sizes)[:-1])
    correlations = [correlate(part, subset.gold) for part, subset in zip(parts, task.subsets.values(), strict=True)]
    mean, weighted = np.mean(correlations), np.average(correlations, weights=sizes)
    return {"all": correlate(predicted, task.gold), "mean": float(mean), "wmean": float(weighted)}


def evaluate_sts(encode: Encode, tasks: Sequence[STSTask]) -> pd.DataFrame:
    """Score all tasks from one `encode` call over their distinct sentences. Raises EncoderError where there is no score: the
    vectors are not finite, or equally near in all pairs.

    Returns:
        Rows task, split, protocol, aggregation (all, mean, wmean), metric "spearman", value (x100). With all seven
        test tasks, also rows of a task "Avg.": the mean of the seven scores, each rounded to two decimals first.
    """
    vectors, row_of = encode_distinct(encode, (s for task in tasks for s in (*task.sentences1, *task.sentences2)))
    rows = []
    for task in tasks:
        first, second = (vectors[[row_of[s] for s in side]] for side in (task.sentences1, task.sentences2))
        scores = task_scores(task, cosine(first, second))
        if np.isnan(list(scores.values())).any():
            raise EncoderError(f"the encoder finds all pairs of {task.name} equally near: take another one.")
        rows += [(task.name, task.split, task.protocol, name, "spearman", value) for name, value in scores.items()]
    frame = pd.DataFrame(rows, columns=RESULT_COLUMNS)
    seven = frame[frame.task.isin(STS_TASKS) & (frame.split == "test")]
    if set(seven.task) != set(STS_TASKS):
        return frame
    average = seven.assign(value=seven.value.round(2)).groupby("aggregation", sort=False).value.mean().reset_index()
    average = average.assign(task="Avg.", split="test", protocol="SentEval", metric="spearman")
    return pd.concat([frame, average[RESULT_COLUMNS]], ignore_index=True)


def evaluate_pair(encode: Encode, task: STSTask, subset: str, line: int) -> pd.DataFrame:
    """The cosine of one pair and its gold score, x 100 (3R, Table 4). line: of the subset's scored pairs, from 1."""
    pairs = task.subsets[subset]
    first, second = (side[line - 1] for side in (pairs.sentences1, pairs.sentences2))
    values = {"cosine": cosine(*np.split(encode([first, second]), 2))[0], "gold": pairs.gold[line - 1] / SCALE[1]}
    row = (f"{task.name}, {subset}, {line}", task.split, task.protocol, "")
    return pd.DataFrame([(*row, metric, 100 * value) for metric, value in values.items()], columns=RESULT_COLUMNS)
