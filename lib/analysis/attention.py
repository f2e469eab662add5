"""Attention read from an encoder: its maps, what two texts' maps tell of each other, and where attention goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor

from lib.analysis.geometry import attention_shares, cls_energy
from lib.encoders import SentenceEncoder
from lib.encoders.packed import AttentionMaps
from lib.encoders.sentence_encoder import pad, token_batches
from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import SMALLEST_ATTENTION

TOKEN_GROUPS = ("[CLS]", "[SEP]", "punctuation", "function words", "content words")


@contextmanager
def _mode(encoder: SentenceEncoder, training: bool) -> Iterator[None]:
    """Training or evaluation mode; the mode before is restored."""
    was_training = encoder.training
    encoder.train(training)
    try:
        yield
    finally:
        encoder.train(was_training)


@contextmanager
def _dropout(encoder: SentenceEncoder, seed: int) -> Iterator[None]:
    """Dropout on, drawn from this seed; mode and random state are restored."""
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
        EncoderError: this encoder gives no attention maps or lacks one of these layers.
    """
    input_ids, mask = pad(encoder.tokenize(sentences), encoder.tokenizer.pad_token_id, device=encoder.device)
    return _probabilities(encoder, input_ids, mask, layers), mask


def _probabilities(encoder: SentenceEncoder, input_ids: Tensor, mask: Tensor, layers: Sequence[int]) -> Tensor:
    maps = AttentionMaps(tuple(layers))
    encoder(input_ids, mask, maps=maps)
    return maps.probabilities()


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

    Two copies of one text are a positive pair. Texts of different lengths are compared over their shared positions.

    Returns:
        [N], mean over the rows of a pair, in nats.

    Raises:
        EncoderError: this encoder gives no attention maps or lacks one of these layers.
        ValueError: `slicing` is unknown or does not fit the number of layers or heads.
    """
    information = []
    with _dropout(encoder, seed):
        for start in range(0, len(first), pairs_at_once):
            block = slice(start, start + pairs_at_once)
            texts = [text for pair in zip(first[block], second[block], strict=True) for text in pair]
            attention, mask = attention_of(encoder, texts, layers)
            for i in range(0, len(texts), 2):
                shared = mask[i : i + 2].bool().all(0)
                options = {"valid": shared[None, :, None] & shared, "slicing": slicing, "samples": samples}
                views = attention[:, i : i + 2].split(1, dim=1)
                loss = attention_mutual_information(*views, valid_fraction_factor=False, **options)
                information.append(float(-loss))
    return np.array(information)


@torch.no_grad()
def pair_cosine(encoder: SentenceEncoder, first: Sequence[str], second: Sequence[str], *, seed: int = 0) -> np.ndarray:
    """Cosine of each pair of texts under dropout, [N]. Two copies of one text give less than 1."""
    with _dropout(encoder, seed):
        ids = encoder.tokenize([*first, *second])
        z1, z2 = encoder(*pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)).chunk(2)
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


def _batches(
    encoder: SentenceEncoder, sentences: Sequence[str], batch_tokens: int, shortest: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """input_ids and mask [N, L] of batches of the sentences with at least `shortest` tokens."""
    ids = [row for row in encoder.tokenize(sentences) if len(row) >= shortest]
    for rows in token_batches(np.array([len(row) for row in ids], dtype=np.int64), batch_tokens):
        yield pad([ids[row] for row in rows], encoder.tokenizer.pad_token_id, device=encoder.device)


def _token_groups(encoder: SentenceEncoder) -> Tensor:
    """Group of every entry of the vocabulary: int64 [V], an index into TOKEN_GROUPS.

    Function words are scikit-learn's English stop words; a WordPiece that continues a word is content.
    """
    tokenizer = encoder.tokenizer
    groups = []
    for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))):
        text = (piece or "").replace("\u0120", "").replace("\u2581", "").lower()
        is_punctuation = text and not any(c.isalnum() for c in text)
        groups.append(3 if text in ENGLISH_STOP_WORDS else 2 if is_punctuation else 4)
    opening, closing = tokenizer("")["input_ids"]
    groups[opening], groups[closing] = 0, 1
    return torch.tensor(groups, device=encoder.device)


@torch.no_grad()
def token_shares(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.DataFrame:
    """Share of attention that each group of tokens receives in each layer, without dropout: layer, group, share.

    Mean over sentences, heads and queries. The column `tokens` is the group's share of the tokens, which uniform
    attention would give it. One batch of attention is held in memory at a time.
    """
    layers = tuple(range(encoder.backbone.config.num_hidden_layers))
    group_of, count = _token_groups(encoder), len(TOKEN_GROUPS)
    shares = torch.zeros(len(layers), count, dtype=torch.float64, device="cpu")
    tokens = torch.zeros(count, dtype=torch.float64, device="cpu")
    with _mode(encoder, False):
        for input_ids, mask in _batches(encoder, sentences, batch_tokens):
            attention, groups = _probabilities(encoder, input_ids, mask, layers), group_of[input_ids]
            shares += attention_shares(attention, mask, groups, count).sum(1).cpu()
            uniform = (mask[:, None, :] / mask.sum(1)[:, None, None]).expand(-1, mask.size(1), -1)
            tokens += attention_shares(uniform[None, :, None], mask, groups, count).sum((0, 1)).cpu()
    rows = [
        (layer, group, float(shares[layer, k]) / len(sentences), float(tokens[k]) / len(sentences))
        for layer in layers
        for k, group in enumerate(TOKEN_GROUPS)
    ]
    return pd.DataFrame(rows, columns=["layer", "group", "share", "tokens"])


@torch.no_grad()
def mean_attention(
    encoder: SentenceEncoder, sentences: Sequence[str], *, length: int = 16, batch_tokens: int = 2048
) -> pd.DataFrame:
    """Attention between the first `length` positions, mean over heads and over sentences of at least `length` tokens.

    Returns:
        layer, query, key, value (JTCSE, Figure 9); empty when no sentence is long enough.
    """
    layers = tuple(range(encoder.backbone.config.num_hidden_layers))
    total, count = torch.zeros(len(layers), length, length, dtype=torch.float64, device="cpu"), 0
    with _mode(encoder, False):
        for input_ids, mask in _batches(encoder, sentences, batch_tokens, shortest=length):
            attention = _probabilities(encoder, input_ids, mask, layers)
            total += attention[..., :length, :length].mean(2).sum(1).cpu()
            count += len(input_ids)
    layer, query, key = np.indices(total.shape).reshape(3, -1)
    frame = pd.DataFrame({"layer": layer, "query": query, "key": key, "value": (total / max(count, 1)).flatten()})
    return frame if count else frame.iloc[:0]


@torch.no_grad()
def cls_energies(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.Series:
    """E_CLS (JTCSE, Eq. 6) after every layer, mean over sentences; index: layer from 0."""
    total = torch.zeros(encoder.backbone.config.num_hidden_layers, dtype=torch.float64, device="cpu")
    with _mode(encoder, False):
        for input_ids, mask in _batches(encoder, sentences, batch_tokens):
            output = encoder.run_backbone(input_ids, mask, output_hidden_states=True)
            for i, hidden in enumerate(output.hidden_states[1:]):
                total[i] += cls_energy(hidden.float(), mask).sum().cpu()
    return pd.Series((total / len(sentences)).numpy(), name="E_CLS").rename_axis("layer")
