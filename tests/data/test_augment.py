"""Augmentations: every edit by hand, with the random numbers written down; names, seeds, roles, refusals."""

import numpy as np
import pytest

from lib.checks import ConfigError
from lib.data import Corpus, augment

SENTENCE = "one two three four five"
NAMES = ("crop(0.9)", "word_deletion(0.9)", "delete_one_word", "word_repetition(0.9)", "shuffle")


class Drawn:
    """A random generator that gives the written-down values in order and notes what was asked for."""

    def __init__(self, *values):
        self.values, self.asked = list(values), []

    def _draw(self, *asked, **options):
        self.asked.append((*asked, *options.values()))
        return np.asarray(self.values.pop(0))

    random = integers = choice = permutation = _draw


@pytest.mark.parametrize(
    "name, rate, values, asked, view",
    [
        ("crop", 0.4, [1], [(3,)], "two three four"),  # 3 of 5 words, from 3 places
        ("crop", 0.99, [4], [(5,)], "five"),
        ("word_deletion", 0.2, [[0.1, 0.2, 0.3, 0.19, 0.9], 0], [(5,), (5,)], "two three five"),
        ("word_deletion", 0.9, [[0.1] * 5, 3], [(5,), (5,)], "four"),  # all would go: a drawn one stays
        ("delete_one_word", 0, [2], [(5,)], "one two four five"),
        ("word_repetition", 0.2, [2, [4, 0]], [(3,), (5, 2, False)], "one one two three four five five"),
        ("word_repetition", 0.8, [0, []], [(5,), (5, 0, False)], SENTENCE),
        ("shuffle", 0, [[4, 0, 3, 1, 2]], [(5,)], "five one four two three"),
        ("none", 0, [], [], SENTENCE),
    ],
)
def test_edits_by_hand(name, rate, values, asked, view):
    random = Drawn(*values)
    assert augment.augment(SENTENCE, name, rate, random) == view
    assert random.asked == asked and not random.values


@pytest.mark.parametrize("name", ["", "crop", "crop(1)", "crop(0.1) ", "shuffle(0.1)", "synonyms"])
def test_other_names_are_refused(name):
    with pytest.raises(ConfigError, match="is unknown: choose none, "):
        augment.parse(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_becomes_anchors_and_positives_and_repeats_for_a_seed(sentences, name):
    corpus = Corpus("x", (tuple(sentences),))
    pairs = augment.augment_corpus(corpus, name, 3)
    assert pairs.roles == augment.roles(corpus, name) == ("anchor", "positive") and pairs.name == f"x, {name}"
    assert pairs == augment.augment_corpus(corpus, name, 3)
    assert pairs.columns != augment.augment_corpus(corpus, name, 4).columns
    how = (*augment.parse(name), np.random.default_rng(3))
    views = [augment.augment(sentence, *how) for sentence in sentences]
    assert pairs.columns == (tuple(sentences), tuple(views))
    assert augment.augment("word", *how) == "word" and augment.augment("", *how) == ""
    assert all(augment.augment("two words", *how).split() for _ in range(50)), "short sentences keep a word"


def test_more_than_sentences_is_kept_or_refused():
    for corpus in (Corpus("x", (("a b",),) * 2), Corpus("x", (("a b",),) * 2, ("anchor", "negative"))):
        assert augment.augment_corpus(corpus, "none", 0) is corpus and augment.roles(corpus, "none") == corpus.roles
        with pytest.raises(ConfigError, match=f"'shuffle' needs plain sentences, but corpus 'x' holds {corpus.kind}"):
            augment.augment_corpus(corpus, "shuffle", 0)
