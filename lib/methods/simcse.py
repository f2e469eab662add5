"""SimCSE (Gao, Yao, Chen 2021, arXiv 2104.08821): unsupervised, supervised, and with the MLM auxiliary loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.config import check_choice, check_range, check_types
from lib.distributed import gather
from lib.encoder import SentenceEncoder, projection_head
from lib.losses import IGNORED, info_nce, mask_tokens, masked_lm
from lib.methods.base import Method
from lib.methods.mlm import mlm_head


@dataclass(frozen=True)
class SimCSEArguments:
    temperature: float = 0.05  # Table D.1
    projection: str = "train_only"  # the tanh layer: train_only (unsupervised), always (supervised), none; Table 6
    hard_negative_weight: float = 1.0  # alpha of Table 7; the third column of a triple is the hard negative
    dropout_masks: str = "independent"  # the two views' masks; identical is the "fixed 0.1" of Table 3 and Figure 2
    mlm_weight: float = 0.0  # Table D.2; 0.1 in the transfer rows of Table E.1
    mlm_probability: float = 0.15

    def __post_init__(self) -> None:
        check_types(self)
        check_range("temperature", self.temperature, 0, above=True)
        check_range("hard_negative_weight", self.hard_negative_weight, 0)
        check_range("mlm_weight", self.mlm_weight, 0)
        check_range("mlm_probability", self.mlm_probability, 0, 1, above=True)
        check_choice("projection", self.projection, ("train_only", "always", "none"))
        check_choice("dropout_masks", self.dropout_masks, ("independent", "identical"))


class SimCSE(Method):
    """One sentence twice (dropout makes the views), or a pair, or a pair with a hard negative."""

    Arguments = SimCSEArguments

    def __init__(self, encoder: SentenceEncoder, arguments: SimCSEArguments) -> None:
        super().__init__(encoder, arguments)
        head = None if arguments.projection == "none" else projection_head(encoder.dimension)
        if arguments.projection == "always":
            encoder.projection, head = head, None
        self.training_head = head
        self.mlm_head = mlm_head(encoder, tied=False) if arguments.mlm_weight else None

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        input_ids, mask = batch["input_ids"], batch["attention_mask"]
        if input_ids.size(1) == 1:  # the same sentence twice: dropout is the only difference
            input_ids, mask = input_ids.repeat(1, 2, 1), mask.repeat(1, 2, 1)
        z = self.embed(input_ids, mask)  # [N, S, D]
        views = [gather(view) for view in z.unbind(1)]
        arguments = self.arguments
        terms = {
            "info_nce": info_nce(
                views[0],
                views[1],
                temperature=arguments.temperature,
                hard_negatives=views[2] if len(views) == 3 else None,
                hard_negative_weight=arguments.hard_negative_weight,
            )
        }
        if arguments.mlm_weight:
            terms["mlm"] = arguments.mlm_weight * self.masked_lm(input_ids[:, :2], mask[:, :2])
        return terms

    def embed(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """[N, S, L] -> [N, S, D], one encoder call over all N x S sentences."""
        if self.arguments.dropout_masks == "identical":
            state = _random_state(input_ids.device)
            views = []
            for column in range(input_ids.size(1)):
                _set_random_state(input_ids.device, state)
                views.append(self.encoder(input_ids[:, column], mask[:, column]))
            z = torch.stack(views, dim=1)
        else:
            z = self.encoder(input_ids.flatten(0, 1), mask.flatten(0, 1))
            z = z.view(*input_ids.shape[:2], -1)
        return z if self.training_head is None else self.training_head(z)

    def masked_lm(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """MLM loss of the two copies, each masked by itself. input_ids, mask: [N, 2, L]."""
        input_ids, mask = input_ids.flatten(0, 1), mask.flatten(0, 1)
        tokenizer = self.encoder.tokenizer
        special = torch.isin(input_ids, torch.tensor(tokenizer.all_special_ids, device=input_ids.device))
        masked, labels = mask_tokens(
            input_ids,
            ~special & mask.bool(),
            mask_id=tokenizer.mask_token_id,
            vocabulary_size=self.encoder.backbone.config.vocab_size,
            probability=self.arguments.mlm_probability,
        )
        chosen = labels != IGNORED  # the head sees these only: logits of all tokens would be the largest tensor
        hidden = self.encoder.run_backbone(masked, mask).last_hidden_state.float()
        return masked_lm(self.mlm_head(hidden[chosen]), labels[chosen])


def _random_state(device: torch.device) -> Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
    else:
        torch.set_rng_state(state)
