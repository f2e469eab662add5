"""The tensor-modulus constraint of TNCSE and JTCSE (Zong et al.): two encoders give positives of equal length."""

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_COSINE = 1e-4  # stands for a cosine that is not positive, as in the authors' code: a constant, no gradient


def tensor_modulus(h: Tensor, g: Tensor, p: Tensor, q: Tensor, *, halved: bool = True) -> Tensor:
    """One direction of the constraint between encoder I (h, p) and encoder II (g, q); JTCSE Eqs. 1 and 13.

        L = mean_i  -log cos(h_2i, g_2i+1)  *  |p_2i - q_2i+1| / (2 (|p_2i| + |q_2i+1|))

    Rows 2i and 2i+1 are the two copies of sentence i; a copy is compared with the other encoder's other copy. The first
    factor weighs: pairs whose directions agree already count less. Gradient flows through both factors. A cosine below
    zero has no logarithm; it counts as 1e-4 (factor 9.21) there. Returns the mean over the N sentences; 0 where p and q vanish.

    Args:
        h, g: [2N, D], the [CLS] vectors of encoder I and II.
        p, q: [2N, E], the vectors whose lengths are constrained (pooler outputs), of I and II.
        halved: the 1/2 of the authors' code; the paper's equations lack it.
    """
    if h.dim() != 2 or h.shape != g.shape or p.dim() != 2 or p.shape != q.shape or len(h) != len(p) or len(h) % 2:
        shapes = ", ".join(str(tuple(x.shape)) for x in (h, g, p, q))
        raise ValueError(f"h and g must both be [2N, D], p and q both [2N, E]; got {shapes}.")
    first, second = slice(0, None, 2), slice(1, None, 2)
    cosine = F.cosine_similarity(h[first], g[second], dim=-1)
    weight = -torch.log(torch.where(cosine > 0, cosine, SMALLEST_COSINE))
    distance = (p[first] - q[second]).norm(dim=-1)
    lengths = p[first].norm(dim=-1) + q[second].norm(dim=-1)
    ratio = torch.where(lengths > 0, distance / lengths.clamp(min=torch.finfo(lengths.dtype).tiny), 0.0)
    return (weight * ratio).mean() * (0.5 if halved else 1.0)
