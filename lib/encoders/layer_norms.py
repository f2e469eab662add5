"""LayerNorms of the last layers taken out of a backbone (JTCSE, Figure 8)."""

from typing import Any

from torch import nn

from lib.checks import EncoderError
from lib.encoders.kinds import check_packed

MARK = "layer_norms_removed"  # in the backbone's config.json: of how many layers, from the last one on


def removed(config: Any) -> int:
    """How many of the last layers of a backbone with this configuration lack their LayerNorms."""
    return getattr(config, MARK, 0)


def remove_layer_norms(backbone: nn.Module, layers: int) -> None:
    """Take both LayerNorms, after attention and after the feed-forward part, out of the last `layers` layers, in place
    (JTCSE, Figure 8).

    What is left of `LayerNorm(x + f(x))` is the sum. The backbone's configuration remembers it, so that it is saved and
    loaded like this.

    Raises:
        EncoderError: the backbone has fewer layers, or others than BERT's.
    """
    check_packed(backbone.config, "layer_norms_removed")
    blocks = backbone.encoder.layer
    if layers > len(blocks):
        raise EncoderError(f"LayerNorms of {layers} layers cannot be removed: this backbone has {len(blocks)} layers.")
    for block in blocks[len(blocks) - layers :]:
        block.attention.output.LayerNorm = block.output.LayerNorm = nn.Identity()
    if layers > removed(backbone.config):
        setattr(backbone.config, MARK, layers)
