"""Views made from the text itself, before any dropout (SimCSE Table 1): drawn once, then tokenised and cached.

For views made elsewhere, such as translations there and back, give a table with the columns `anchor,positive` as the corpus.
"""

import re

import numpy as np

from lib.checks import ConfigError
from lib.data.corpus import ROLES, Corpus

_PATTERN = re.compile(r"(none|delete_one_word|shuffle)|(crop|word_deletion|word_repetition)\((0?\.\d+)\)")


def parse(name: str) -> tuple[str, float]:
    """The augmentation and its rate, 0 where it has none; ConfigError for an unknown name."""
    if not (match := _PATTERN.fullmatch(name)):
        raise ConfigError(
            f"augmentation {name!r} is unknown: choose none, delete_one_word, shuffle, or crop, word_deletion, "
            "word_repetition with a rate, for example word_deletion(0.2)."
        )
    return match[1] or match[2], float(match[3] or 0)


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
    return corpus.roles if augmentation == "none" else ROLES[:2]


def augment_corpus(corpus: Corpus, name: str, seed: int) -> Corpus:
    """Plain sentences -> pairs of a sentence and its view; `none` returns the corpus as it is. Raises ConfigError as `roles`."""
    new_roles, (augmentation, rate) = roles(corpus, name), parse(name)
    if augmentation == "none":
        return corpus
    sentences, random = corpus.columns[0], np.random.default_rng(seed)
    views = [augment(sentence, augmentation, rate, random) for sentence in sentences]
    return Corpus(f"{corpus.name}, {name}", [sentences, views], new_roles)
