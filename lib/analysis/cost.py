"""What one forward pass of an encoder costs, and copies of an encoder without its last LayerNorms."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib.checks import EncoderError
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum, parts


@torch.no_grad()
def multiply_accumulates(encoder: SentenceEncoder | EncoderSum, length: int) -> float:
    """Multiply-accumulate operations of all matrix products for one sentence of `length` tokens, in units of 10^9.

    Counted in the backbone's own forward (every token through every layer), as other tools count. `encode` needs fewer
    where it computes the last layer for [CLS] alone. A sum of encoders costs the sum of their costs.
    """
    operations = 0
    for part in parts(encoder):
        ids = torch.full((1, length), part.tokenizer.unk_token_id, device=part.device)
        implementation = part.backbone.config._attn_implementation
        part.backbone.set_attn_implementation("eager")  # the counter does not know the fused kernel of every device
        try:
            with FlopCounterMode(display=False) as counter:
                part.backbone(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            part.backbone.set_attn_implementation(implementation)
        operations += counter.get_total_flops() / 2  # a multiply-accumulate is two operations
    return operations / 1e9


def without_layer_norms(encoder: SentenceEncoder | EncoderSum, layers: int) -> SentenceEncoder | EncoderSum:
    """A copy whose last `layers` layers have no LayerNorm after attention and feed-forward part (JTCSE, Figure 8).

    Raises:
        EncoderError: the backbone has fewer layers.
    """
    stripped = copy.deepcopy(encoder)
    for part in parts(stripped):
        blocks = part.backbone.encoder.layer
        if not 0 <= layers <= len(blocks):
            raise EncoderError(f"cannot remove the LayerNorms of {layers} layers: this backbone has {len(blocks)}.")
        for block in blocks[len(blocks) - layers :]:
            block.attention.output.LayerNorm = block.output.LayerNorm = nn.Identity()
    return stripped
