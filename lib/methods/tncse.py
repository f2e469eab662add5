"""TNCSE (Zong et al., AAAI 2025; predecessor of JTCSE): twin encoders held together by a tensor-modulus constraint."""

import copy
from dataclasses import dataclass

from torch import Tensor, nn

from lib.checks import Checked, ConfigError, Count, NonNegative, Positive
from lib.data import Batch
from lib.data.tokenized import tokenizer_fingerprint
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum
from lib.encoders.heads import projection_head
from lib.encoders.kinds import dropout_rates, longest_input
from lib.encoders.layer_norms import remove_layer_norms
from lib.losses import tensor_modulus, twin_info_nce
from lib.methods.base import Method, Needs, Views, check_some_weight


@dataclass(frozen=True)
class TNCSEArguments(Checked):
    second_backbone: str = ""  # encoder II, a folder or hub name; empty: a copy of encoder I
    pooler_from: str = ""  # backbone whose pre-trained pooler gives the lengths; empty: a new one, equal in both
    temperature: Positive = 0.05
    nce_weight: NonNegative = 1.0  # each encoder by itself
    icnce_weight: NonNegative = 1.0  # between the encoders
    ictm_weight: NonNegative = 1.0  # tensor modulus, both directions
    halved: bool = True  # the factor 1/2 of the authors' code on the tensor modulus; the paper has none
    layer_norms_removed: Count = 0  # last layers trained without; from 1 on [CLS] gives the lengths (Figure 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_some_weight(self, "nce_weight", "icnce_weight", "ictm_weight")
        if self.layer_norms_removed and self.pooler_from:
            raise ConfigError("pooler_from is read by nobody where layer_norms_removed is above 0: leave it empty.")


class TNCSE(Method):
    """Terms `nce` (of each encoder), `icnce` (encoder I looks in II) and `ictm`; the sum of both encoders is kept.

    The encoders come from a first stage: SimCSE on text changed in two ways (translated there and back in the paper). Each
    sentence passes twice through each encoder. No projection; the poolers exist in training only, and with
    layer_norms_removed not at all: the encoders lose the LayerNorms of their last layers for good, so that the [CLS]
    vectors themselves have lengths to compare.
    """

    Arguments = TNCSEArguments

    @classmethod
    def needs(cls, arguments: TNCSEArguments) -> Needs:
        named = {"second_backbone": arguments.second_backbone, "pooler_from": arguments.pooler_from}
        return Needs(passes=4, trained_encoders=2, encoders={name: path for name, path in named.items() if path})

    def __init__(self, encoder: SentenceEncoder, arguments: TNCSEArguments) -> None:
        if encoder.pooling != "cls":
            raise ConfigError(f"this method compares [CLS] vectors: set pooling to cls, not {encoder.pooling}.")
        if encoder.projection is not None:
            raise ConfigError("this method compares [CLS] vectors: a backbone saved with a projection does not fit.")
        super().__init__(EncoderSum([encoder, _second(encoder, arguments.second_backbone)]), arguments)
        self.names = ("first", "second")
        for twin in self.encoder.encoders if arguments.layer_norms_removed else ():
            remove_layer_norms(twin.backbone, arguments.layer_norms_removed)
        self.poolers = None
        if arguments.ictm_weight:
            first = nn.Identity() if arguments.layer_norms_removed else pooler(encoder, arguments.pooler_from)
            self.poolers = nn.ModuleList([first, copy.deepcopy(first)])

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        twins = zip(self.names, self.encoder.encoders, strict=True)
        return {name: encoder(input_ids, attention_mask) for name, encoder in twins}

    def embed(self, batch: Batch) -> Views:
        copies = self.read(*(x.repeat_interleave(2, 0) for x in batch.column("anchor")))
        return Views({name: z.unflatten(0, (-1, 2)) for name, z in copies.items()})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, temperature, terms = self.arguments, self.arguments.temperature, {}
        h1, h2 = views.rows("first"), views.rows("second")  # [2N, D], rows 2k and 2k + 1 are the copies of sentence k
        if arguments.nce_weight:
            terms["nce"] = arguments.nce_weight * sum([twin_info_nce(z, temperature=temperature) for z in (h1, h2)])
        if arguments.icnce_weight:
            losses = [twin_info_nce(a, b, temperature=temperature) for a, b in self.pairs(h1, h2, views)]
            terms["icnce"] = arguments.icnce_weight * sum(losses)
        if arguments.ictm_weight:
            p1, p2 = (head(z) for head, z in zip(self.poolers, (h1, h2), strict=True))
            losses = [tensor_modulus(*z, halved=arguments.halved) for z in ((h1, h2, p1, p2), (h2, h1, p2, p1))]
            terms["ictm"] = arguments.ictm_weight * sum(losses)
        return terms

    def pairs(self, h1: Tensor, h2: Tensor, views: Views) -> list[tuple[Tensor, Tensor]]:
        """Vectors [2N, D] of the two encoders: the first of a pair looks for its positives in the second."""
        return [(h1, h2)]


def _second(encoder: SentenceEncoder, name: str) -> SentenceEncoder:
    if not name:
        return copy.deepcopy(encoder)
    rate = next(iter(dropout_rates(encoder.backbone.config).values()))
    how = {"pooling": encoder.pooling, "dropout": rate, "device": "cpu"}
    second = SentenceEncoder.from_pretrained(name, **how, what="second_backbone")
    first, other = ((tokenizer_fingerprint(e.tokenizer), longest_input(e.backbone)) for e in (encoder, second))
    if first != other:
        what = "another tokenizer or another longest text than backbone"
        raise ConfigError(f"second_backbone {name!r} has {what}: the twins read the same tokens.")
    if second.projection is not None:
        raise ConfigError(f"second_backbone {name!r} was saved with a projection: its [CLS] vectors are compared here.")
    encoder.max_length = second.max_length = min(second.max_length, encoder.max_length)
    return second


def pooler(encoder: SentenceEncoder, name: str) -> nn.Sequential:
    """BERT's pooler p = tanh(W h + b), [N, D] -> [N, D]: new, or with the pre-trained weights of backbone `name`.
    Raises EncoderError where that cannot be loaded or has no pooler, ConfigError where it has another size."""
    head = projection_head(encoder.dimension)
    if not name:
        return head
    pretrained = SentenceEncoder.from_pretrained(name, pooling="pooler", device="cpu", what="pooler_from")
    dense = pretrained.backbone.pooler.dense
    if dense.weight.shape != head[0].weight.shape:
        raise ConfigError(f"pooler_from {name!r} has {dense.out_features} dimensions, backbone {encoder.dimension}.")
    head[0].load_state_dict(dense.state_dict())
    return head
