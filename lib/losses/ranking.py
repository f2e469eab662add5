"""RankCSE's terms on similarity lists (Liu et al., ACL 2023, arXiv 2305.16726): row i of the cosines [N, N] ranks all
sentences of the batch for sentence i. Two views rank alike, and as a teacher does."""

import math

import torch.nn.functional as F
from torch import Tensor


def ranking_consistency(z1: Tensor, z2: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Jensen-Shannon divergence of the lists of both views, in nats; 0 where they agree, at most ln 2.

        P, R = row softmax of cos(z1, z2)/t and of its transpose,  M = (P + R)/2
        l_i  = ( KL(P_i || M_i) + KL(R_i || M_i) ) / 2

    z1, z2: [N, D], the two views; normalised inside. Returns the mean over the N rows.
    """
    cosines = _cosines(z1, z2, temperature) / temperature
    p, r = cosines.log_softmax(1), cosines.T.log_softmax(1)
    mixture = p.logaddexp(r) - math.log(2)
    return (p.exp() * (p - mixture) + r.exp() * (r - mixture)).sum(1).mean() / 2


def list_net(
    z1: Tensor, z2: Tensor, teacher: Tensor, *, temperature: float = 0.05, teacher_temperature: float = 0.025
) -> Tensor:
    """ListNet: cross-entropy of the teacher's list and the student's, both without the sentence itself.

        l_i = - sum_{j != i} softmax(T_i / t_T)_j log softmax(cos_i / t)_j

    z1, z2: [N, D], the student's two views; normalised inside. teacher: [N, N], its cosines T; give them detached.
    temperature, teacher_temperature: t and t_T above. Returns the mean over the N rows.
    """
    student = _others(_cosines(z1, z2, temperature, teacher_temperature, teacher=teacher)) / temperature
    return -((_others(teacher) / teacher_temperature).softmax(1) * student.log_softmax(1)).sum(1).mean()


def list_mle(z1: Tensor, z2: Tensor, teacher: Tensor, *, temperature: float = 0.05) -> Tensor:
    """ListMLE: how unlikely the student finds the teacher's order pi_i of the other sentences, the most similar one first.

        l_i = - 1/N sum_k log( e^{cos(i, pi_i(k))/t} / sum_{l >= k} e^{cos(i, pi_i(l))/t} )

    The paper has no 1/N, and its sum grows as ln (N-1)! (492 at N = 128, where InfoNCE starts from 4.9). Of equal values of the
    teacher, the earlier row of the batch counts as the more similar one. Arguments as in `list_net`.
    """
    student, order = _others(_cosines(z1, z2, temperature, teacher=teacher)), _others(teacher)
    ranked = student.gather(1, order.argsort(dim=1, descending=True, stable=True)) / temperature
    rest = ranked.flip(1).logcumsumexp(1).flip(1)  # of each rank and those behind it
    return (rest - ranked).sum(1).mean() / len(z1)


def _cosines(z1: Tensor, z2: Tensor, *temperatures: float, teacher: Tensor | None = None) -> Tensor:
    if z1.shape != z2.shape or z1.dim() != 2:
        raise ValueError(f"z1 {tuple(z1.shape)} and z2 {tuple(z2.shape)} must both be [N, D].")
    if teacher is not None and teacher.shape != (len(z1), len(z1)):
        raise ValueError(f"teacher {tuple(teacher.shape)} must be [N, N], with N = {len(z1)}.")
    if min(temperatures) <= 0:
        raise ValueError("temperatures must be positive.")
    return F.normalize(z1, dim=-1, eps=1e-8) @ F.normalize(z2, dim=-1, eps=1e-8).T


def _others(square: Tensor) -> Tensor:
    """[N, N] -> [N, N - 1], without the diagonal."""
    n = len(square)
    return square.flatten()[: n * n - 1].view(n - 1, n + 1)[:, 1:].reshape(n, n - 1)
