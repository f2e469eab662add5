"""Backbones whose last layers have no LayerNorm (JTCSE, Figure 8): made from whole ones, and marked as such on disk."""

from __future__ import annotations

from typing import Any

from torch import nn

from lib.checks import EncoderError

MARK = "layer_norms_removed"  # in the backbone's config.json: how many layers, from the last one on


def removed(config: Any) -> int:
    """How many of the last layers of a backbone with this configuration lack their LayerNorms."""
    return getattr(config, MARK, 0)


def remove_layer_norms(backbone: nn.Module, layers: int) -> None:
    """Take both LayerNorms, after attention and after the feed-forward part, out of the last `layers` layers, in place.

    What is left of `LayerNorm(x + f(x))` is the sum. The backbone's configuration remembers it, so that it is saved and
    loaded like this.

    Raises:
        EncoderError: the backbone has fewer layers.
    """
    blocks = backbone.encoder.layer
    if layers > len(blocks):
        raise EncoderError(
            f"the LayerNorms of {layers} layers cannot be removed: this backbone has {len(blocks)} layers."
        )
    for block in blocks[len(blocks) - layers :]:
        block.attention.output.LayerNorm = block.output.LayerNorm = nn.Identity()
    if layers > removed(backbone.config):
        setattr(backbone.config, MARK, layers)
