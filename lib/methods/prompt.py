"""PromptBERT (Jiang et al., EMNLP 2022, arXiv 2201.04337): a sentence in two templates, read at the mask token, without what
the template says by itself. Facts from the authors' code."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lib.checks import Checked, ConfigError, Positive
from lib.data import Batch
from lib.encoders import SentenceEncoder, kinds
from lib.encoders.heads import projection_head
from lib.encoders.template import template, template_vectors
from lib.losses import info_nce
from lib.methods.base import Method, Views


@dataclass(frozen=True)
class PromptArguments(Checked):
    temperature: Positive = 0.05
    projection: Literal["train_only", "none"] = "train_only"  # the tanh layer of SimCSE
    second_prompt: str = 'This sentence of " [X] " means [MASK] .'  # of view 2
    # whether the template's own vector is subtracted. train_only: not from the encoder that is kept, as the authors test it.
    # released: also with positions that start at 0, where RoBERTa's start at 2 (for BERT the same)
    denoising: Literal["always", "train_only", "released", "none"] = "always"


class Prompt(Method):
    """Term `info_nce`. View 1 has the template of pooling mask_prompt, which the encoder is read with afterwards; the paper has
    these two templates for BERT, the other way round.

    Raises ConfigError where the encoder is read in another way or its positions cannot be given, or second_prompt has another
    number of tokens before the sentence, or others behind it.
    """

    Arguments = PromptArguments

    def __init__(self, encoder: SentenceEncoder, arguments: PromptArguments) -> None:
        if encoder.pooling != "mask_prompt":
            raise ConfigError(f"method prompt reads a mask token: set pooling to mask_prompt, not {encoder.pooling}.")
        if encoder.projection is not None:
            raise ConfigError("method prompt reads a mask token: a backbone saved with a projection does not fit.")
        if arguments.denoising != "none" and (kind := encoder.backbone.config.model_type) in kinds.COUNTS_DISTANCES:
            raise ConfigError(
                f"a {kind} model counts distances by itself, so that its template alone keeps no place: set denoising to none."
            )
        super().__init__(encoder, arguments)
        if arguments.projection == "train_only":
            self.training_head = projection_head(encoder.dimension)
        encoder.denoised = arguments.denoising == "always"
        before, after = template(encoder.tokenizer)
        opening, closing = template(encoder.tokenizer, arguments.second_prompt)
        if len(opening) != len(before) or closing != after:
            raise ConfigError(
                f"second_prompt {arguments.second_prompt!r} must have {len(before) - 1} tokens before [X], and behind it those "
                "of the first one: both copies of a sentence share their positions."
            )
        self.register_buffer("opening", torch.tensor(opening))

    def embed(self, batch: Batch) -> Views:
        input_ids, mask = batch.column("anchor")  # [N, L]
        other = torch.cat([self.opening.expand(len(batch), -1), input_ids[:, len(self.opening) :]], dim=1)
        both = torch.stack([input_ids, other], dim=1).flatten(0, 1)  # rows 2k and 2k + 1
        z = self.read(both, mask.repeat_interleave(2, 0))["encoder"]
        return Views({"encoder": z.unflatten(0, (-1, 2))})

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        z, denoising = self.encoder(input_ids, attention_mask), self.arguments.denoising
        if denoising in ("train_only", "released"):  # with `always` the encoder does it
            first = 0 if denoising == "released" else None
            z = z - template_vectors(self.encoder, input_ids, attention_mask, first=first)
        return {"encoder": z}

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        z = views.by_role()
        return {"info_nce": info_nce(z["anchor"], z["positive"], temperature=self.arguments.temperature)}
