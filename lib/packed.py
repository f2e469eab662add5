"""The forward pass of BERT and RoBERTa without work on padding, and a last layer for [CLS] alone.

Same modules, same weights, same result as the backbone's own forward (to floating-point noise); only what no one
reads is left out. Linear layers, LayerNorms and dropout run on the real tokens, packed into one matrix [T, H]; only
the attention product itself sees the padded [N, heads, L, d]. Where the embedding is the [CLS] vector, the last layer
computes keys and values for all tokens and everything else for one token per sentence.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "camembert")


def supports(backbone: nn.Module) -> bool:
    """True for encoder-only absolute-position BERT and RoBERTa models on fused attention."""
    config = backbone.config
    return (
        config.model_type in MODEL_TYPES
        and config._attn_implementation == "sdpa"
        and not getattr(config, "is_decoder", False)
        and not getattr(config, "add_cross_attention", False)
    )


def last_hidden(backbone: nn.Module, input_ids: Tensor, attention_mask: Tensor, *, first_only: bool) -> Tensor:
    """Last layer of a backbone that `supports` accepts.

    Args:
        input_ids, attention_mask: [N, L], padding on the right.
        first_only: return [N, 1, H], the first token of every sentence.

    Returns:
        [N, L, H] with zeros at the padding, or [N, 1, H].
    """
    keep = attention_mask.bool()
    hidden = backbone.embeddings(input_ids=input_ids)[keep]  # [T, H]
    tokens = _Tokens(keep)
    *others, last = backbone.encoder.layer
    for layer in others:
        hidden = _layer(layer, hidden, tokens, tokens)
    if first_only:
        first = keep.new_ones(len(keep), 1)
        starts = keep.sum(1).cumsum(0).roll(1)
        starts[0] = 0
        return _layer(last, hidden, tokens, _Tokens(first), hidden[starts]).unsqueeze(1)
    return tokens.unpack(_layer(last, hidden, tokens, tokens))


class _Tokens:
    """Which places of a padded [N, L] batch hold tokens; moves rows between packed [T, ...] and padded."""

    def __init__(self, keep: Tensor) -> None:
        self.keep = keep
        self.index = keep.flatten().nonzero().squeeze(1)
        self.is_full = len(self.index) == keep.numel()

    def unpack(self, x: Tensor) -> Tensor:
        """[T, H] -> [N, L, H]."""
        if not self.is_full:
            x = x.new_zeros(self.keep.numel(), x.size(-1)).index_copy(0, self.index, x)
        return x.view(*self.keep.shape, -1)

    def pack(self, x: Tensor) -> Tensor:
        """[N, L, H] -> [T, H]."""
        x = x.flatten(0, 1)
        return x if self.is_full else x.index_select(0, self.index)


def _layer(layer: Any, hidden: Tensor, tokens: _Tokens, queries: _Tokens, query_hidden: Tensor | None = None) -> Tensor:
    """One transformer layer on packed rows; with query_hidden [Q, H], only for these rows."""
    attention, rows = layer.attention.self, hidden if query_hidden is None else query_hidden
    heads = attention.num_attention_heads

    def split(x: Tensor, at: _Tokens) -> Tensor:
        return at.unpack(x).unflatten(-1, (heads, -1)).transpose(1, 2)  # [N, heads, L, d]

    context = F.scaled_dot_product_attention(
        split(attention.query(rows), queries),
        split(attention.key(hidden), tokens),
        split(attention.value(hidden), tokens),
        attn_mask=None if tokens.is_full else tokens.keep[:, None, None, :],
        dropout_p=attention.dropout.p if attention.training else 0.0,
    )
    context = queries.pack(context.transpose(1, 2).flatten(2))
    attended = layer.attention.output(context, rows)
    return layer.output(layer.intermediate(attended), attended)
