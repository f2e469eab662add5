"""Attention read from an encoder: its maps, what two texts' maps tell of each other, and where attention goes."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import Tensor

from lib.analysis.geometry import gold_cosines
from lib.checks import remark
from lib.data import Corpus, STSTask
from lib.data.tokenized import pad, token_batches
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum, parts
from lib.encoders.kinds import check_attention, check_packed
from lib.encoders.packed import MODEL_TYPES, AttentionMaps
from lib.encoders.sentence_encoder import in_mode, random_kept
from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import SMALLEST_ATTENTION

TOKEN_GROUPS = ("[CLS]", "[SEP]", "final punctuation", "other punctuation", "function words", "content words")


@contextmanager
def _mode(encoder: SentenceEncoder, dropout_seed: int | None = None) -> Iterator[None]:
    """Evaluation mode, or dropout drawn from this seed; mode and random state are restored."""
    with in_mode(encoder, training=dropout_seed is not None), random_kept(encoder.device):
        if dropout_seed is not None:
            torch.manual_seed(dropout_seed)
        yield


def _attention(encoder: SentenceEncoder, input_ids: Tensor, mask: Tensor, layers: Sequence[int], **how: bool) -> Tensor:
    maps = AttentionMaps(tuple(layers), **how)
    encoder(input_ids, mask, maps=maps)
    return maps.probabilities()


@torch.no_grad()
def attention_of(encoder: SentenceEncoder, sentences: Sequence[str], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Attention of these layers (0-based), with dropout when the encoder is in training mode: [layers, N, heads, L, L] with
    zeros at the padding, and the mask [N, L]. Raises EncoderError where the encoder has no such maps."""
    input_ids, mask = pad(encoder.tokenize(sentences), encoder.tokenizer.pad_token_id, device=encoder.device)
    return _attention(encoder, input_ids, mask, layers), mask


def readers(encoders: Mapping[str, SentenceEncoder | EncoderSum]) -> dict[str, SentenceEncoder]:
    """The encoders whose attention is to be read: members of a sum each by itself, and the same weights once, since
    attention does not depend on how the vector is read. Other kinds than BERT's are left out, with a remark."""
    found: dict[str, tuple[str, SentenceEncoder]] = {}
    for name, encoder in encoders.items():
        if kinds := sorted({part.backbone.config.model_type for part in parts(encoder)} - {*MODEL_TYPES}):
            remark(f"{name}: left out where attention is shown, which {', '.join(kinds)} models do not give here.")
            continue
        members = [copy.copy(part) for part in parts(encoder)]  # with the same weights
        for number, member in enumerate(members, start=1):
            member.pooling = "cls"
            called = f"{name}, encoder {number}" if len(members) > 1 else name
            found.setdefault(member.fingerprint(), (called, member))
    return dict(found.values())


@torch.no_grad()
def pair_information(
    encoder: SentenceEncoder, first: Sequence[str], second: Sequence[str], *, layers: Sequence[int], slicing: str
) -> dict[str, np.ndarray]:
    """What two texts' attention tells of each other (miCSE, Figures 5 and 6), and how near they are, under dropout: x, mutual
    information of the attention of each pair, mean over its rows, in nats, [N]; y, cosine, [N].

    Two copies of one text are a positive pair. Texts of different lengths are compared over their shared positions.
    """
    information = []
    with _mode(encoder, dropout_seed=0):
        for start in range(0, len(first), 32):
            block = slice(start, start + 32)
            texts = [text for pair in zip(first[block], second[block], strict=True) for text in pair]
            attention, mask = attention_of(encoder, texts, layers)
            for maps, real in zip(attention.split(2, dim=1), mask.bool().split(2), strict=True):
                shared = real.all(0)
                options = {"valid": shared[None, :, None] & shared, "slicing": slicing, "valid_fraction_factor": False}
                loss = attention_mutual_information(*maps.split(1, dim=1), **options)
                information.append(float(-loss))
    with _mode(encoder, dropout_seed=0):
        ids = encoder.tokenize([*first, *second])
        z1, z2 = encoder(*pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)).chunk(2)
    return {"x": np.array(information), "y": torch.cosine_similarity(z1, z2).cpu().numpy()}


def figure_pairs(
    encoder: SentenceEncoder, texts: Corpus, dev: STSTask, *, layers: Sequence[int], slicing: str
) -> pd.DataFrame:
    """The pairs of miCSE's Figures 5 (120 texts, each with itself, and with another) and 7 (`gold_cosines` of dev pairs).

    Returns:
        table ("Figure 5", "Figure 7"), metric (what x is), group, item, x, y: y is the cosine, x the attention information
        in nats (dropout on), in Figure 7 the gold score (dropout off).
    """
    first = list(texts.sample(min(120, len(texts)), seed=0).columns[0])
    frames = []
    for group, second in {"positive": first, "negative": first[1:] + first[:1]}.items():
        about = {"table": "Figure 5", "metric": "attention information", "group": group, "item": range(len(first))}
        values = pair_information(encoder, first, second, layers=layers, slicing=slicing)
        frames.append(pd.DataFrame(about | values))
    frames.append(gold_cosines(encoder, dev).assign(table="Figure 7", group=""))
    return pd.concat(frames, ignore_index=True)


