"""Attention read from an encoder: its maps, how much two texts' maps tell of each other, and how texts are built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor

from lib.encoder import SentenceEncoder, pad
from lib.geometry import attention_shares, cls_energy
from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import SMALLEST_ATTENTION
from lib.packed import AttentionMaps

PUNCTUATION = re.compile(r"[^\w\s]")


@contextmanager
def _mode(encoder: SentenceEncoder, training: bool) -> Iterator[None]:
    was_training = encoder.training
    encoder.train(training)
    try:
        yield
    finally:
        encoder.train(was_training)


@contextmanager
def _dropout(encoder: SentenceEncoder, seed: int) -> Iterator[None]:
    """Dropout on, drawn from this seed; mode and random state are put back."""
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    with _mode(encoder, True), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


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
    with _dropout(encoder, seed):
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
    return np.array(found)


@torch.no_grad()
def pair_cosine(encoder: SentenceEncoder, first: Sequence[str], second: Sequence[str], *, seed: int = 0) -> np.ndarray:
    """Cosine of each pair of texts under dropout: two copies of one text give less than 1. -> [N]."""
    texts = [*first, *second]
    with _dropout(encoder, seed):
        inputs = pad(encoder.tokenize(texts), encoder.tokenizer.pad_token_id, device=encoder.device)
        z1, z2 = encoder(*inputs).chunk(2)
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
        with _dropout(encoder, seed):
            views, _ = attention_of(encoder, [sentence, sentence], layers)
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


TOKEN_GROUPS = ("[CLS]", "[SEP]", "punctuation", "function words", "content words")


def _batches(encoder: SentenceEncoder, sentences: Sequence[str], batch_tokens: int) -> Iterator[list[list[int]]]:
    """Token ids in batches of similar length, at most batch_tokens tokens each, padding included."""
    ids = sorted(encoder.tokenize(sentences), key=len, reverse=True)
    while ids:
        size = max(1, batch_tokens // len(ids[0]))
        yield ids[:size]
        ids = ids[size:]


def _token_groups(encoder: SentenceEncoder) -> Tensor:
    """Group of every entry of the vocabulary: int64 [V], an index into TOKEN_GROUPS.

    Function words are scikit-learn's English stop words; a WordPiece that continues a word is content.
    """
    tokenizer = encoder.tokenizer
    found = []
    for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))):
        text = (piece or "").replace("\u0120", "").replace("\u2581", "").lower()
        if text in ENGLISH_STOP_WORDS:
            found.append(3)
        else:
            found.append(2 if text and not any(c.isalnum() for c in text) else 4)
    opening, closing = tokenizer("")["input_ids"]
    found[opening], found[closing] = 0, 1
    return torch.tensor(found)


@torch.no_grad()
def token_shares(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.DataFrame:
    """Share of attention that each group of tokens receives in each layer, without dropout: layer, group, share.

    Mean over sentences, heads and queries; also `tokens`, the group's share of the tokens, which uniform attention
    would give it. Streamed: one batch of attention is held at a time.
    """
    layers = tuple(range(encoder.backbone.config.num_hidden_layers))
    group_of, count = _token_groups(encoder).to(encoder.device), len(TOKEN_GROUPS)
    shares, tokens = torch.zeros(len(layers), count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    with _mode(encoder, False):
        for ids in _batches(encoder, sentences, batch_tokens):
            input_ids, mask = pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)
            maps = AttentionMaps(layers)
            encoder(input_ids, mask, maps=maps)
            groups = group_of[input_ids]
            shares += attention_shares(maps.probabilities(), mask, groups, count).sum(1).cpu()
            uniform = (mask[:, None, :] / mask.sum(1)[:, None, None]).expand(-1, mask.size(1), -1)
            tokens += attention_shares(uniform[None, :, None], mask, groups, count).sum((0, 1)).cpu()
    rows = [
        (layer, group, float(shares[i, k]) / len(sentences), float(tokens[k]) / len(sentences))
        for i, layer in enumerate(layers)
        for k, group in enumerate(TOKEN_GROUPS)
    ]
    return pd.DataFrame(rows, columns=["layer", "group", "share", "tokens"])


@torch.no_grad()
def mean_attention(
    encoder: SentenceEncoder, sentences: Sequence[str], *, length: int = 16, batch_tokens: int = 2048
) -> pd.DataFrame:
    """Attention between the first `length` places, mean over heads and over the sentences that are as long or longer.

    Returns:
        layer, query, key, value (JTCSE, Figure 9); empty when no sentence is long enough.
    """
    layers = tuple(range(encoder.backbone.config.num_hidden_layers))
    total, count = torch.zeros(len(layers), length, length, dtype=torch.float64), 0
    with _mode(encoder, False):
        for ids in _batches(encoder, sentences, batch_tokens):
            ids = [row for row in ids if len(row) >= length]
            if not ids:
                break
            maps = AttentionMaps(layers)
            encoder(*pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device), maps=maps)
            total += maps.probabilities()[..., :length, :length].mean(2).sum(1).cpu()
            count += len(ids)
    layer, query, key = np.indices(total.shape).reshape(3, -1)
    frame = pd.DataFrame({"layer": layer, "query": query, "key": key, "value": (total / max(count, 1)).flatten()})
    return frame if count else frame.iloc[:0]


@torch.no_grad()
def cls_energies(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.Series:
    """E_CLS (JTCSE, Eq. 6) after every layer, mean over sentences; index: layer from 0. Streamed."""
    total = torch.zeros(encoder.backbone.config.num_hidden_layers, dtype=torch.float64)
    with _mode(encoder, False):
        for ids in _batches(encoder, sentences, batch_tokens):
            input_ids, mask = pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)
            output = encoder.run_backbone(input_ids, mask, output_hidden_states=True)
            for i, hidden in enumerate(output.hidden_states[1:]):
                total[i] += cls_energy(hidden.float(), mask).sum().cpu()
    return pd.Series((total / len(sentences)).numpy(), name="E_CLS").rename_axis("layer")


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
