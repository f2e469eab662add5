"""How texts are built, with and without a parser, and pairs of texts that are built alike."""

import math

import pandas as pd
import pytest

from lib.analysis import structure
from lib.data import Corpus, load_sts
from lib.encoders import SentenceEncoder
from lib.evaluation.sts import cosine


def test_shapes_without_a_parser(monkeypatch):
    monkeypatch.setattr(structure, "_parser", lambda: None)
    shapes, meaning = structure.structures(["Yes, it is.", "No, we do.", "Yes, it is", "Is it?"])
    assert shapes[0] == shapes[1] and len(set(shapes)) == 3 and "punctuation" in meaning


def test_trees_with_a_parser(monkeypatch):
    class Token:
        def __init__(self, relation, head):
            self.dep_, self.head = relation, type("Head", (), {"i": head})

    class Parser:
        def pipe(self, texts):
            return [[Token("nsubj", 1), Token("ROOT", 1)] for _ in texts]

    monkeypatch.setattr(structure, "_parser", Parser)
    trees, meaning = structure.structures(["Dogs run", "Cats sleep"])
    assert trees == ["nsubj:1 ROOT:1"] * 2 and "dependency" in meaning


def test_pairs_are_built_alike_or_differently(monkeypatch):
    monkeypatch.setattr(structure, "_parser", lambda: None)
    texts = [
        "one two",
        "three four",
        "one two",
        "yes, it is",
        "no, we do",
        "a b c d e",
        "five six seven",
        "eight, nine",
    ]
    groups, meaning = structure.pairs_by_structure(texts)
    assert groups["built alike"] == (["one two", "yes, it is"], ["three four", "no, we do"])
    assert groups["built differently"] == (["one two", "yes, it is"], ["no, we do", "three four"])
    first, second = groups["built differently, as many words"]
    assert list(zip(first, second, strict=True)) == [("one two", "eight, nine"), ("yes, it is", "five six seven")]
    assert "punctuation" in meaning


def test_sentences_that_repeat_each_other_are_no_pair(monkeypatch):
    monkeypatch.setattr(structure, "_parser", lambda: None)
    villages = [f"{name} is a village in Poland" for name in ("Kowal", "Lipno")] + ["She was then a judge there"]
    (first, second), *_ = structure.pairs_by_structure(villages)[0].values()
    assert (first, second) == ([villages[0]], [villages[2]])  # one word of eleven; the villages share five of seven
    assert structure.pairs_by_structure(villages[:2])[0]["built alike"] == ([], [])


@pytest.fixture
def pairs():
    rows = [("positive", 1.0, 0.8), ("positive", 3.0, 0.6), ("negative", 0.0, 0.1), ("negative", 1.0, 0.3)]
    frame = pd.DataFrame(rows, columns=["group", "x", "cosine"])
    return pd.concat([frame.assign(encoder="one"), frame.assign(encoder="twice as far", x=2 * frame.x)])


def test_the_distance_of_centroids_by_hand(pairs):
    found = structure.centroids(pairs)
    assert found.loc["one", ["difference in x", "in cosine"]].tolist() == pytest.approx([1.5, 0.5])
    assert found.distance.tolist() == pytest.approx([math.hypot(1.5, 0.5), math.hypot(3.0, 0.5)])
    assert found["in deviations"].tolist() == pytest.approx([1.5 / math.sqrt((2 + 0.5) / 2)] * 2)
    both = structure.centroids(pd.concat([pairs.assign(backbone="a"), pairs.assign(backbone="b")], ignore_index=True))
    assert list(both.index) == [("a", "one"), ("a", "twice as far"), ("b", "one"), ("b", "twice as far")]


def test_cosines_against_gold_by_hand():
    frame = pd.DataFrame({"encoder": "one", "x": [0.0, 2, 4, 5], "cosine": [0.1, 0.0, 0.7, 0.9]})
    found = structure.against_gold(frame).loc["one"]
    spread = math.sqrt(2 * 0.1**2)
    assert found.tolist() == pytest.approx([0.8, frame.cosine.std(), spread])


def test_minus_the_centroid_of_the_other_group(pairs):
    moved = structure.by_opposite_centroid(pairs)
    one = moved[moved.encoder == "one"]
    assert one.x.tolist() == pytest.approx([1 - 0.5, 3 - 0.5, 0 - 2.0, 1 - 2.0])
    assert one.cosine.tolist() == pytest.approx([0.8 - 0.2, 0.6 - 0.2, 0.1 - 0.7, 0.3 - 0.7])
    plain, twice = structure.centroids(pairs).distance, structure.centroids(moved).distance
    assert twice.tolist() == pytest.approx((2 * plain).tolist())


def test_the_pairs_of_the_figures(monkeypatch, tiny_bert, sentences, tmp_path):
    monkeypatch.setattr(structure, "_parser", lambda: None)
    encoders = {name: SentenceEncoder.from_pretrained(tiny_bert, dropout=0.1).eval() for name in ("one", "two")}
    dev = load_sts(tmp_path, "demo", "dev")
    how = {"layers": (0, 1), "slicing": "layer_parity", "parsed": 40, "positives": 5, "gold": 50}
    five, six, seven = structure.figure_pairs(encoders, Corpus("toy", [sentences[:60]]), dev, **how).items()
    assert five[0] == "Figure 5" and five[1].groupby(["encoder", "group"]).size().tolist() == [5] * 4
    assert six[0].startswith("Figure 6, by number of words") and "built alike" in set(six[1].group)
    gold = seven[1][seven[1].encoder == "two"]
    assert seven[0] == "Figure 7" and gold.x.tolist() == dev.gold[::3].tolist()
    expected = cosine(encoders["two"].encode(dev.sentences1[3:4]), encoders["two"].encode(dev.sentences2[3:4]))
    assert gold.cosine.iloc[1] == pytest.approx(expected[0], abs=1e-5)
