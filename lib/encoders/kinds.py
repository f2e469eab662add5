"""The kinds of backbone that open here, by their `model_type` in transformers, and what is refused of some of them."""

from collections.abc import Sequence
from typing import Any

from lib.checks import EncoderError
from lib.encoders.packed import MODEL_TYPES
from lib.encoders.pooling import POOLINGS

PADDED = ("distilbert", "mpnet", "electra", "albert", "deberta-v2", "modernbert")  # by transformers' own forward pass
DECODERS = ("gpt2", "qwen2", "qwen3", "llama")  # so are these; they give vectors and are not trained
HAS_POOLER = (*MODEL_TYPES, "mpnet", "albert")  # whose classes have to be told to leave it out
RESERVES_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")  # two of them
COUNTS_DISTANCES = ("mpnet", "deberta-v2")  # between tokens, whatever position_ids say
RATES = (
    "hidden_dropout_prob attention_probs_dropout_prob dropout attention_dropout embedding_dropout mlp_dropout".split()
)


def dropout_rates(config: Any) -> dict[str, float]:
    """The rates of a backbone's dropout, by what its configuration calls them."""
    return {name: getattr(config, name) for name in RATES if hasattr(config, name)}


def check_packed(config: Any, what: str) -> None:
    """Raise EncoderError where `what`, which needs BERT's inner layers, is asked of another kind of backbone."""
    if config.model_type not in MODEL_TYPES:
        raise EncoderError(
            f"{what} needs the inner layers of {', '.join(MODEL_TYPES)}, and this is a {config.model_type} model: do without "
            "it, or take one of those."
        )


def check_attention(encoder: Any, layers: Sequence[int]) -> None:
    """Raise EncoderError when the attention of these layers (0-based) cannot be read while a SentenceEncoder embeds."""
    check_packed(encoder.backbone.config, "attention (ami_weight, cross_attention_layers, attention maps)")
    if POOLINGS[encoder.pooling].layers != "last":
        raise EncoderError(f"pooling {encoder.pooling!r} gives no attention maps: choose cls, mask_prompt or mean.")
    depth = encoder.backbone.config.num_hidden_layers
    if not layers or min(layers) < 0 or max(layers) >= depth:
        raise EncoderError(f"attention of layers {list(layers)} was asked for; this backbone has 0 to {depth - 1}.")


def check_no_decoder(config: Any) -> None:
    """Raise EncoderError for a decoder."""
    if config.model_type in DECODERS:
        raise EncoderError(
            f"{config.model_type} models are decoders: they are not trained here, and embed by their last token (pooling "
            "last) or a mean; take an encoder to train."
        )


def first_position(backbone: Any) -> int:
    """Of the first token of a text: RoBERTa and MPNet reserve two of their positions."""
    return 2 if backbone.config.model_type in RESERVES_POSITIONS else 0


def longest_input(backbone: Any) -> int:
    """Longest input of a backbone in tokens."""
    return backbone.config.max_position_embeddings - first_position(backbone)
