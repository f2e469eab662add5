"""Pure functions of tensors, one file per paper's idea; ValueError refuses shapes and options that make no sense."""

from lib.losses.attention_mutual_information import attention_mutual_information
from lib.losses.contrastive_tension import contrastive_tension
from lib.losses.dimension_contrast import dimension_contrast
from lib.losses.info_nce import info_nce, positives_only
from lib.losses.masked_lm import IGNORED, mask_tokens, masked_lm
from lib.losses.mutual_reconstruction import mutual_reconstruction
from lib.losses.ranking import list_mle, list_net, ranking_consistency
from lib.losses.redundancy import deviations, reduce_redundancy, redundant_dimensions
from lib.losses.tensor_modulus import tensor_modulus
from lib.losses.twin_info_nce import twin_info_nce

__all__ = [
    "IGNORED", "attention_mutual_information", "contrastive_tension", "deviations", "dimension_contrast", "info_nce",
    "list_mle", "list_net", "mask_tokens", "masked_lm", "mutual_reconstruction", "positives_only", "ranking_consistency",
    "reduce_redundancy", "redundant_dimensions", "tensor_modulus", "twin_info_nce",
]  # fmt: skip
