"""Two-dimensional maps of vectors, and how far they can be trusted."""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from openTSNE import TSNE
from openTSNE.initialization import rescale
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from lib.checks import DataError, check_choice
from lib.data.files import manifest
from lib.data.labelled import LabelledTexts, load_labelled
from lib.encoders import SentenceEncoder
from lib.evaluation.clustering import cluster_scores, k_means, unit_rows
from lib.evaluation.retrieval import top_k

LAYOUTS = ("tsne", "umap")
DRAWN = 600  # texts of a map that are published and drawn
TRUST_SAMPLE = 3_000  # texts among which neighbours are compared: the cost is quadratic


def layout(vectors: np.ndarray, kind: str = "tsne", *, start: np.ndarray | None = None) -> np.ndarray:
    """A map [n, 2] of vectors [n, D], taken at length 1, by their first 50 principal components.

    kind: `tsne` (openTSNE, perplexity 30) or `umap` (15 neighbours, cosine of the centred components); ConfigError for
    any other.
    start: [n, 2], where t-SNE begins; None: at the first two of these components.
    """
    check_choice("the kind of a map", kind, LAYOUTS)
    x = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    x = PCA(min(50, *x.shape), random_state=0).fit_transform(x)
    if kind == "tsne":
        first = "pca" if start is None else rescale(start)
        tsne = TSNE(
            perplexity=min(30, (len(x) - 1) / 3), initialization=first, random_state=0, n_jobs=torch.get_num_threads()
        )
        return np.asarray(tsne.fit(x))
    from umap import UMAP  # compiles for seconds, and most notebooks need none of it

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_jobs value", category=UserWarning)
        return UMAP(n_neighbors=min(15, len(x) - 1), metric="cosine", random_state=0).fit_transform(x)


def trust(vectors: np.ndarray, points: np.ndarray) -> float:
    """Trustworthiness of a map (Venna, Kaski 2001), 0 to 1: are the ten nearest on it near by cosine? 1: all of them. Among at
    most TRUST_SAMPLE of the vectors [n, D] and their places [n, 2], at least 22 of them."""
    rows = np.sort(np.random.default_rng(0).permutation(len(vectors))[:TRUST_SAMPLE])
    return float(trustworthiness(vectors[rows], points[rows], n_neighbors=10, metric="cosine"))


def cluster_map(vectors: Mapping[str, np.ndarray], task: LabelledTexts, kind: str = "tsne") -> pd.DataFrame:
    """The texts of a task on a map (see `layout`) for each encoder, with their labels and what one K-Means found (k: how many
    labels): encoder, text, label, cluster, x, y for each text; and, equal for all texts of an encoder, v_measure (x 100, mean
    of five starts of K-Means) and trust (`trust`, 0 to 1). vectors: name of an encoder -> [n, D]."""
    k, parts = len(set(task.labels)), []
    for name, x in vectors.items():
        scores, points = cluster_scores(x, task.labels, clusters=k), layout(x, kind)
        columns = {"encoder": name, "text": task.texts, "label": task.labels, "cluster": k_means(x, k)}
        columns |= {"x": points[:, 0], "y": points[:, 1], "trust": trust(x, points)}
        parts.append(pd.DataFrame(columns | {"v_measure": scores.query("metric == 'v_measure'").value.mean()}))
    return pd.concat(parts)


def labelled_map(
    data_dir: Path, name: str, kind: str
) -> tuple[Callable[[SentenceEncoder], pd.DataFrame], Callable[[SentenceEncoder], pd.DataFrame]]:
    """Two functions for `Plan.measure`, of the `cluster_map` of labelled texts (see `load_labelled`), made once for each
    encoder: points and quality.

    points: metric (the kind), item, label, cluster, x, y of at most DRAWN of the texts, the same ones for every encoder.
    quality: v_measure (x 100) and trustworthiness (0 to 1) of the map of all.
    """
    task = load_labelled(data_dir, name)

    @cache
    def mapped(encoder: SentenceEncoder) -> pd.DataFrame:
        return cluster_map({"": encoder.encode(list(task.texts))}, task, kind)

    def points(encoder: SentenceEncoder) -> pd.DataFrame:
        drawn = np.sort(np.random.default_rng(0).permutation(len(task))[:DRAWN])
        frame = mapped(encoder).rename_axis("item").reset_index().assign(metric=kind).iloc[drawn]
        return frame[["metric", "item", "label", "cluster", "x", "y"]].round({"x": 2, "y": 2})

    def quality(encoder: SentenceEncoder) -> pd.DataFrame:
        first, about = mapped(encoder).iloc[0], {"task": task.name, "protocol": f"{kind} map"}
        return pd.DataFrame(
            {"metric": ["v_measure", "trustworthiness"], "value": [first.v_measure, first.trust]} | about
        )

    return points, quality


