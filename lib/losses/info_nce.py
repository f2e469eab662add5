"""The contrastive loss that every method here starts from."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float = 0.05,
    hard_negatives: Tensor | None = None,
    hard_negative_weight: float = 1.0,
    queue: Tensor | None = None,
    include_positive: bool = True,
    own_view: bool = False,
    margin: float = 0.0,
    excluded: Tensor | None = None,
) -> Tensor:
    """InfoNCE with in-batch negatives, one direction: row i of z1 looks for row i of z2.

    SimCSE (arXiv 2104.08821) Eq. 1; with hard negatives Eq. 5 and the weight alpha of Table 7:

        l_i = -log( e^{cos(z_i, z_i+)/t} / sum_j ( e^{cos(z_i, z_j+)/t} + alpha^{[i=j]} e^{cos(z_i, z_j-)/t} ) )

    Every z1[i] has N - 1 in-batch negatives, plus K N with hard_negatives, plus Q with a queue.
    Returns the mean over the N rows; 0 where nothing is left to compare with (one row, no positive, no queue).

    Args:
        z1, z2: [N, D], the two views; normalised inside (cosine similarity).
        temperature: t above.
        hard_negatives: [N, D], row i is the hard negative of row i and an ordinary one of all others; [K, N, D] with K of
            them for each row.
        hard_negative_weight: alpha, the weight of a row's own hard negative (the authors' option is log alpha).
        queue: [Q, D], extra negatives of z1 (momentum queue); give it detached.
        include_positive: False leaves the positive out of the denominator, as some papers' equations read literally.
        own_view: the in-batch negatives of z1[i] are the other rows of z1 (miCSE, Eq. 2), not those of z2.
        margin: degrees by which the angle of a positive pair counts as wider, up to 180 (ArcCSE's L_arc, ACL 2022).
        excluded: bool [N, N], with hard negatives [N, (1 + K) N]: what is no negative of z1[i], such as the same text once more;
            its own positive stays.
    """
    if z1.shape != z2.shape or z1.dim() != 2:
        raise ValueError(f"z1 {tuple(z1.shape)} and z2 {tuple(z2.shape)} must both be [N, D].")
    if hard_negatives is not None and hard_negatives.shape[-2:] != z1.shape:
        raise ValueError(f"hard_negatives {tuple(hard_negatives.shape)} must be {tuple(z1.shape)} like z1.")
    if temperature <= 0 or hard_negative_weight < 0 or not 0 <= margin < 180:
        raise ValueError("temperature must be positive, hard_negative_weight not negative, margin from 0 to 180.")
    z1, z2 = F.normalize(z1, dim=-1, eps=1e-8), F.normalize(z2, dim=-1, eps=1e-8)
    positives = z1 @ z2.T / temperature  # [N, N], the diagonal holds the positives
    own = torch.eye(len(z1), dtype=torch.bool, device=z1.device)
    if margin:  # the clamp: the slope of acos is infinite at 1
        angles = torch.acos((z1 * z2).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6))  # [N]
        wider = (angles + math.radians(margin)).clamp(max=math.pi)
        positives = torch.where(own, torch.cos(wider) / temperature, positives)
    in_batch = torch.where(own, positives, z1 @ z1.T / temperature) if own_view else positives
    columns = [in_batch if include_positive else in_batch.masked_fill(own, -math.inf)]
    log_alpha = math.log(hard_negative_weight) if hard_negative_weight else -math.inf
    for hard in () if hard_negatives is None else hard_negatives.view(-1, *z1.shape):
        negatives = z1 @ F.normalize(hard, dim=-1, eps=1e-8).T / temperature  # [N, N]
        columns.append(torch.where(own, negatives + log_alpha, negatives))
    if excluded is not None:
        masks = excluded.split(len(z1), dim=1)
        masks = [masks[0] & ~own, *masks[1:]]
        columns = [column.masked_fill(mask, -math.inf) for column, mask in zip(columns, masks, strict=True)]
    if queue is not None and len(queue):
        columns.append(z1 @ F.normalize(queue, dim=-1, eps=1e-8).T / temperature)  # [N, Q]
    if len(z1) == 1 and len(columns) == 1 and not include_positive:
        return 0.0 * positives.sum()
    return (torch.logsumexp(torch.cat(columns, dim=1), dim=1) - positives.diagonal()).mean()


def positives_only(z1: Tensor, z2: Tensor, *, temperature: float = 0.05) -> Tensor:
    """InfoNCE whose N - 1 negatives are replaced by cosines of 0: nothing is pushed away (miCSE, Table 4, as coded).

        l_i = log( e^{cos(z_i, z_i+)/t} + N - 1 ) - cos(z_i, z_i+)/t

    z1, z2: [N, D], the two views; normalised inside. Returns the mean over the N rows.
    """
    if z1.shape != z2.shape or z1.dim() != 2:
        raise ValueError(f"z1 {tuple(z1.shape)} and z2 {tuple(z2.shape)} must both be [N, D].")
    if temperature <= 0:
        raise ValueError("temperature must be positive.")
    positive = F.cosine_similarity(z1, z2, dim=-1, eps=1e-8) / temperature  # [N]
    rest = math.log(len(z1) - 1) if len(z1) > 1 else -math.inf
    return (torch.logaddexp(positive, torch.full_like(positive, rest)) - positive).mean()
