"""Pure functions of tensors, one file per paper's idea."""

from lib.losses.info_nce import info_nce
from lib.losses.masked_lm import IGNORED, mask_tokens, masked_lm

__all__ = ["IGNORED", "info_nce", "mask_tokens", "masked_lm"]
