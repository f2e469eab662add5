"""SSCL (Chen et al., ACL 2023, arXiv 2305.06154): the sentence's vectors of earlier layers as further negatives, against
over-smoothing. Facts from the authors' code."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from lib.checks import ConfigError, PositiveCount, Probability
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.encoders.pooling import POOLINGS, pooled
from lib.methods.base import Views
from lib.methods.simcse import SimCSE, SimCSEArguments, contrast


@dataclass(frozen=True)
class SSCLArguments(SimCSEArguments):
    negative_layers: PositiveCount = 2  # how many layers below the last one give negatives
    layers_weight: Probability = 0.5  # of the term with them; the rest is SimCSE's
    layers_gradient: bool = True  # into the layers below too (code), or of the negatives into the head alone
    dropout_masks: Literal["independent"] = "independent"  # both views come from one pass


class SSCL(SimCSE):
    """SimCSE's contrastive term times 1 - w, and `layers` times w = layers_weight: the same (hard negatives included) with
    further cosines in the denominator, of an anchor with both views of all sentences, its own among them, pooled from the
    layers below the last one as the embedding is pooled from the last, and read through the same projection. Views name them
    `layer -2`, `layer -3`, ... An MLM term stands outside the average. Raises ConfigError where the backbone has
    not so many layers, or the pooling reads more than one.
    """

    Arguments = SSCLArguments

    def __init__(self, encoder: SentenceEncoder, arguments: SSCLArguments) -> None:
        super().__init__(encoder, arguments)
        depth = encoder.backbone.config.num_hidden_layers
        if arguments.layers_weight and arguments.negative_layers >= depth:
            raise ConfigError(
                f"negative_layers must be below the backbone's {depth} layers, not {arguments.negative_layers}."
            )
        if arguments.layers_weight and POOLINGS[encoder.pooling].layers != "last":
            raise ConfigError(f"sscl pools single layers: choose cls, mean or mask_prompt, not {encoder.pooling}.")
        self.places = tuple(-2 - i for i in range(arguments.negative_layers if arguments.layers_weight else 0))
        self.names += tuple(f"layer {place}" for place in self.places)

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        if not self.places:
            return super().read(input_ids, attention_mask)
        encoder = self.encoder
        hidden = encoder.run_backbone(input_ids, attention_mask, output_hidden_states=True).hidden_states
        outputs = [BaseModelOutput(last_hidden_state=hidden[place]) for place in (-1, *self.places)]
        inputs = input_ids, attention_mask, encoder.tokenizer.mask_token_id
        vectors = (pooled(encoder.pooling, output, *inputs) for output in outputs)  # [N, D] each
        last, *below = vectors if encoder.projection is None else map(encoder.projection, vectors)
        below = below if self.arguments.layers_gradient else [z.detach() for z in below]
        return dict(zip(self.names, [last, *below], strict=True))

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(views, batch)
        if self.places:
            weight, both = self.arguments.layers_weight, [views.roles.index(role) for role in ("anchor", "positive")]
            below = [views.embeddings[f"layer {place}"][:, both].flatten(0, 1) for place in self.places]
            terms["info_nce"] = (1 - weight) * terms["info_nce"]
            further = self.further(views, batch) | {"queue": torch.cat(below)}
            terms["layers"] = weight * contrast(views, self.arguments, **further)
        return terms
