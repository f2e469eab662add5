"""Masked language modelling: pre-training, and the auxiliary objective of SimCSE (Table D.2) and InfoCSE."""

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100


def mask_tokens(
    input_ids: Tensor,
    maskable: Tensor,
    *,
    mask_id: int,
    vocabulary_size: int,
    probability: float = 0.15,
    mask_only: bool = False,
    continues: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """BERT's 80/10/10 rule: of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay.

    Args:
        input_ids: [N, L].
        maskable: bool [N, L], False at [CLS], [SEP] and padding.
        mask_id: id of [MASK].
        vocabulary_size: random replacements are drawn from [0, vocabulary_size).
        probability: share of maskable tokens that is chosen.
        mask_only: all chosen tokens become [MASK], as InfoCSE's text has it; the draws are the same.
        continues: bool [N, L], True at the second and later pieces of a word: all pieces of a word are then chosen
            together (whole-word masking), the 80/10/10 rule stays one draw per piece. None draws every piece alone.
        generator: for draws that can be repeated; None takes the global one.

    Returns:
        Masked input_ids and labels, both [N, L]; labels are IGNORED where nothing is predicted.
    """
    draws = torch.rand(3, *input_ids.shape, generator=generator, device=input_ids.device)
    choice = draws[0]
    if continues is not None:  # every piece takes the draw of its word's first piece
        place = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)
        choice = choice.gather(1, place.masked_fill(continues, 0).cummax(1).values)
    chosen = (choice < probability) & maskable
    labels = torch.where(chosen, input_ids, IGNORED)
    random_ids = (draws[2] * vocabulary_size).long()
    if mask_only:
        return torch.where(chosen, mask_id, input_ids), labels
    masked = torch.where(chosen & (draws[1] < 0.8), mask_id, input_ids)
    masked = torch.where(chosen & (draws[1] >= 0.8) & (draws[1] < 0.9), random_ids, masked)
    return masked, labels


def masked_lm(logits: Tensor, labels: Tensor, *, reduction: str = "mean") -> Tensor:
    """Cross-entropy over the chosen tokens, in nats; 0 when none was chosen.

    Args:
        logits: [..., V].
        labels: [...], IGNORED where nothing is predicted.
        reduction: `mean` over the chosen tokens (BERT, all authors' codes) or their `sum` (InfoCSE, Eqs. 4 and 5; MSSE, Eq. 9).
    """
    if not (labels != IGNORED).any():
        return logits.sum() * 0.0
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction=reduction)
