"""What one forward pass of an encoder costs, and what is left of it without its last LayerNorms."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib.encoder import EncoderError, SentenceEncoder
from lib.ensemble import EncoderSum, parts


@torch.no_grad()
def multiply_accumulates(encoder: SentenceEncoder | EncoderSum, length: int) -> float:
    """Multiply-accumulate operations of all matrix products for one sentence of `length` tokens, in units of 10^9.

    Of the backbone's own forward (every token through every layer), as tools that count modules do; embedding one
    sentence by `encode` needs less where the last layer is computed for [CLS] alone. A sum of encoders costs their sum.
    """
    total = 0
    for part in parts(encoder):
        ids = torch.full((1, length), part.tokenizer.unk_token_id, device=part.device)
        fused = part.backbone.config._attn_implementation
        part.backbone.set_attn_implementation("eager")  # the counter does not know the fused kernel of every device
        try:
            with FlopCounterMode(display=False) as counter:
                part.backbone(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            part.backbone.set_attn_implementation(fused)
        total += counter.get_total_flops() / 2  # a multiply-accumulate is two operations
    return total / 1e9


def without_layer_norms(encoder: SentenceEncoder | EncoderSum, layers: int) -> SentenceEncoder | EncoderSum:
    """A copy whose last `layers` layers have no LayerNorm, neither after attention nor after the feed-forward part
    (JTCSE, Figure 8).

    Raises:
        EncoderError: the backbone has fewer layers.
    """
    changed = copy.deepcopy(encoder)
    for part in parts(changed):
        blocks = part.backbone.encoder.layer
        if not 0 <= layers <= len(blocks):
            raise EncoderError(f"LayerNorms of {layers} layers were to be removed; this backbone has {len(blocks)}.")
        for block in blocks[len(blocks) - layers :]:
            block.attention.output.LayerNorm = nn.Identity()
            block.output.LayerNorm = nn.Identity()
    return changed
