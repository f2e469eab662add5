"""InfoCSE (Wu et al. 2022, arXiv 2210.06432), joint training: SimCSE, and an auxiliary network that has to predict
masked tokens and sees what the encoder knows of the sentence only in the [CLS] vector.

The first stage, which trains encoder and auxiliary head together, is method `mlm` (`stage 1` in params/variants/infocse.yaml). With
rtd_weight it is also DiffCSE (Table 12). Where paper and code disagree, the defaults are the authors' script for base.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from torch import Tensor, nn

from lib.checks import Count, NonNegative, PositiveCount, PositiveProbability
from lib.data import Batch
from lib.encoders import SentenceEncoder, heads, packed
from lib.encoders.sentence_encoder import in_mode
from lib.losses import IGNORED, masked_lm
from lib.methods.base import Needs, Views, check_some_weight
from lib.methods.diffcse import DiffCSE, DiffCSEArguments, check_reads_cls, view_pairs
from lib.methods.mlm import TokenMasking
from lib.methods.simcse import both_views


@dataclass(frozen=True)
class InfoCSEArguments(DiffCSEArguments):
    contrastive_weight: NonNegative = 1.0  # 0 in the last row of Table 5
    auxiliary_weight: NonNegative = 1.0e-5  # lambda of Eq. 7: Table 8 and the scripts; Section 4.2 says 0.005
    auxiliary_probability: PositiveProbability = 0.4  # masked share: base script, Table 7; large script: 0.3
    mask_only: bool = False  # every chosen token becomes [MASK] (paper), or 80 % do (BERT's rule, code)
    auxiliary_copies: Literal["both", "first"] = "both"  # views with a masked copy: both (code) or the first (paper)
    auxiliary_reduction: Literal["mean", "sum"] = "mean"  # over masked tokens (code), or their sum per sentence (Eq. 5)
    early_layers: Count = 0  # of the frozen network; 0: half of the backbone's (6 in the code, also for 24 layers)
    late_layers: PositiveCount = 2
    head: Literal[heads.LATE_LAYER_STARTS] = "pretrained"  # the late layers' start: stage 1, or see Table 4
    lm_head: Literal[heads.MLM_HEAD_STARTS] = "pretrained"  # start: as saved with the backbone, or new (fresh)
    detach: bool = True  # False: the frozen network is trained too (Table 6); it is never the encoder's own
    frozen_dropout: bool = False  # dropout in the frozen network: off in the base script, on in the large one
    swap_every: Count = 0  # every so many steps, L_aux also with another sentence's vector; 0: never; changes no weight
    rtd_weight: NonNegative = 0.0  # DiffCSE's is 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        check_some_weight(self, "contrastive_weight", "auxiliary_weight", "rtd_weight", "mlm_weight")


class InfoCSE(DiffCSE):
    """Terms of DiffCSE, and `auxiliary` (Eq. 7).

    Logged: `auxiliary_gradient` and `contrastive_gradient`, the norms of what L_aux and everything that is computed
    from the projection send into the encoder, that is, of their gradients at its [CLS] vectors; `own_vector` and
    `other_vector`, L_aux (mean over tokens, no dropout in the late layers) with the sentence's vector and with the next
    sentence's. With several processes, `auxiliary` and `rtd` are means over each process's own sentences.
    """

    Arguments = InfoCSEArguments

    @classmethod
    def needs(cls, arguments: InfoCSEArguments) -> Needs:
        needs = super().needs(arguments)
        if not arguments.auxiliary_weight:
            return needs
        heads_read = {heads.MODEL_FILES: arguments.lm_head, heads.LATE_LAYERS: arguments.head}
        files = {*needs.files, *(file for file, start in heads_read.items() if start == "pretrained")}
        needs = replace(needs, beside_embeddings=(*needs.beside_embeddings, "auxiliary_weight"))
        return replace(needs, passes=needs.passes + 1, further_layers=arguments.late_layers, files=tuple(sorted(files)))

    def __init__(self, encoder: SentenceEncoder, arguments: InfoCSEArguments) -> None:
        super().__init__(encoder, arguments)
        self.auxiliary = None
        if arguments.auxiliary_weight:
            self.auxiliary = AuxiliaryNetwork(encoder, arguments)
            how = {"probability": arguments.auxiliary_probability, "mask_only": arguments.mask_only}
            self.token_masking = TokenMasking(encoder, **how)

    def embed(self, batch: Batch) -> Views:
        """Captured for L_aux: the logits [M, V] of the masked tokens, and their labels [M]."""
        views = super().embed(batch)
        if self.auxiliary is None:
            return views
        copies = 2 if self.arguments.auxiliary_copies == "both" else 1
        h = view_pairs(views)[:, :copies].flatten(0, 1)  # [R, D], R = 2N or N, before any projection
        input_ids, mask = (x.unflatten(0, (-1, 2))[:, :copies].flatten(0, 1) for x in both_views(batch))
        masked, labels = self.token_masking(input_ids, mask)
        text = self.auxiliary.read(masked, mask, labels)
        every = self.arguments.swap_every
        if every and int(self.step) % every == 0 and len(batch) > 1:
            vectors = {"own_vector": h, "other_vector": h.roll(-copies, 0)}  # whose copies stand one after the other
            with in_mode(self.auxiliary, training=False):
                self.probes.swap(lambda vector: masked_lm(self.auxiliary(vector, text), text.labels), vectors)
        logits = self.auxiliary(self.probes.watch("auxiliary_gradient", h), text)
        z = self.probes.watch("contrastive_gradient", views.embeddings["encoder"])
        captured = {**views.captured, "logits": logits, "labels": text.labels, "texts": len(input_ids)}
        return views.replace(embeddings={"encoder": z}, captured=captured)

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, terms = self.arguments, super().loss(views, batch)
        terms["info_nce"] = arguments.contrastive_weight * terms["info_nce"]
        if self.auxiliary is not None:
            reduction = arguments.auxiliary_reduction
            loss = masked_lm(views.captured["logits"], views.captured["labels"], reduction=reduction)
            texts = views.captured["texts"] if reduction == "sum" else 1  # the mean over the texts
            terms["auxiliary"] = arguments.auxiliary_weight * (loss / texts)
        return terms


class MaskedText(NamedTuple):
    """As the frozen layers read it: states [T, H] of its tokens; which of them are masked, and their labels [M]."""

    tokens: packed.Tokens
    states: Tensor
    masked: packed.Tokens
    labels: Tensor


class AuxiliaryNetwork(nn.Module):
    """Frozen early layers that read the masked text, late layers that read [h; M[1:]], and an LM head of its own.

    M are the states after the early layers, h the [CLS] vector of the unmasked sentence after the encoder's last
    layer: the only way for the late layers to learn what the encoder found, and for the gradient into the encoder.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: InfoCSEArguments) -> None:
        super().__init__()
        check_reads_cls(encoder, "the auxiliary network (auxiliary_weight)")
        backbone = encoder.backbone
        early = heads.count_early_layers(backbone, arguments.early_layers)
        self.lm_head = heads.mlm_head(backbone, tied=False, start=arguments.lm_head)
        self.late = heads.late_layers(backbone, arguments.late_layers, arguments.head)
        self.early = copy.deepcopy(backbone).requires_grad_(not arguments.detach)
        self.early.encoder.layer = self.early.encoder.layer[:early]
        self.frozen_dropout, self.precision = arguments.frozen_dropout, encoder.precision

    def train(self, mode: bool = True) -> AuxiliaryNetwork:
        """The loop calls this at every step; the early layers stay in evaluation mode unless frozen_dropout."""
        super().train(mode)
        self.early.train(mode and self.frozen_dropout)
        return self

    def read(self, masked: Tensor, mask: Tensor, labels: Tensor) -> MaskedText:
        """masked ids, attention mask and labels, each [R, L]."""
        tokens, chosen = packed.Tokens(mask.bool()), packed.Tokens(labels != IGNORED)
        with self.precision(masked.device):
            embedded = tokens.pack(self.early.embeddings(input_ids=masked))
            states = packed.run_layers(self.early.encoder.layer, embedded, tokens)
        return MaskedText(tokens, states, chosen, labels[chosen.keep])

    def forward(self, h: Tensor, text: MaskedText) -> Tensor:
        """Logits [M, V] of the masked tokens; h [R, D]: the vectors of the R texts."""
        with self.precision(h.device):
            mixed = text.states.index_copy(0, text.tokens.starts(), h.to(text.states.dtype))  # [h; M[1:]]
            hidden = packed.run_layers(self.late, mixed, text.tokens, wanted=text.masked)
            return self.lm_head(hidden).float()  # of the masked tokens: logits of all would be the largest tensor