@torch.no_grad()
def batch_factor(
    encoder: SentenceEncoder,
    sentences: Sequence[str],
    *,
    layers: Sequence[int],
    max_length: int,
    slicing: str,
    padded_queries: bool,
) -> pd.DataFrame:
    """What miCSE's code multiplies the attention term of these sentences by, as one batch under dropout: the squared share of
    attention entries that could be drawn (`valid_fraction_factor`). Columns protocol, metric, value."""
    with _mode(encoder, dropout_seed=0):
        ids, mask = pad(encoder.tokenize(sentences, max_length), encoder.tokenizer.pad_token_id, encoder.device)
        twice = ids.repeat_interleave(2, 0), mask.repeat_interleave(2, 0)
        attention, tokens = _attention(encoder, *twice, layers, padded_queries=padded_queries), mask.bool()
        valid, terms = tokens[:, None, :] & (tokens[:, :, None] | padded_queries), []
        for with_factor in (True, False):
            torch.manual_seed(0)  # the same draw
            options = {"valid": valid, "slicing": slicing, "valid_fraction_factor": with_factor}
            terms.append(attention_mutual_information(*attention.unflatten(1, (-1, 2)).unbind(2), **options))
    protocol = f"one batch of {len(sentences)} sentences"
    return pd.DataFrame([{"protocol": protocol, "metric": "batch factor", "value": float(terms[0] / terms[1])}])


@torch.no_grad()
def log_deviation(encoder: SentenceEncoder, sentences: Sequence[str]) -> pd.DataFrame:
    """Standard deviation of log attention (nats) in a dropout pass over a sentence, all heads of a layer, mean over sentences:
    layer (from 1), metric, value. Without entries that this or a second pass dropped, or that miCSE's loss leaves out."""
    layers, found = range(encoder.backbone.config.num_hidden_layers), []
    for sentence in sentences:
        with _mode(encoder, dropout_seed=0):
            views, _ = attention_of(encoder, [sentence, sentence], layers)
        first, second = views.transpose(0, 1).flatten(2).cpu()
        kept = torch.minimum(first, second) > SMALLEST_ATTENTION
        found.append([float(one[real].log().std()) for one, real in zip(first, kept, strict=True)])
    about = {"layer": [layer + 1 for layer in layers], "metric": "log attention deviation"}
    return pd.DataFrame(about | {"value": np.mean(found, axis=0)})


@torch.no_grad()
def _mean_over_sentences(
    encoder: SentenceEncoder, sentences: Sequence[str], batch_tokens: int, measure: Callable[[Tensor, Tensor], Tensor]
) -> np.ndarray:
    """Mean over sentences, without dropout; measure(input_ids, mask) is the sum over one batch of them."""
    ids = encoder.tokenize(sentences)
    batches = token_batches(np.array([len(row) for row in ids], dtype=np.int64), batch_tokens)
    padded = (pad([ids[i] for i in rows], encoder.tokenizer.pad_token_id, encoder.device) for rows in batches)
    with _mode(encoder):
        return sum(measure(*batch).cpu().double().numpy() for batch in padded) / len(ids)


def _token_groups(encoder: SentenceEncoder) -> Tensor:
    """Group of every entry of the vocabulary: int64 [V], an index into TOKEN_GROUPS; no punctuation is final yet."""
    check_attention(encoder, [0])
    tokenizer = encoder.tokenizer
    groups = []
    for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))):
        text = (piece or "").replace("\u0120", "").replace("\u2581", "").lower()
        is_punctuation = text and not any(c.isalnum() for c in text)
        groups.append(4 if text in ENGLISH_STOP_WORDS else 3 if is_punctuation else 5)
    opening, closing = tokenizer("")["input_ids"]
    groups[opening], groups[closing] = 0, 1
    return torch.tensor(groups, device=encoder.device)


