"""Attention read from an encoder: its maps, how much two texts' maps tell of each other, and how texts are built."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.encoder import SentenceEncoder, pad
from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import SMALLEST_ATTENTION
from lib.packed import AttentionMaps

PUNCTUATION = re.compile(r"[^\w\s]")


@torch.no_grad()
def attention_of(encoder: SentenceEncoder, sentences: Sequence[str], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Attention of these layers (0-based), with dropout when the encoder is in training mode.

    Returns:
        attention [layers, N, heads, L, L] with zeros at the padding, mask [N, L].

    Raises:
        EncoderError: this encoder gives no attention maps, or has not these layers.
    """
    input_ids, mask = pad(encoder.tokenize(sentences), encoder.tokenizer.pad_token_id, device=encoder.device)
    maps = AttentionMaps(tuple(layers))
    encoder(input_ids, mask, maps=maps)
    return maps.probabilities(), mask


def pair_information(
    encoder: SentenceEncoder,
    first: Sequence[str],
    second: Sequence[str],
    *,
    layers: Sequence[int],
    slicing: str = "layer_parity",
    samples: int = 150,
    seed: int = 0,
    pairs_at_once: int = 32,
) -> np.ndarray:
    """Mutual information of the attention of each pair of texts (miCSE, Figures 5 and 6), under dropout.

    Two copies of one text are a positive pair. Of texts of different length the places are compared that both have.

    Returns:
        [N], mean over the rows of a pair, in nats.
    """
    found = []
    was_training = encoder.training
    encoder.train()
    try:
        with torch.random.fork_rng(devices=[encoder.device] if encoder.device.type == "cuda" else []):
            torch.manual_seed(seed)
            for start in range(0, len(first), pairs_at_once):
                block = slice(start, start + pairs_at_once)
                texts = [text for pair in zip(first[block], second[block], strict=True) for text in pair]
                attention, mask = attention_of(encoder, texts, layers)
                for i in range(0, len(texts), 2):
                    common = mask[i : i + 1].bool() & mask[i + 1 : i + 2].bool()
                    information = -attention_mutual_information(
                        attention[:, i : i + 1],
                        attention[:, i + 1 : i + 2],
                        valid=common[:, :, None] & common[:, None, :],
                        slicing=slicing,
                        samples=samples,
                        valid_fraction_factor=False,
                    )
                    found.append(float(information))
    finally:
        encoder.train(was_training)
    return np.array(found)


@torch.no_grad()
def pair_cosine(encoder: SentenceEncoder, first: Sequence[str], second: Sequence[str], *, seed: int = 0) -> np.ndarray:
    """Cosine of each pair of texts under dropout: two copies of one text give less than 1. -> [N]."""
    was_training = encoder.training
    encoder.train()
    try:
        with torch.random.fork_rng(devices=[encoder.device] if encoder.device.type == "cuda" else []):
            torch.manual_seed(seed)
            texts = [*first, *second]
            inputs = pad(encoder.tokenize(texts), encoder.tokenizer.pad_token_id, device=encoder.device)
            z1, z2 = encoder(*inputs).chunk(2)
    finally:
        encoder.train(was_training)
    return torch.cosine_similarity(z1, z2).cpu().numpy()


def pair_table(
    encoders: Mapping[str, SentenceEncoder],
    groups: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    *,
    layers: Sequence[int],
    slicing: str = "layer_parity",
) -> pd.DataFrame:
    """`pair_cosine` and `pair_information` of groups of pairs: encoder, group, cosine, information (nats)."""
    frames = []
    for encoder_name, encoder in encoders.items():
        for group, (first, second) in groups.items():
            values = {
                "cosine": pair_cosine(encoder, first, second),
                "information": pair_information(encoder, first, second, layers=layers, slicing=slicing),
            }
            frames.append(pd.DataFrame({"encoder": encoder_name, "group": group} | values))
    return pd.concat(frames, ignore_index=True)


def joint_log_attention(
    encoders: Mapping[str, SentenceEncoder], sentence: str, *, layers: Sequence[int], heads: int, seed: int = 0
) -> pd.DataFrame:
    """Natural logarithm of every attention entry in two dropout passes over one sentence (miCSE, Figure 8).

    Returns:
        encoder, layer, head, view1, view2; without entries that a pass dropped or that the loss leaves out.
    """
    frames = []
    for name, encoder in encoders.items():
        was_training = encoder.training
        with torch.random.fork_rng(devices=[encoder.device] if encoder.device.type == "cuda" else []):
            torch.manual_seed(seed)
            views, _ = attention_of(encoder.train(), [sentence, sentence], layers)
        encoder.train(was_training)
        for i, layer in enumerate(layers):
            for head in range(heads):
                first, second = views[i, :, head].flatten(1).cpu()
                both = torch.minimum(first, second) > SMALLEST_ATTENTION
                logs = {"view1": first[both].log(), "view2": second[both].log()}
                frames.append(pd.DataFrame({"encoder": name, "layer": layer, "head": head} | logs))
    return pd.concat(frames, ignore_index=True)


def pairs_by_structure(
    sentences: Sequence[str], *, limit: int = 60
) -> tuple[dict[str, tuple[list[str], list[str]]], str]:
    """Pairs of different sentences that are built alike, and built differently (miCSE, Figure 6).

    Returns:
        {"built alike": (first, second), "built differently": (first, second)} with the same first sentences, and what
        "built" means, see `structures`.
    """
    built, meaning = structures(sentences)
    alike = pd.DataFrame({"text": sentences, "built": built}).groupby("built").text.unique()
    same = [texts[:2] for texts in alike if len(texts) > 1][:limit]
    first, second = [a for a, _ in same], [b for _, b in same]
    return {"built alike": (first, second), "built differently": (first, second[1:] + second[:1])}, meaning


def structures(sentences: Sequence[str]) -> tuple[list[str], str]:
    """One string per sentence that is equal for sentences built alike, and what it stands for.

    With spaCy and its model en_core_web_sm: the dependency tree (relation and head of every word). Without: the number
    of words and the punctuation marks in their order, which says much less.
    """
    parser = _parser()
    if parser is not None:
        trees = [" ".join(f"{token.dep_}:{token.head.i}" for token in text) for text in parser.pipe(sentences)]
        return trees, "dependency tree (spaCy en_core_web_sm)"
    shapes = [f"{len(text.split())} {''.join(PUNCTUATION.findall(text))}" for text in sentences]
    return shapes, "number of words and order of the punctuation marks (spaCy or its model is not installed)"


def _parser() -> Any:
    try:
        import spacy

        return spacy.load("en_core_web_sm")
    except (ImportError, OSError):
        return None
