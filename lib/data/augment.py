"""Views made from the text itself, before any dropout (SimCSE Table 1): drawn once, then tokenised and cached."""

from __future__ import annotations

import re

import numpy as np

from lib.checks import ConfigError
from lib.data import round_trip
from lib.data.corpus import ROLES, Corpus

_PATTERN = re.compile(
    r"none|delete_one_word|shuffle|(crop|word_deletion|word_repetition)\(0?\.\d+\)"
    r"|round_trip(_pairs)?\([^,()]+,[^,()]+\)"
)


def parse(name: str) -> tuple[str, tuple[float] | tuple[str, str] | tuple[()]]:
    """The augmentation and its arguments: none, a rate, or two translation models; ConfigError for any other name."""
    if not _PATTERN.fullmatch(name):
        raise ConfigError(
            f"augmentation {name!r} is unknown: choose none, delete_one_word, shuffle, or crop, word_deletion, "
            "word_repetition with a rate, for example word_deletion(0.2), or round_trip(THERE,BACK) with two models."
        )
    augmentation, *arguments = [part.strip() for part in re.split(r"[(,)]", name) if part]
    return augmentation, tuple(arguments if augmentation.startswith("round_trip") else map(float, arguments))


def check(name: str) -> None:
    """Load the models that an augmentation needs; ConfigError or DataError as `parse` and `round_trip.load`."""
    augmentation, models = parse(name)
    for model in models if augmentation.startswith("round_trip") else ():
        round_trip.load(model)


def augment(sentence: str, name: str, rate: float, random: np.random.Generator) -> str:
    """One view of a sentence; words are what white space separates, at least one word stays.

    crop: a contiguous span of (1 - rate) of the words. word_deletion: each word goes with probability `rate`.
    delete_one_word: one word goes. word_repetition: up to max(2, rate * n) of the n words are doubled
    (ESimCSE). shuffle: all words in random order.
    """
    words = sentence.split()
    n = len(words)
    if n < 2:
        return sentence
    if name == "crop":
        length = max(1, round(n * (1 - rate)))
        start = random.integers(n - length + 1)
        return " ".join(words[start : start + length])
    if name == "word_deletion":
        keep = random.random(n) >= rate
        keep[random.integers(n)] |= not keep.any()
        return " ".join(word for word, kept in zip(words, keep, strict=True) if kept)
    if name == "delete_one_word":
        deleted = random.integers(n)
        return " ".join(word for i, word in enumerate(words) if i != deleted)
    if name == "word_repetition":
        count = random.integers(max(2, int(rate * n)) + 1)
        doubled = set(random.choice(n, size=min(count, n), replace=False).tolist())
        return " ".join(f"{word} {word}" if i in doubled else word for i, word in enumerate(words))
    if name == "shuffle":
        return " ".join(words[i] for i in random.permutation(n))
    return sentence


def roles(corpus: Corpus, name: str) -> tuple[str, ...]:
    """The roles of the columns after the augmentation; ConfigError when the corpus has more than plain sentences."""
    augmentation, _ = parse(name)
    if augmentation != "none" and corpus.kind != "sentences":
        raise ConfigError(
            f"augmentation {name!r} needs plain sentences, but corpus {corpus.name!r} holds {corpus.kind}."
        )
    return corpus.roles if augmentation in ("none", "round_trip") else ROLES[:2]


def augment_corpus(corpus: Corpus, name: str, seed: int) -> Corpus:
    """Plain sentences -> pairs of a sentence and its view.

    `none` returns the corpus as it is. `round_trip` gives the translated sentences in place of the others,
    `round_trip_pairs` both; TNCSE's authors do not say which they use.

    Raises:
        ConfigError: as `roles`.
        DataError: a translation model cannot be loaded, or translates next to nothing.
    """
    new_roles, (augmentation, arguments) = roles(corpus, name), parse(name)
    if augmentation == "none":
        return corpus
    sentences = corpus.columns[0]
    if augmentation.startswith("round_trip"):
        views = round_trip.round_trip(sentences, *arguments)
    else:
        random = np.random.default_rng(seed)
        views = [augment(sentence, augmentation, *(arguments or (0.0,)), random) for sentence in sentences]
    columns = [views] if augmentation == "round_trip" else [sentences, views]
    return Corpus(f"{corpus.name}, {name}", columns, new_roles)
