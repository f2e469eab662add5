"""Do the clusters that K-Means finds among the vectors match the labels? (MSSE, Figure 4, which has no score.)"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score, v_measure_score
from threadpoolctl import threadpool_limits

from lib.data.labelled import LabelledTexts
from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct

AGREEMENTS = {"v_measure": v_measure_score, "ari": adjusted_rand_score}
SILHOUETTE_SAMPLE = 5_000  # texts among which silhouettes are taken: their cost is quadratic
STARTS = (0, 1, 2, 3, 4)  # seeds of K-Means


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1, float32 [n, D]; a row of zeros stays as it is."""
    rows = np.array(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def k_means(vectors: np.ndarray, clusters: int, *, seed: int = 0) -> np.ndarray:
    """The cluster of every text, whole numbers [n]: one K-Means of the vectors [n, D] at length 1, as cosines compare."""
    with threadpool_limits(1):  # the order of sums would show in the last digits, and so in a cluster
        return KMeans(clusters, n_init=1, random_state=seed).fit(unit_rows(vectors)).labels_


def cluster_scores(vectors: np.ndarray, labels: Sequence[str], *, clusters: int) -> pd.DataFrame:
    """How well clusters of vectors [n, D] match labels, and how far they lie apart, for each of the STARTS of K-Means.

    Returns:
        seed, metric, value x 100: `v_measure` (which is NMI with the arithmetic mean) and `ari` against the labels, and
        `silhouette` of the clusters by cosine, among at most SILHOUETTE_SAMPLE texts (NaN where all texts are in one).
    """
    rows, unit = [], unit_rows(vectors)
    for seed in STARTS:
        found = k_means(vectors, clusters, seed=seed)
        values = {name: score(labels, found) for name, score in AGREEMENTS.items()}
        sample = {"sample_size": min(len(vectors), SILHOUETTE_SAMPLE), "random_state": seed}
        is_defined = 2 <= len(set(found.tolist())) < len(vectors)
        values["silhouette"] = silhouette_score(unit, found, metric="cosine", **sample) if is_defined else np.nan
        rows += [(seed, name, 100 * float(value)) for name, value in values.items()]
    return pd.DataFrame(rows, columns=["seed", "metric", "value"])


def evaluate_clustering(encode: Encode, task: LabelledTexts, *, clusters: Sequence[int] = (0,)) -> pd.DataFrame:
    """`cluster_scores` of an encoder, the mean over the starts of K-Means, as RESULT_COLUMNS. clusters: k; 0 is the number of
    labels (MSSE takes 30 for 20 labels)."""
    vectors, row_of = encode_distinct(encode, task.texts, np.float32)
    vectors = vectors[[row_of[text] for text in task.texts]]
    rows = []
    for k in (asked or len(set(task.labels)) for asked in clusters):
        scores = cluster_scores(vectors, task.labels, clusters=k)
        labels = (task.name, "all", f"K-Means, k {k}, vectors of length 1, {len(task):,} texts")
        means = scores.groupby("metric", sort=False).value.mean()
        rows += [(*labels, f"mean of {len(STARTS)} starts", name, value) for name, value in means.items()]
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)
