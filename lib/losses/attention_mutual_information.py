"""Attention mutual information, the regulariser of miCSE (Klein, Nabi 2023, arXiv 2211.04928)."""

import torch
from torch import Tensor

SLICINGS = ("layer_parity", "head_pairs")
SMALLEST_ATTENTION = 1e-30  # smaller entries count as 0: the gradient of their logarithm overflows (seen with weight 1)
SMALLEST = 1e-6  # 1 - rho^2 is not taken below this, so that the term stays finite (6.9 per row at most)


def attention_mutual_information(
    att1: Tensor,
    att2: Tensor,
    *,
    valid: Tensor,
    slicing: str = "layer_parity",
    samples: int = 150,
    index: Tensor | None = None,
    generator: torch.Generator | None = None,
    valid_fraction_factor: bool = True,
) -> Tensor:
    """Minus the mutual information of the attention of two views; lower means that the views attend alike.

    Every sentence gives several rows of attention entries (see `attention_rows`). Of each row, `samples` entries are
    drawn without replacement, the same in both views; their logarithms are taken as a pair of jointly normal variables
    with correlation rho, whose mutual information is (Eq. 4)

        MI = -1/2 log(1 - rho^2)

    An entry can be drawn where `valid` allows it and both views are above 1e-30 (dropout zeroes entries). Rows with
    fewer than `samples` such entries are left out; if all have fewer, all are kept and the smallest row sets the number.
    No gradient flows through what is drawn. Returns minus the mean over the kept rows; 0 where no row has an entry to draw.

    Args:
        att1, att2: [layers, N, heads, n, n], attention probabilities of the two views, after dropout.
        valid: [N, n, n] bool, query x key entries that hold no padding.
        slicing: `layer_parity` as in the authors' code (an even number of layers), `head_pairs` as in the paper (of heads).
        index: [rows kept, samples], positions within the rows instead of drawing them.
        generator: for the draw, on the device of att1; None takes the global one.
        valid_fraction_factor: multiply by the squared fraction of the kept rows' entries that could be drawn, plus
            1e-6: one number for the batch, which padding and dropped entries make smaller. It is in the authors' code
            and not in the paper.
    """
    if att1.shape != att2.shape or att1.dim() != 5 or att1.size(-1) != att1.size(-2):
        raise ValueError(f"att1 {tuple(att1.shape)} and att2 {tuple(att2.shape)} must be [layers, N, heads, n, n].")
    if valid.shape != (att1.size(1), *att1.shape[-2:]):
        raise ValueError(f"valid {tuple(valid.shape)} must be [N, n, n] for attention {tuple(att1.shape)}.")
    rows1, rows2 = attention_rows(att1, slicing), attention_rows(att2, slicing)  # [R, M]
    allowed = attention_rows(valid[None, :, None].expand_as(att1), slicing) & (
        torch.minimum(rows1, rows2) > SMALLEST_ATTENTION
    )
    counts = allowed.sum(1)
    keep = counts >= samples
    if not keep.any():
        keep, samples = torch.ones_like(keep), int(counts.min())
    if samples == 0:
        return 0.0 * (att1.sum() + att2.sum())
    if not keep.all():
        rows1, rows2, allowed = rows1[keep], rows2[keep], allowed[keep]
    if index is None:
        keys = torch.rand(allowed.shape, generator=generator, device=allowed.device).masked_fill_(~allowed, -1.0)
        index = keys.topk(samples, sorted=False).indices  # without replacement, as torch.multinomial, twice as fast
    elif index.shape != (len(rows1), samples):
        raise ValueError(f"index {tuple(index.shape)} must be [{len(rows1)} rows kept, {samples} samples].")
    x, y = rows1.gather(1, index).log(), rows2.gather(1, index).log()  # [R, samples]
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    rho = torch.cosine_similarity(x, y, dim=1, eps=1e-6)
    information = -0.5 * torch.log((1 - rho**2).clamp(min=SMALLEST))
    factor = allowed.float().mean() ** 2 + 1e-6 if valid_fraction_factor else 1.0
    return -information.mean() * factor


def attention_rows(attention: Tensor, slicing: str) -> Tensor:
    """Cut attention [layers, N, heads, n, n] into rows [R, M], the rows of a sentence together.

    layer_parity: a row is one head in every second layer: R = N heads 2, M = layers/2 n^2, head before parity.
    head_pairs: a row is two adjacent heads of one layer: R = N layers heads/2, M = 2 n^2, layer before pair.
    """
    layers, n_sentences, heads = attention.shape[:3]
    if slicing == "layer_parity":
        if layers % 2:
            raise ValueError(f"slicing 'layer_parity' needs an even number of layers, got {layers}.")
        cut = attention.unflatten(0, (layers // 2, 2)).permute(2, 3, 1, 0, 4, 5)  # [N, heads, 2, layers/2, n, n]
    elif slicing == "head_pairs":
        if heads % 2:
            raise ValueError(f"slicing 'head_pairs' needs an even number of heads, got {heads}.")
        cut = attention.transpose(0, 1).unflatten(2, (heads // 2, 2))  # [N, layers, heads/2, 2, n, n]
    else:
        raise ValueError(f"slicing {slicing!r} is unknown: choose one of {', '.join(SLICINGS)}.")
    return cut.reshape(n_sentences * cut.size(1) * cut.size(2), -1)
