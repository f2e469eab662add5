"""The decoder's loss in MSSE's information compensation (anonymous ACL submission, Eqs. 7 to 9)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def token_reconstruction(logits: Tensor, token_ids: Tensor, *, reduce: str = "mean") -> Tensor:
    """L_ICM = -sum_i sum_j log q(x_ij | h_i): how badly a decoder rebuilds the sentences from their vectors.

    Minus its sum, plus the constant entropy of the sentences, bounds I(h, s) from below for a decoder that sees h alone
    (Barber, Agakov; Eq. 8). A decoder that also sees noisy words bounds less: what h adds to them.

    Args:
        logits: [..., V].
        token_ids: [...], the sentences' own tokens, without padding.
        reduce: `mean` over the tokens, or their `sum` (Eq. 9).

    Returns:
        Scalar, in nats; 0 when there is no token.

    Raises:
        ValueError: unknown `reduce`, or shapes that do not fit.
    """
    if reduce not in ("mean", "sum"):
        raise ValueError(f"reduce {reduce!r} is unknown: choose mean or sum.")
    if logits.shape[:-1] != token_ids.shape:
        raise ValueError(f"logits {tuple(logits.shape)} must be those of token_ids {tuple(token_ids.shape)}.")
    if not token_ids.numel():
        return logits.sum() * 0.0
    return F.cross_entropy(logits.flatten(0, -2), token_ids.flatten(), reduction=reduce)