def token_shares(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.DataFrame:
    """Share of attention that each group of tokens receives in each layer, without dropout: layer (from 1), group, metric,
    value.

    `attention share` is the mean over sentences, heads and queries; `uniform share` the group's share of the tokens, which
    uniform attention would give it. Final punctuation is a mark that stands last in its sentence, alone before [SEP]. Function
    words are scikit-learn's English stop words; a WordPiece that continues a word is content. One batch of attention is
    held in memory at a time.
    """
    depth, group_of = encoder.backbone.config.num_hidden_layers, _token_groups(encoder)

    def measure(input_ids: Tensor, mask: Tensor) -> Tensor:
        uniform = (mask[:, None, :] / mask.sum(1)[:, None, None]).expand(-1, mask.size(1), -1)
        attention = torch.cat([_attention(encoder, input_ids, mask, range(depth)).mean(2), uniform[None]])
        received = (attention * mask[:, :, None]).sum(2) / mask.sum(1)[:, None]  # [layers + 1, N, L]
        groups, last = group_of[input_ids], mask.sum(1, keepdim=True) - 2
        final = groups.gather(1, last)
        groups = groups.scatter(1, last, torch.where(final == 3, 2, final)).expand_as(received)
        shares = received.new_zeros(*received.shape[:2], len(TOKEN_GROUPS))
        return shares.scatter_add_(2, groups, received * mask).sum(1)

    means = _mean_over_sentences(encoder, sentences, batch_tokens, measure)
    columns = {"attention share": means[:-1].flatten(), "uniform share": np.tile(means[-1], depth)}
    index = pd.MultiIndex.from_product([range(1, depth + 1), TOKEN_GROUPS], names=["layer", "group"])
    return pd.DataFrame(columns, index).reset_index().melt(["layer", "group"], var_name="metric")


@torch.no_grad()
def sentence_maps(
    encoders: Mapping[str, SentenceEncoder], sentence: str, *, head: int = 0
) -> tuple[pd.DataFrame, list[str]]:
    """Attention of every layer over one sentence, without dropout.

    encoders: those that cut the sentence into other pieces than the first are left out. head: from 1; 0 is the mean of
    all. Returns: encoder, layer (from 1), query, key, value; and the word pieces, [CLS] and [SEP] among them.
    """
    frames, pieces = [], None
    for name, encoder in encoders.items():
        own = encoder.tokenizer.convert_ids_to_tokens(encoder.tokenize([sentence])[0])
        pieces = pieces or own
        if own != pieces:
            continue
        with _mode(encoder):
            maps, _ = attention_of(encoder, [sentence], range(encoder.backbone.config.num_hidden_layers))
        values = (maps[:, 0, head - 1] if head else maps[:, 0].mean(1)).cpu().numpy()  # [layers, L, L]
        layer, query, key = np.indices(values.shape).reshape(3, -1)
        places = {"encoder": name, "layer": layer + 1, "query": query, "key": key}
        frames.append(pd.DataFrame(places | {"value": values.ravel()}))
    return pd.concat(frames, ignore_index=True), pieces


@torch.no_grad()
def row_differences(encoder: SentenceEncoder, sentences: Sequence[str]) -> pd.DataFrame:
    """How evenly tokens look, and whether each looks elsewhere, without dropout; mean over heads, tokens, sentences.

    Returns:
        Indexed by layer, from 1: `entropy` over the keys, divided by log n (1: uniform, 0: a single key), and `difference
        of the rows`, the total variation between the attention of a token and the mean of all, 0 (all alike) to 1.
    """
    layers, values = range(encoder.backbone.config.num_hidden_layers), []
    with _mode(encoder):
        for sentence in sentences:
            maps = attention_of(encoder, [sentence], layers)[0][:, 0]
            entropy = torch.special.entr(maps).sum(-1) / math.log(maps.size(-1))
            difference = (maps - maps.mean(-2, keepdim=True)).abs().sum(-1) / 2
            values.append(torch.stack([entropy, difference], -1).mean((1, 2)))
    means = torch.stack(values).mean(0).cpu().numpy()
    index = pd.RangeIndex(1, len(means) + 1, name="layer")
    return pd.DataFrame(means, index, ["entropy", "difference of the rows"])


def cls_energies(encoder: SentenceEncoder, sentences: Sequence[str], *, batch_tokens: int = 2048) -> pd.DataFrame:
    """E_CLS of every layer, the length of the first token's vector over the Frobenius norm of all others (JTCSE, Eq. 6),
    mean over sentences, without dropout: layer (from 1), group, metric, value.

    group says what has the lengths. `context tensor`, the paper's: attention times values (Eq. 9), all heads side by side,
    before output projection, residual and LayerNorm. `layer output`: what the next layer reads. Infinite where a sentence
    has one token.
    """

    check_packed(encoder.backbone.config, "the CLS energy of layers")

    def measure(input_ids: Tensor, mask: Tensor) -> Tensor:
        contexts: list[Tensor] = []
        outputs = [layer.attention.output for layer in encoder.backbone.encoder.layer]
        hooks = [output.register_forward_pre_hook(lambda _, given: contexts.append(given[0])) for output in outputs]
        try:
            hidden = encoder.run_backbone(input_ids, mask, output_hidden_states=True).hidden_states
        finally:
            for hook in hooks:
                hook.remove()
        lengths = torch.stack([state.float().norm(dim=-1) for state in (*contexts, *hidden[1:])]) * mask
        return (lengths[..., 0] / lengths[..., 1:].norm(dim=-1)).sum(1)

    means = _mean_over_sentences(encoder, sentences, batch_tokens, measure)
    layers = range(1, len(means) // 2 + 1)
    index = pd.MultiIndex.from_product([("context tensor", "layer output"), layers], names=["group", "layer"])
    return pd.Series(means, index, name="value").reset_index().assign(metric="cls energy")
