"""Clusters against labels: the plain scikit-learn calls, the rows of an encoder, vectors without a direction."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, completeness_score, homogeneity_score, silhouette_score

from lib.data.labelled import LabelledTexts
from lib.evaluation.clustering import cluster_scores, evaluate_clustering, unit_rows


def blobs(spread, n=240, topics=4, seed=0):
    """Directions around `topics` axes, of very different lengths."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % topics
    vectors = np.eye(8, dtype=np.float32)[labels] + spread * random.normal(size=(n, 8))
    return (vectors * random.uniform(0.1, 10, size=(n, 1))).astype(np.float32), [f"topic {x}" for x in labels]


def values(vectors, labels, clusters, start=0):
    return cluster_scores(vectors, labels, clusters=clusters).query("seed == @start").set_index("metric").value


def test_equals_the_plain_calls():
    vectors, labels = blobs(0.5, seed=3)
    scores = values(vectors, labels, clusters=5, start=2)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = KMeans(5, n_init=1, random_state=2).fit_predict(unit)
    one, two = homogeneity_score(labels, found), completeness_score(labels, found)
    assert scores["v_measure"] == pytest.approx(200 * one * two / (one + two), abs=1e-6)
    assert scores["ari"] == pytest.approx(100 * adjusted_rand_score(labels, found), abs=1e-6)
    assert scores["silhouette"] == pytest.approx(100 * silhouette_score(unit, found, metric="cosine"), abs=1e-3)


def test_more_clusters_than_labels_and_the_rows_of_an_encoder():
    vectors, labels = blobs(0.3)
    texts = tuple(f"text {i % 200}" for i in range(240))  # some twice
    task, calls = LabelledTexts("toy", texts, tuple(labels)), []

    def encode(asked):
        calls.append(len(asked))
        return vectors[[int(text.split()[1]) for text in asked]]

    rows = evaluate_clustering(encode, task, clusters=(0, 9))
    assert calls == [200] and rows.aggregation.unique().tolist() == ["mean of 5 starts"]
    assert rows.protocol.unique().tolist() == [f"K-Means, k {k}, vectors of length 1, 240 texts" for k in (4, 9)]
    own = cluster_scores(vectors[[int(t.split()[1]) for t in texts]], labels, clusters=9)
    expected = own[own.metric == "ari"].value.mean()
    assert rows[rows.protocol.str.contains("k 9") & (rows.metric == "ari")].value.item() == pytest.approx(expected)


def test_rows_without_a_direction_are_zero_and_have_a_score():
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    labels = list("aabbcc")
    with pytest.warns(ConvergenceWarning):
        collapsed = values(np.ones((6, 4)), labels, clusters=3)
    assert collapsed["ari"] == 0 and np.isnan(collapsed["silhouette"])
