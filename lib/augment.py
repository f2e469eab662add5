"""Views made from the text itself, before any dropout (SimCSE Table 1): drawn once, then tokenised and cached."""

from __future__ import annotations

import re

import numpy as np

from lib.data.corpus import Corpus

_PATTERN = re.compile(r"(crop|word_deletion|word_repetition)\((0?\.\d+)\)|none|delete_one_word|shuffle")
_TRANSLATION = re.compile(r"(round_trip|round_trip_pairs)\(([^,()]+),([^,()]+)\)")


def parse(name: str) -> tuple[str, float]:
    """`none`, `delete_one_word`, `shuffle`, `crop(0.1)`, `word_deletion(0.2)`, `word_repetition(0.2)` -> name, rate;
    `round_trip(THERE,BACK)`, `round_trip_pairs(THERE,BACK)`, two translation models -> name, 0.

    Raises:
        lib.config.ConfigError: anything else.
    """
    from lib.config import ConfigError

    if translation := _TRANSLATION.fullmatch(name):
        return translation[1], 0.0
    match = _PATTERN.fullmatch(name)
    if not match:
        raise ConfigError(
            f"augmentation {name!r} is unknown: choose none, delete_one_word, shuffle, or crop, word_deletion, "
            "word_repetition with a rate, for example word_deletion(0.2), or round_trip(THERE,BACK) with two models."
        )
    return (match[1], float(match[2])) if match[1] else (name, 0.0)


def check(name: str) -> None:
    """Raise what lib.round_trip.load raises when an augmentation needs models that cannot be had here."""
    if translation := _TRANSLATION.fullmatch(name):
        from lib.round_trip import load

        load(translation[2].strip(), translation[3].strip())


def usable(name: str, substitute: str) -> str:
    """`name`, or the substitute, with a printed line that says why, where its models cannot be had.

    Raises:
        lib.data.DataError: the models cannot be had, and the substitute is empty.
        lib.config.ConfigError: a library is missing; it is to be installed, not worked around.
    """
    from lib.data.errors import DataError

    try:
        check(name)
        return name
    except DataError as error:
        if not substitute:
            raise
        print(f"{error} Here: {substitute}.")
        return substitute


def augment(sentence: str, name: str, rate: float, random: np.random.Generator) -> str:
    """One view of a sentence; words are what white space separates, at least one word stays.

    crop: a contiguous span of (1 - rate) of the words. word_deletion: each word goes with probability `rate`.
    delete_one_word: one word goes. word_repetition: up to rate * n words are doubled (ESimCSE). shuffle: all words
    in random order.
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
        gone = random.integers(n)
        return " ".join(word for i, word in enumerate(words) if i != gone)
    if name == "word_repetition":
        count = random.integers(max(2, int(rate * n)) + 1)
        doubled = set(random.choice(n, size=min(count, n), replace=False).tolist())
        return " ".join(f"{word} {word}" if i in doubled else word for i, word in enumerate(words))
    if name == "shuffle":
        return " ".join(words[i] for i in random.permutation(n))
    return sentence


def kind(corpus: Corpus, name: str) -> str:
    """What `augment_corpus` makes of a corpus: sentences, pairs or triples.

    Raises:
        lib.config.ConfigError: an augmentation was asked for pairs or triples, which are two views already.
    """
    kept = parse(name)[0] in ("none", "round_trip")
    if name != "none" and corpus.kind != "sentences":
        from lib.config import ConfigError

        raise ConfigError(
            f"augmentation {name!r} needs plain sentences, but corpus {corpus.name!r} holds {corpus.kind}."
        )
    return corpus.kind if kept else "pairs"


def augment_corpus(corpus: Corpus, name: str, seed: int, *, show_progress: bool = False) -> Corpus:
    """Plain sentences -> pairs (sentence, view). `none` returns the corpus as it is; `round_trip` gives the translated
    sentences in place of the others, `round_trip_pairs` both (what TNCSE's authors do is not stated).

    Raises:
        lib.config.ConfigError: as `kind`.
        lib.data.DataError: a translation model cannot be loaded, or translates next to nothing.
    """
    kind(corpus, name)
    view, rate = parse(name)
    if view == "none":
        return corpus
    if translation := _TRANSLATION.fullmatch(name):
        from lib.round_trip import round_trip

        there, back = translation[2].strip(), translation[3].strip()
        translated = tuple(round_trip(corpus.columns[0], there, back, show_progress=show_progress))
        columns = (translated,) if view == "round_trip" else (corpus.columns[0], translated)
        return Corpus(f"{corpus.name}, {name}", columns)
    random = np.random.default_rng(seed)
    views = tuple(augment(sentence, view, rate, random) for sentence in corpus.columns[0])
    return Corpus(f"{corpus.name}, {name}", (corpus.columns[0], views))
