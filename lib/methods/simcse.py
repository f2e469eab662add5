"""SimCSE (Gao, Yao, Chen 2021, arXiv 2104.08821): unsupervised, supervised, and with the MLM auxiliary loss."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from lib.checks import Checked, NonNegative, Positive, PositiveProbability, Probability
from lib.data import Batch
from lib.data.corpus import HARD_NEGATIVE
from lib.distributed import gather
from lib.encoders import SentenceEncoder
from lib.encoders.heads import MODEL_FILES, BatchNormMLP, mlm_head, projection_head
from lib.encoders.sentence_encoder import random_kept
from lib.losses import IGNORED, info_nce, masked_lm
from lib.methods.base import Method, Needs, Views
from lib.methods.mlm import TokenMasking, TokenReplacement

# what the losses read the embeddings through: the tanh layer, in training only (unsupervised SimCSE) or kept with the
# encoder (supervised); nothing; two layers with batch norm, in training only (DiffCSE, InfoCSE)
Projection = Literal["train_only", "always", "none", "bn_mlp"]


@dataclass(frozen=True)
class SimCSEArguments(Checked):
    temperature: Positive = 0.05  # Table D.1
    projection: Projection = "train_only"  # see Projection; Table 6
    hard_negative_weight: NonNegative = 1.0  # alpha of Table 7; the third column of a triple is the hard negative
    dropout_masks: Literal["independent", "identical"] = "independent"  # identical: Table 3's "fixed 0.1"
    replacement_rate: Probability = 0.0  # share of the positive's tokens that the frozen MLM guesses (Table 1: 0.15)
    mlm_weight: NonNegative = 0.0  # Table D.2; 0.1 in the transfer rows of Table E.1
    mlm_probability: PositiveProbability = 0.15
    equal_texts: Literal["negatives", "left_out"] = "negatives"  # what the same text is to itself within a batch


class SimCSE(Method):
    """One sentence twice (dropout makes the views), or a pair, perhaps with hard negatives."""

    Arguments = SimCSEArguments

    @classmethod
    def needs(cls, arguments: SimCSEArguments) -> Needs:
        return Needs(
            optional_roles=("positive", "hard_negative"),
            files=(MODEL_FILES,) if arguments.mlm_weight or arguments.replacement_rate else (),
            batch_norm=arguments.projection == "bn_mlp",
            beside_embeddings=("mlm_weight",) if arguments.mlm_weight else (),
        )

    def __init__(self, encoder: SentenceEncoder, arguments: SimCSEArguments) -> None:
        super().__init__(encoder, arguments)
        if arguments.projection == "always":
            encoder.projection = encoder.projection or projection_head(encoder.dimension)
        elif arguments.projection == "train_only":
            self.training_head = projection_head(encoder.dimension)
        elif arguments.projection == "bn_mlp":
            self.training_head = BatchNormMLP(encoder.dimension)
        rate = arguments.replacement_rate
        self.replacement = TokenReplacement(encoder, rate=rate) if rate else None
        self.mlm_head = self.masking = None
        if arguments.mlm_weight:
            self.mlm_head = mlm_head(encoder.backbone, tied=False)
            self.masking = TokenMasking(encoder, probability=arguments.mlm_probability)

    def embed(self, batch: Batch) -> Views:
        if self.replacement is not None:
            input_ids, mask, roles = with_positive(batch)
            input_ids, place = input_ids.clone(), roles.index("positive")
            input_ids[:, place] = self.replacement(input_ids[:, place], mask[:, place])
            batch = replace(batch, input_ids=input_ids, attention_mask=mask, roles=roles)
        if self.arguments.dropout_masks == "independent":
            return all_columns(self, batch)
        input_ids, mask, roles = with_positive(batch)
        views = []
        for column in range(len(roles)):  # every pass but the last puts the random state back
            with random_kept(input_ids.device, enabled=column + 1 < len(roles)):
                views.append(self.encoder(input_ids[:, column], mask[:, column]))
        return Views({"encoder": torch.stack(views, dim=1)}, roles)

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        terms = {"info_nce": contrast(views, self.arguments, **self.further(views, batch))}
        if self.arguments.mlm_weight:
            terms["mlm"] = self.arguments.mlm_weight * self.masked_lm(batch)
        return terms

    def further(self, views: Views, batch: Batch) -> dict[str, Any]:
        """Further arguments of `info_nce`; a subclass adds to them."""
        return {"excluded": equal_texts(batch) if self.arguments.equal_texts == "left_out" else None}

    def masked_lm(self, batch: Batch) -> Tensor:
        """MLM loss of anchors and positives, each masked by itself."""
        input_ids, mask = both_views(batch)
        masked, labels = self.masking(input_ids, mask)
        chosen = labels != IGNORED  # the head sees these only: logits of all tokens would be the largest tensor
        hidden = self.encoder.run_backbone(masked, mask).last_hidden_state.float()
        return masked_lm(self.mlm_head(hidden[chosen]), labels[chosen])


def all_columns(method: Method, batch: Batch) -> Views:
    """What `method.read` gives of all N x S sentences in one call, a sentence without a positive twice."""
    input_ids, mask, roles = with_positive(batch)
    vectors = method.read(input_ids.flatten(0, 1), mask.flatten(0, 1))
    return Views({name: z.unflatten(0, (-1, len(roles))) for name, z in vectors.items()}, roles)


def contrast(views: Views, arguments: Any, **more: Any) -> Tensor:
    """InfoNCE of anchors and positives, with hard negatives and a queue where there are some; more: of `losses.info_nce`."""
    z, more = views.by_role(), {"queue": views.negatives} | more
    if hard := [z[role] for role in views.roles if HARD_NEGATIVE.fullmatch(role)]:
        more |= {"hard_negatives": torch.stack(hard), "hard_negative_weight": arguments.hard_negative_weight}
    return info_nce(z["anchor"], z["positive"], temperature=arguments.temperature, **more)


def equal_texts(batch: Batch) -> Tensor:
    """Which texts, of the rows of all processes, have the tokens of an anchor or of its positive: bool [N, N] for the
    positives, behind it [N, N] for each column of hard negatives. See `info_nce`, `excluded`."""
    input_ids, mask, roles = with_positive(batch)
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(2**62, (input_ids.size(-1),), generator=draw).to(input_ids.device)
    keys = gather((input_ids * mask * factors).sum(-1))  # [N, S], of 64 bits
    of = dict(zip(roles, keys.unbind(1), strict=True))
    others = [of["positive"], *(of[role] for role in roles if HARD_NEGATIVE.fullmatch(role))]
    return torch.cat([(of["anchor"][:, None] == key) | (of["positive"][:, None] == key) for key in others], dim=1)


def both_views(batch: Batch) -> tuple[Tensor, Tensor]:
    """input_ids, attention_mask [2N, L] of anchors and positives, those of a sentence one after the other."""
    input_ids, mask, roles = with_positive(batch)
    both = [roles.index("anchor"), roles.index("positive")]
    return input_ids[:, both].flatten(0, 1), mask[:, both].flatten(0, 1)


def with_positive(batch: Batch) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """input_ids, attention_mask [N, S, L] and their S roles: without a positive, the anchor is its own, and dropout is
    the only difference."""
    input_ids, mask, roles = batch.input_ids, batch.attention_mask, batch.roles
    if "positive" in roles:
        return input_ids, mask, roles
    input_ids, mask = (torch.cat([x[:, :1], x], dim=1) for x in (input_ids, mask))
    return input_ids, mask, ("anchor", "positive", *roles[1:])
