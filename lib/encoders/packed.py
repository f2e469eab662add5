"""The forward pass of BERT and RoBERTa without work on padding, and a last layer for [CLS] alone.

Same modules, same weights, same result as the backbone's own forward (to floating-point noise); only what no one
reads is left out. Linear layers, LayerNorms and dropout run on the real tokens, packed into one matrix [T, H]; only
the attention product itself sees the padded [N, heads, L, d]. Where the embedding is the [CLS] vector, the last layer
computes one token per sentence, and no token's key or value unless somebody asks for them: see `_first_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.encoders.dropout import dropout as drop

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "camembert")  # encoders alone, with absolute positions


@dataclass
class AttentionMaps:
    """Asks a forward pass for the attention of these layers (0-based); the other layers stay as they are.

    After the pass `probabilities()` is [layers, N, heads, L, L]: what the values were weighted with, after dropout
    while training, with gradient. Padded keys have 0, and padded queries too, unless `padded_queries` also computes
    these (as BERT does on a padded batch), which costs the work on padding.
    """

    layers: tuple[int, ...]
    padded_queries: bool = False
    captured: dict[int, Tensor] = field(default_factory=dict)

    def probabilities(self) -> Tensor:
        return torch.stack([self.captured[i] for i in self.layers])


@dataclass
class AttentionInputs:
    """Asks a forward pass for what the first token sees in these layers (0-based), without changing the pass.

    After it `captured[layer]` is (hidden [N, H], query [N, heads, 1, d], key, value [N, heads, L, d], keys): the first
    token before the layer, its query, what it may look at, and which places those are ([N, 1, 1, L] bool, None: all); at
    the other places key and value are arbitrary.
    """

    layers: tuple[int, ...]
    captured: dict[int, tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]] = field(default_factory=dict)


def last_hidden(
    backbone: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    first_only: bool,
    maps: AttentionMaps | None = None,
    inputs: AttentionInputs | None = None,
) -> Tensor:
    """Last layer of a backbone of MODEL_TYPES: [N, L, H] with zeros at the padding.

    Args:
        input_ids, attention_mask: [N, L], padding on the right.
        first_only: [N, 1, H], the first token of every sentence.
        maps, inputs: filled with what they ask for.
    """
    real = tokens = Tokens(attention_mask.bool())
    if maps is not None and maps.padded_queries:
        tokens = Tokens(attention_mask.bool(), compute_padding=True)
    last_map = -1 if maps is None else max(maps.layers)
    last = len(backbone.encoder.layer) - 1
    hidden = tokens.pack(backbone.embeddings(input_ids=input_ids))
    for at, layer in enumerate(backbone.encoder.layer):
        if at == last and first_only and last_map != last and _has_plain_keys(layer):
            return _first_tokens(layer, hidden, tokens, at=at, inputs=inputs).unsqueeze(1)
        after = tokens if at < last_map else real  # padding goes with the last map that is read
        hidden = _layer(layer, hidden, tokens, tokens, at=at, maps=maps, inputs=inputs, after=after)
        tokens = after
    hidden = real.unpack(hidden)
    return hidden[:, :1] if first_only else hidden


def first_token_layer(
    layer: Any, hidden: Tensor, query: Tensor, key: Tensor, value: Tensor, keys: Tensor | None
) -> Tensor:
    """One layer for the first tokens alone, from queries, keys and values made elsewhere (see AttentionInputs).

    hidden [N, H] is the residual; query [N, heads, 1, d]; key, value [N, heads, L, d] -> [N, H].
    """
    attention = layer.attention.self
    context = _attend(query, key, value, keys, attention.dropout.p if attention.training else 0.0)
    attended = layer.attention.output(context.transpose(1, 2).flatten(1), hidden)
    return layer.output(layer.intermediate(attended), attended)


def run_layers(layers: Sequence[nn.Module], hidden: Tensor, tokens: Tokens, *, wanted: Tokens | None = None) -> Tensor:
    """hidden [T, H] of these tokens through BERT layers, one after the other.

    Args:
        wanted: some of the tokens; only these leave the last layer [W, H], which computes nothing else for the others.
    """
    for at, layer in enumerate(layers):
        is_last = at == len(layers) - 1
        hidden = _layer(layer, hidden, tokens, wanted if is_last and wanted is not None else tokens)
    return hidden


class Tokens:
    """Which places of a padded [N, L] batch hold tokens; moves rows between packed [T, ...] and padded.

    With `compute_padding` every place is a row: padding is computed, though no token looks at it.
    """

    def __init__(self, keep: Tensor, *, compute_padding: bool = False) -> None:
        self.keys = None if keep.all() else keep[:, None, None, :]  # what may be looked at [N, 1, 1, L]; None: all
        self.keep = torch.ones_like(keep) if compute_padding else keep
        self.index = self.keep.flatten().nonzero().squeeze(1)
        self.is_full = len(self.index) == keep.numel()

    def split(self, x: Tensor, heads: int) -> Tensor:
        """[T, heads * d] -> [N, heads, L, d], zeros at the padding."""
        return self.unpack(x).unflatten(-1, (heads, -1)).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        """[N, heads, L, d] -> [T, heads * d]."""
        return self.pack(x.transpose(1, 2).flatten(2))

    def starts(self) -> Tensor:
        """Where the first token of every sentence lies in the packed rows [N]."""
        lengths = self.keep.sum(1)
        return lengths.cumsum(0) - lengths

    def unpack(self, x: Tensor) -> Tensor:
        """[T, H] -> [N, L, H]."""
        if not self.is_full:
            x = x.new_zeros(self.keep.numel(), x.size(-1)).index_copy(0, self.index, x)
        return x.view(*self.keep.shape, -1)

    def pack(self, x: Tensor) -> Tensor:
        """[N, L, H] -> [T, H]."""
        x = x.flatten(0, 1)
        return x if self.is_full else x.index_select(0, self.index)


def _layer(
    layer: Any,
    hidden: Tensor,
    tokens: Tokens,
    queries: Tokens,
    *,
    at: int = 0,
    maps: AttentionMaps | None = None,
    inputs: AttentionInputs | None = None,
    after: Tokens | None = None,
) -> Tensor:
    """One transformer layer on packed rows hidden [T, H] of tokens, only for those that are queries.

    Layer `at` fills maps and inputs if they ask for it. With `after`, which holds some of the queries, only these
    leave the layer (the map has them all).
    """
    attention, rows = layer.attention.self, hidden if queries is tokens else queries.pack(tokens.unpack(hidden))
    heads, keys = attention.num_attention_heads, tokens.keys
    query, key = queries.split(attention.query(rows), heads), tokens.split(attention.key(hidden), heads)
    value = tokens.split(attention.value(hidden), heads)
    dropout = attention.dropout.p if attention.training else 0.0
    if inputs is not None and at in inputs.layers:
        inputs.captured[at] = hidden[tokens.starts()], query[:, :, :1], key, value, keys
    if maps is not None and at in maps.layers:
        probabilities = _probabilities(query, key, keys, dropout)
        maps.captured[at] = probabilities if queries.is_full else probabilities * queries.keep[:, None, :, None]
        context = probabilities.to(value.dtype) @ value
    else:
        context = _attend(query, key, value, keys, dropout)
    if after is not None and after is not queries:
        rows, queries = after.pack(queries.unpack(rows)), after
    context = queries.merge(context)
    attended = layer.attention.output(context, rows)
    return layer.output(layer.intermediate(attended), attended)


def _first_tokens(
    layer: Any, hidden: Tensor, tokens: Tokens, *, at: int = 0, inputs: AttentionInputs | None = None
) -> Tensor:
    """One layer for the first token of every sentence, hidden [T, H] -> [N, H], without keys and values.

    A head compares its query with keys W_k h + b_k and averages values W_v h + b_v. With one query per sentence it costs
    less to compare the states h themselves with W_k^T q, and to take W_v of their average.
    """
    attention, rows = layer.attention.self, hidden[tokens.starts()]
    heads, keys = attention.num_attention_heads, tokens.keys
    query = attention.query(rows).unflatten(-1, (heads, -1))  # [N, heads, d]
    if inputs is not None and at in inputs.layers:
        key, value = (tokens.split(part(hidden), heads) for part in (attention.key, attention.value))
        inputs.captured[at] = rows, query.unsqueeze(2), key, value, keys
    to_key, to_value = (part.weight.unflatten(0, (heads, -1)) for part in (attention.key, attention.value))
    key_bias, value_bias = (part.bias.unflatten(0, (heads, -1)) for part in (attention.key, attention.value))
    states = tokens.unpack(hidden)  # [N, L, H]
    scores = torch.einsum("nhd,hds->nhs", query, to_key) @ states.transpose(1, 2)  # [N, heads, L]
    # equal for all tokens: no effect, but b_k stays in the graph (DDP)
    shift = (query * key_bias).sum(-1, keepdim=True)
    scores = (scores + shift) * query.size(-1) ** -0.5
    if keys is not None:
        scores = scores.masked_fill(~keys.squeeze(2), torch.finfo(scores.dtype).min)
    probabilities = drop(scores.float().softmax(-1), attention.dropout.p if attention.training else 0.0)
    average = probabilities.to(states.dtype) @ states  # [N, heads, H]
    context = torch.einsum("nhs,hds->nhd", average, to_value) + probabilities.sum(-1, keepdim=True) * value_bias
    attended = layer.attention.output(context.flatten(1).to(states.dtype), rows)
    return layer.output(layer.intermediate(attended), attended)


def _has_plain_keys(layer: Any) -> bool:
    """Whether keys and values are a weight and a bias, and nothing that was wrapped around them."""
    parts = layer.attention.self.key, layer.attention.self.value
    return all(type(part) is nn.Linear and part.bias is not None for part in parts)


def _attend(query: Tensor, key: Tensor, value: Tensor, keys: Tensor | None, dropout: float) -> Tensor:
    """Fused attention; on CPU, while training on short inputs, the same written out.

    PyTorch's fused kernel has a slow backward pass there (measured with 64 x 4 heads x 128 x 64 in bf16: 94 ms forward
    and backward, written out 30 ms) and no dropout. Written out, the probabilities of all heads are kept for the
    backward pass: fine up to length 128.
    """
    if query.device.type != "cpu" or not query.requires_grad or key.size(-2) > 128:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=keys, dropout_p=dropout)
    return _probabilities(query, key, keys, dropout).to(value.dtype) @ value


def _probabilities(query: Tensor, key: Tensor, keys: Tensor | None, dropout: float) -> Tensor:
    """What attention weighs the values with, after dropout, in float32: [N, heads, L, L]."""
    scale = query.size(-1) ** -0.5
    if keys is None:
        scores = query @ key.transpose(-1, -2) * scale
    else:  # scaled and masked in the product itself: no further pass over [N, heads, L, L]
        mask = torch.zeros_like(keys, dtype=query.dtype).masked_fill_(~keys, torch.finfo(query.dtype).min)
        mask = mask.expand(-1, query.size(1), -1, -1).flatten(0, 1)
        scores = torch.baddbmm(mask, query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2), alpha=scale)
        scores = scores.unflatten(0, query.shape[:2])
    return drop(scores.float().softmax(-1), dropout)
