"""How texts are built, with and without a parser, and pairs of texts that are built alike."""

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


def test_the_pairs_of_the_figures(monkeypatch, tiny_bert, sentences, tmp_path):
    monkeypatch.setattr(structure, "_parser", lambda: None)
    encoder = SentenceEncoder.from_pretrained(tiny_bert, dropout=0.1).eval()
    dev = load_sts(tmp_path, "demo", "dev")
    how = {"layers": (0, 1), "slicing": "layer_parity", "parsed": 40, "positives": 5, "gold": 50}
    found = structure.figure_pairs(encoder, Corpus("toy", [sentences[:60]]), dev, **how)
    assert list(found) == ["table", "metric", "group", "item", "x", "y"]
    (five, pairs), (six, built), (seven, gold) = found.groupby("table")
    assert five == "Figure 5" and pairs.groupby("group").size().tolist() == [5] * 2
    assert six.startswith("Figure 6, by number of words") and "built alike" in set(built.group)
    assert seven == "Figure 7" and gold.x.tolist() == dev.gold[::3].tolist()
    expected = cosine(encoder.encode(dev.sentences1[3:4]), encoder.encode(dev.sentences2[3:4]))
    assert gold.y.iloc[1] == pytest.approx(expected[0], abs=1e-5)
