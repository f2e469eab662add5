"""How texts are built, and pairs of texts that are built alike or differently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

PUNCTUATION = re.compile(r"[^\w\s]")


def pairs_by_structure(
    sentences: Sequence[str], *, limit: int = 60
) -> tuple[dict[str, tuple[list[str], list[str]]], str]:
    """Pairs of different sentences that are built alike, and built differently (miCSE, Figure 6).

    Returns:
        {"built alike": (first, second), "built differently": (first, second)} with the same first sentences, at most
        `limit` pairs each, and what "built" means (see `structures`).
    """
    built, meaning = structures(sentences)
    alike = pd.DataFrame({"text": sentences, "built": built}).groupby("built").text.unique()
    pairs = [texts[:2] for texts in alike if len(texts) > 1][:limit]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    return {"built alike": (first, second), "built differently": (first, second[1:] + second[:1])}, meaning


def structures(sentences: Sequence[str]) -> tuple[list[str], str]:
    """One string per sentence that is equal for sentences built alike, and what this string is.

    With spaCy and its model en_core_web_sm: the dependency tree (relation and head of every word). Without them: the
    number of words and the order of the punctuation marks, which says much less.
    """
    parser = _parser()
    if parser is not None:
        trees = [" ".join(f"{token.dep_}:{token.head.i}" for token in text) for text in parser.pipe(sentences)]
        return trees, "dependency tree (spaCy en_core_web_sm)"
    shapes = [f"{len(text.split())} {''.join(PUNCTUATION.findall(text))}" for text in sentences]
    return shapes, "number of words and order of the punctuation marks (spaCy or its model is not installed)"


def _parser() -> Any:
    """spaCy's parser; None when spaCy or its model is not installed."""
    try:
        import spacy

        return spacy.load("en_core_web_sm")
    except (ImportError, OSError):
        return None
