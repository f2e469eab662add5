"""TNCSE (Zong et al., AAAI 2025; predecessor of JTCSE): twin encoders held together by a tensor-modulus constraint."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor, nn

from lib.config import ConfigError, check_range, check_types
from lib.data.tokenized import tokenizer_fingerprint
from lib.distributed import gather
from lib.encoder import SentenceEncoder, longest_input, projection_head
from lib.ensemble import EncoderSum
from lib.losses import tensor_modulus, twin_info_nce
from lib.methods.base import Method
from lib.packed import FirstToken


@dataclass(frozen=True)
class TNCSEArguments:
    second_backbone: str = ""  # encoder II, a folder or hub name; empty: a copy of encoder I
    pooler_from: str = ""  # backbone whose pre-trained pooler gives the lengths; empty: a new one, equal in both
    temperature: float = 0.05
    nce_weight: float = 1.0  # each encoder by itself
    icnce_weight: float = 1.0  # between the encoders
    ictm_weight: float = 1.0  # tensor modulus, both directions
    halved: bool = True  # the factor 1/2 of the authors' code on the tensor modulus; the paper has none

    def __post_init__(self) -> None:
        check_types(self)
        check_range("temperature", self.temperature, 0, above=True)
        weights = ("nce_weight", "icnce_weight", "ictm_weight")
        for name in weights:
            check_range(name, getattr(self, name), 0)
        if not any(getattr(self, name) for name in weights):
            raise ConfigError(f"{', '.join(weights)} are all 0: nothing would be trained.")


class TNCSE(Method):
    """Terms `nce` (of each encoder), `icnce` (encoder I looks in II) and `ictm`; what is kept is the sum of both encoders.

    The encoders come from a first stage: SimCSE on two round-trip translations of the text, see the notebook. Each
    sentence passes twice through each encoder. No projection; the poolers exist in training only.
    """

    Arguments = TNCSEArguments
    corpora = ("sentences",)
    views = 4  # two copies through two encoders
    encoders = 2
    backbone_arguments = ("second_backbone", "pooler_from")

    def __init__(self, encoder: SentenceEncoder, arguments: TNCSEArguments) -> None:
        if encoder.pooling != "cls":
            raise ConfigError(f"this method compares [CLS] vectors: set pooling to cls, not {encoder.pooling}.")
        if encoder.projection is not None:
            raise ConfigError("this method compares [CLS] vectors: a backbone saved with a projection does not fit.")
        super().__init__(EncoderSum([encoder, _second(encoder, arguments.second_backbone)]), arguments)
        self.poolers = None
        if arguments.ictm_weight:
            first = pooler(encoder, arguments.pooler_from)
            self.poolers = nn.ModuleList([first, copy.deepcopy(first)])

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        arguments = self.arguments
        input_ids, mask = (batch[name][:, 0].repeat_interleave(2, 0) for name in ("input_ids", "attention_mask"))
        seen = self.first_tokens()
        h = [
            encoder(input_ids, mask, first_token=see) for encoder, see in zip(self.encoder.encoders, seen, strict=True)
        ]
        h1, h2 = (gather(z) for z in h)  # [2N, D], rows 2k and 2k + 1 are the two copies of sentence k
        terms = {}
        if arguments.nce_weight:
            both = [twin_info_nce(z, temperature=arguments.temperature) for z in (h1, h2)]
            terms["nce"] = arguments.nce_weight * sum(both)
        if arguments.icnce_weight:
            terms["icnce"] = arguments.icnce_weight * self.between(h1, h2, seen)
        if arguments.ictm_weight:
            p1, p2 = (head(z) for head, z in zip(self.poolers, (h1, h2), strict=True))
            directions = [
                tensor_modulus(h1, h2, p1, p2, halved=arguments.halved),
                tensor_modulus(h2, h1, p2, p1, halved=arguments.halved),
            ]
            terms["ictm"] = arguments.ictm_weight * sum(directions)
        return terms

    def first_tokens(self) -> list[FirstToken | None]:
        """What the passes through encoder I and II are to capture."""
        return [None, None]

    def between(self, h1: Tensor, h2: Tensor, seen: list[FirstToken | None]) -> Tensor:
        """The contrastive loss between the encoders, h1, h2 [2N, D] of all processes."""
        return twin_info_nce(h1, h2, temperature=self.arguments.temperature)


def _second(encoder: SentenceEncoder, name: str) -> SentenceEncoder:
    if not name:
        return copy.deepcopy(encoder)
    dropout = encoder.backbone.config.hidden_dropout_prob
    second = SentenceEncoder.from_pretrained(name, pooling=encoder.pooling, dropout=dropout, device="cpu")
    if tokenizer_fingerprint(second.tokenizer) != tokenizer_fingerprint(encoder.tokenizer):
        raise ConfigError(
            f"second_backbone {name!r} has another tokenizer than backbone: the twins read the same tokens."
        )
    if second.projection is not None:
        raise ConfigError(f"second_backbone {name!r} was saved with a projection: its [CLS] vectors are compared here.")
    own, other = longest_input(encoder.backbone), longest_input(second.backbone)
    if own != other:
        raise ConfigError(
            f"second_backbone {name!r} takes {other} tokens, backbone {own}: the twins read the same tokens."
        )
    encoder.max_length = second.max_length = min(second.max_length, encoder.max_length)
    if second.dimension != encoder.dimension:
        raise ConfigError(f"second_backbone {name!r} has {second.dimension} dimensions, backbone {encoder.dimension}.")
    return second


def pooler(encoder: SentenceEncoder, name: str) -> nn.Sequential:
    """BERT's pooler p = tanh(W h + b), [N, D] -> [N, D]: new, or with the pre-trained weights of backbone `name`.

    Raises:
        EncoderError: `name` cannot be loaded or was saved without a pooler.
        ConfigError: it has another size.
    """
    head = projection_head(encoder.dimension)
    if not name:
        return head
    dense = SentenceEncoder.from_pretrained(name, pooling="pooler", device="cpu").backbone.pooler.dense
    if dense.weight.shape != head[0].weight.shape:
        raise ConfigError(f"pooler_from {name!r} has {dense.out_features} dimensions, backbone {encoder.dimension}.")
    head[0].load_state_dict(dense.state_dict())
    return head
