"""How texts are built, with and without a parser, and pairs of texts that are built alike."""

from lib.analysis import structure


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
    texts = ["one two", "three four", "one two", "yes, it is", "no, we do", "a b c d e"]
    groups, meaning = structure.pairs_by_structure(texts)
    assert groups["built alike"] == (["one two", "yes, it is"], ["three four", "no, we do"])
    assert groups["built differently"] == (["one two", "yes, it is"], ["no, we do", "three four"])
    assert "punctuation" in meaning
