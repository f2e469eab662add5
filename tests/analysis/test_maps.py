"""Maps: neighbours stay neighbours, a shuffled map is not trusted, the same seed gives the same map."""

import numpy as np
import pandas as pd
import pytest

from lib.analysis import maps
from lib.analysis.maps import cluster_map, common_map, in_words, labelled_map, layout, neighbours, trust
from lib.checks import ConfigError
from lib.data.files import manifest
from lib.data.labelled import LabelledTexts, load_labelled


class Encoder:
    """Gives what a function makes of the texts."""

    def __init__(self, encode):
        self.encode = encode


@pytest.mark.parametrize("kind", ["tsne", "umap"])
def test_a_map_keeps_the_groups_and_a_shuffled_one_does_not(kind):
    groups = np.arange(120) % 6
    vectors = np.eye(6)[groups] + 0.1 * np.random.default_rng(0).normal(size=(120, 6))
    points = layout(vectors, kind)
    assert points.shape == (120, 2) and np.isfinite(points).all()
    centres = np.stack([points[groups == g].mean(0) for g in range(6)])
    nearest = np.linalg.norm(points[:, None] - centres[None], axis=2).argmin(1)
    assert (nearest == groups).mean() > 0.95
    assert trust(vectors, points) > 0.9 > 0.7 > trust(vectors, np.random.default_rng(1).permutation(points))
    np.testing.assert_allclose(layout(vectors * 7, kind), points, atol=1e-3)  # lengths do not count, the seed does
    with pytest.raises(ConfigError, match="'pca' is unknown: choose one of tsne, umap"):
        layout(vectors, "pca")


def test_the_map_of_an_encoder_that_knows_the_labels_and_of_one_that_does_not():
    whole = load_labelled(None, "demo")
    task = LabelledTexts("some", whole.texts[:150], whole.labels[:150])
    kinds = sorted(set(task.labels))
    random = np.random.default_rng(0)
    noise = random.normal(size=(len(task), len(kinds)))
    knows = np.eye(len(kinds))[[kinds.index(label) for label in task.labels]] + 0.05 * noise
    mapped = cluster_map({"knows": knows, "noise": noise}, task)
    for name, part in mapped.groupby("encoder"):
        assert list(part.text) == list(task.texts) and list(part.label) == list(task.labels)
        assert part.cluster.nunique() == len(kinds) and part.v_measure.nunique() == part.trust.nunique() == 1
        together = part.groupby("label").cluster.agg(lambda c: c.value_counts().iloc[0]).sum() / len(part)
        assert (together > 0.9) == (name == "knows")
    quality = mapped.groupby("encoder").v_measure.first()
    assert quality["knows"] > 90 > 30 > quality["noise"]


def test_points_and_quality_of_a_map_of_some_texts_are_rows_to_publish(monkeypatch, tmp_path):
    monkeypatch.setattr(maps, "DRAWN", 50)
    lines = [f"text {at},{'ab'[at % 2]}" for at in range(120)]
    (tmp_path / "mine.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    asked, random = [], np.random.default_rng(0)
    near = {text: random.normal(size=8) + 2 * (label == "a") for text, label in (line.split(",") for line in lines)}
    encoder = Encoder(lambda texts: asked.append(texts) or np.stack([near[text] for text in texts]))
    points, quality = (what(encoder) for what in labelled_map(tmp_path, "mine.csv", "tsne"))
    assert len(asked) == 1 and len(points) == points.item.nunique() == 50
    assert list(points) == ["metric", "item", "label", "cluster", "x", "y"]
    values = quality.set_index("metric").value
    assert 0 < values.trustworthiness <= 1 < values.v_measure < 100 and set(quality.protocol) == {"tsne map"}


def test_maps_with_a_common_start_lie_alike_where_the_vectors_do_not():
    task, random = load_labelled(None, "demo"), np.random.default_rng(0)
    groups = np.unique(task.labels, return_inverse=True)[1]
    vectors = dict(zip(task.texts, np.eye(20)[groups] + 0.05 * random.normal(size=(len(task), 20)), strict=True))
    signs = np.where(np.arange(20) % 2, 1, -1)  # the same cosines, other components
    first, other = (Encoder(lambda texts, by=by: by * np.stack([vectors[text] for text in texts])) for by in (1, signs))
    points, quality = common_map(None, "demo", first, size=120)
    one, two = points(first), points(other)
    assert list(one) == ["metric", "group", "item", "label", "cluster", "x", "y"] and len(one) == 120
    assert [task.labels[item] for item in one["item"]] == list(one.label) and one["item"].equals(two["item"])
    moved = np.hypot(one.x - two.x, one.y - two.y).median()
    assert moved < 0.1 * np.hypot(one.x - one.x.mean(), one.y - one.y.mean()).median()
    scores = quality(first)
    assert scores.aggregation.tolist() == [f"start {seed}" for seed in range(5)] and (scores.value > 90).all()


def test_published_points_get_the_names_of_their_labels_and_their_texts_where_these_are(tmp_path, monkeypatch):
    monkeypatch.setitem(manifest()["labelled"]["stackoverflow"], "rows", {"test": 2})
    points = pd.DataFrame({"group": "stackoverflow", "item": [1, 0], "label": ["20", "1"]})
    missing = in_words(points, tmp_path)
    assert list(missing.label) == ["magento", "wordpress"] and "title_StackOverflow.txt" in missing.text[0]
    (tmp_path / "stackoverflow").mkdir()
    (tmp_path / "stackoverflow/title_StackOverflow.txt").write_text("a theme\na shop\n")
    (tmp_path / "stackoverflow/label_StackOverflow.txt").write_text("1\n20\n")
    assert list(in_words(points, tmp_path).text) == ["a shop", "a theme"]
    assert in_words(points[:0], tmp_path).empty


def test_neighbours_of_a_query_are_ranked_on_the_map_of_each_encoder():
    vectors = {"a": np.eye(3, dtype="float32"), "b": np.eye(3, dtype="float32")[::-1].copy()}
    places = {name: np.arange(6.0).reshape(3, 2) for name in vectors}
    queries = dict.fromkeys(vectors, np.array([[1.0, 0.5, 0.0]], dtype="float32"))
    found = neighbours(queries, vectors, places, 2)
    assert found[["x", "y"]].to_numpy().tolist() == [[0, 1], [2, 3], [4, 5]] * 2
    assert found[found.encoder == "a"]["rank"].fillna(0).tolist() == [1, 2, 0]
    assert found[found.encoder == "b"]["rank"].fillna(0).tolist() == [0, 2, 1] and list(found.index) == [0, 1, 2] * 2