def common_map(
    data_dir: Path, name: str, start: SentenceEncoder, *, size: int = 5_000
) -> tuple[Callable[[SentenceEncoder], pd.DataFrame], Callable[[SentenceEncoder], pd.DataFrame]]:
    """Two functions for `Plan.measure`, of `size` labelled texts (see `load_labelled`), the same ones for every encoder,
    and of K-Means with as many clusters as labels: points and quality.

    The maps can be compared by eye: t-SNE begins every one at the same places, the first two principal components of the
    vectors of one encoder, `start`.

    points: metric (tsne), group (the name of the texts), item (place in the file), label, cluster (first start of K-Means),
        x, y (one decimal).
    quality: v_measure (x 100), a row for each start of K-Means.
    """
    task = load_labelled(data_dir, name)
    items = np.sort(np.random.default_rng(0).permutation(len(task))[:size])
    texts, labels = [task.texts[i] for i in items], [task.labels[i] for i in items]
    k = len(set(labels))

    vectors = cache(lambda encoder: encoder.encode(texts))

    def points(encoder: SentenceEncoder) -> pd.DataFrame:
        begin = PCA(2, random_state=0).fit_transform(unit_rows(vectors(start)))
        places = layout(vectors(encoder), start=begin).round(1)
        columns = {"metric": "tsne", "group": task.name, "item": items, "label": labels}
        columns |= {"cluster": k_means(vectors(encoder), k), "x": places[:, 0], "y": places[:, 1]}
        return pd.DataFrame(columns)

    def quality(encoder: SentenceEncoder) -> pd.DataFrame:
        scores = cluster_scores(vectors(encoder), labels, clusters=k).query("metric == 'v_measure'")
        about = {"task": task.name, "split": "all", "protocol": f"map of {len(texts):,} texts, k {k}"}
        return scores.assign(**about, aggregation="start " + scores.seed.astype(str)).drop(columns="seed")

    return points, quality


def in_words(points: pd.DataFrame, data_dir: Path) -> pd.DataFrame:
    """Points of `common_map` with the names of their labels, and with their text, which is not published: where the texts
    are not in data_dir, it says so."""
    if not len(points):
        return points.assign(text="")
    name = points.group.iloc[0]
    names = dict(enumerate(manifest()["labelled"].get(name, {}).get("names", []), start=1))
    labels = [names.get(int(label), label) if label.isdigit() else label for label in points.label]
    try:
        texts = load_labelled(data_dir, name).texts
        return points.assign(label=labels, text=[texts[item] for item in points["item"]])
    except DataError as error:
        return points.assign(label=labels, text=str(error))


def neighbours(
    queries: Mapping[str, np.ndarray], vectors: Mapping[str, np.ndarray], places: Mapping[str, np.ndarray], k: int
) -> pd.DataFrame:
    """The places [n, 2] of texts on the map of each encoder, and the ranks of the k nearest by cosine to its query [1, D]:
    encoder, x, y, rank (from 1; NaN for all others); the row number is that of the text in vectors [n, D]."""
    parts = []
    for name, query in queries.items():
        nearest, _ = top_k(query, vectors[name], k)
        part = pd.DataFrame(places[name], columns=["x", "y"]).assign(encoder=name, rank=np.nan)
        part.loc[nearest[0], "rank"] = np.arange(1, nearest.shape[1] + 1)
        parts.append(part)
    return pd.concat(parts)
