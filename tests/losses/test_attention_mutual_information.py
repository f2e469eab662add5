"""attention_mutual_information against loops over sentences, heads and layers, hand values, and what may be drawn."""

import math
import random
import statistics

import pytest
import torch

from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import attention_rows

PARITY, PAIRS = "layer_parity", "head_pairs"
LENGTHS = (6, 4, 3)


def views(lengths=LENGTHS, layers=4, heads=2, dropout=0.2, seed=0):
    """Attention of two similar views, padded keys 0, some entries dropped: [layers, N, heads, n, n] twice; mask [N, n]."""
    generator = torch.Generator().manual_seed(seed)
    n = max(lengths)
    mask = torch.arange(n) < torch.tensor(lengths)[:, None]
    shape = (layers, len(lengths), heads, n, n)
    scores = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    both = []
    for _ in range(2):
        noisy = scores + torch.randn(shape, generator=generator, dtype=torch.float64)
        dropped = torch.rand(shape, generator=generator) < dropout
        weights = noisy.masked_fill(~mask[:, None, None, :], -math.inf).softmax(-1)
        both.append(weights.masked_fill(dropped, 0.0) / (1 - dropout))
    return *both, mask


def loop_rows(att1, att2, valid, slicing):
    """The rows of all sentences; a row is a list of (entry of view 1, entry of view 2, may it be drawn)."""
    layers, sentences, heads, n, _ = att1.shape
    rows = []
    for i in range(sentences):
        if slicing == PARITY:
            groups = [[(c, k) for c in range(m, layers, 2)] for k in range(heads) for m in (0, 1)]
        else:
            groups = [[(c, k), (c, k + 1)] for c in range(layers) for k in range(0, heads, 2)]
        for group in groups:
            rows.append([])
            for layer, head in group:
                for query in range(n):
                    for key in range(n):
                        a, b = (att[layer, i, head, query, key].item() for att in (att1, att2))
                        rows[-1].append((a, b, valid[i, query, key].item() and a > 0 and b > 0))
    return rows


def keep(rows, samples):
    """The rows that are kept and how many entries of each are drawn."""
    counts = [sum(allowed for *_, allowed in row) for row in rows]
    kept = [row for row, count in zip(rows, counts, strict=True) if count >= samples]
    return (kept, samples) if kept else (rows, min(counts))


def draw(kept, samples, seed=0):
    """An index [rows kept, samples]."""
    chance = random.Random(seed)
    return torch.tensor([chance.sample([p for p, e in enumerate(row) if e[2]], samples) for row in kept])


def loop_reference(kept, index, factor):
    """Steps 7 to 9 of the fact sheet."""
    information = 0.0
    for row, positions in zip(kept, index.tolist(), strict=True):
        x, y = ([math.log(row[p][view]) for p in positions] for view in (0, 1))
        rho = statistics.correlation(x, y)
        information += -0.5 * math.log(max(1 - rho**2, 1e-6)) / len(kept)
    entries = [allowed for row in kept for *_, allowed in row]
    return -information * ((sum(entries) / len(entries)) ** 2 + 1e-6 if factor else 1.0)


@pytest.mark.parametrize("slicing", [PARITY, PAIRS])
@pytest.mark.parametrize("padded_queries", [True, False])
@pytest.mark.parametrize("factor", [True, False])
@pytest.mark.parametrize("samples, drops_rows", [(5, False), (30, True), (80, False)])  # 80: more than any row has
def test_equals_the_loop(slicing, padded_queries, factor, samples, drops_rows):
    att1, att2, mask = views()
    valid = (mask | padded_queries)[:, :, None] & mask[:, None, :]
    rows = loop_rows(att1, att2, valid, slicing)
    kept, drawn = keep(rows, samples)
    assert (len(kept) < len(rows)) is drops_rows and (drawn < samples) is (samples == 80) and drawn > 3
    index = draw(kept, drawn)
    options = {"valid": valid, "slicing": slicing, "samples": samples, "valid_fraction_factor": factor}
    found = attention_mutual_information(att1, att2, index=index, **options)
    assert found.item() == pytest.approx(loop_reference(kept, index, factor), rel=1e-6)  # the factor is float32


@pytest.mark.parametrize("slicing, heads, queries", [(PARITY, 1, 2), (PAIRS, 2, 1)])
def test_hand_value(slicing, heads, queries):
    """Logarithms 1 2 3 4 and 1 3 2 4: rho is 0.8, MI is -log 0.6. Two heads that share a row have one query of two, the
    second of which is no token."""
    logarithms = torch.tensor([[1.0, 2, 3, 4], [1, 3, 2, 4]])
    both = logarithms.exp().view(2, 1, 1, heads, queries, 2).expand(2, 2, 1, 2, 2, 2)
    valid = (torch.arange(2) < queries)[None, :, None].expand(1, 2, 2)
    for with_factor, factor in ((False, 1.0), (True, (queries / 2) ** 2 + 1e-6)):
        how = {"slicing": slicing, "samples": 4, "valid_fraction_factor": with_factor}
        found = attention_mutual_information(*both, valid=valid, **how)
        assert found.item() == pytest.approx(math.log(0.6) * factor, rel=1e-5)


def test_invariant_to_the_scale_of_a_row_and_symmetric_in_the_views():
    att1, att2, mask = views()
    valid = mask[:, None, :].expand(-1, 6, -1)
    kept, drawn = keep(loop_rows(att1, att2, valid, PARITY), 10)
    options = {"valid": valid, "samples": drawn, "index": draw(kept, drawn)}
    loss = attention_mutual_information(att1, att2, **options)
    scale = torch.rand(len(LENGTHS), 2, 1, 1, dtype=torch.float64) + 0.1  # by sentence and head
    torch.testing.assert_close(attention_mutual_information(7 * att1, scale * att2, **options), loss)
    torch.testing.assert_close(attention_mutual_information(att2, att1, **options), loss)


def drawn_entries(att1, att2, slicing=PARITY, **options):
    """[rows, M] bool: what was drawn has a gradient; the same in both views."""
    options.setdefault("generator", torch.Generator().manual_seed(0))
    att1, att2 = att1.clone().requires_grad_(), att2.clone().requires_grad_()
    attention_mutual_information(att1, att2, slicing=slicing, **options).backward()
    first, second = (attention_rows(att.grad != 0, slicing) for att in (att1, att2))
    assert torch.equal(first, second)
    return first


@pytest.mark.parametrize("slicing", [PARITY, PAIRS])
@pytest.mark.parametrize("samples", [5, 30, 80])
def test_draws_without_replacement_from_what_is_valid_and_positive_in_both_views(slicing, samples):
    att1, att2, mask = views()
    att1[..., 4], att2[..., 4] = 0.5, 0.25  # positive entries at padded keys: `valid` forbids them
    valid = mask[:, :, None] & mask[:, None, :]
    rows = loop_rows(att1, att2, valid, slicing)
    allowed = torch.tensor([[entry[2] for entry in row] for row in rows])
    found = drawn_entries(att1, att2, slicing, valid=valid, samples=samples)
    assert not (found & ~allowed).any()
    kept, drawn = keep(rows, samples)
    assert found.sum(1).tolist() == [drawn if row in kept else 0 for row in rows]


def test_every_allowed_entry_is_drawn_equally_often_and_rows_draw_by_themselves():
    att1, att2, _ = views((3,) * 1000, layers=2, heads=1, dropout=0.0)
    for att in (att1, att2):
        att[..., 0, :] *= 100  # large ones are drawn no more often
    valid = torch.ones(3, 3, dtype=torch.bool)
    valid[0, 1] = valid[2, 2] = False
    generator = torch.Generator().manual_seed(0)
    found = drawn_entries(att1, att2, valid=valid.expand(1000, 3, 3), samples=4, generator=generator)  # [2000, 9]
    expected = 4 / 7 * valid.flatten()
    torch.testing.assert_close(found.float().mean(0), expected, atol=0.05, rtol=0)  # five deviations
    assert len(found.unique(dim=0)) == math.comb(7, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_views_and_constant_rows_stay_finite(dtype):
    attention = views()[0].to(dtype)
    constant = torch.full_like(attention, 0.2)
    valid = torch.ones(3, 6, 6, dtype=torch.bool)
    for att, expected in ((attention, 0.5 * math.log(1e-6)), (constant, None)):
        att1, att2 = att.clone().requires_grad_(), att.clone().requires_grad_()
        loss = attention_mutual_information(att1, att2, valid=valid, samples=9, valid_fraction_factor=False)
        loss.backward()
        assert math.isfinite(loss.item()) and att1.grad.isfinite().all() and att2.grad.isfinite().all()
        assert expected is None or loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("slicing", [PARITY, PAIRS])
@pytest.mark.parametrize("factor", [True, False])
def test_gradient_is_right(slicing, factor):
    att1, att2, mask = views((3, 2), layers=2, dropout=0.0)
    options = {"valid": mask[:, None, :].expand(-1, 3, -1), "slicing": slicing, "valid_fraction_factor": factor}
    kept, drawn = keep(loop_rows(att1, att2, options["valid"], slicing), 6)
    options |= {"samples": drawn, "index": draw(kept, drawn)}
    inputs = att1.requires_grad_(), att2.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: attention_mutual_information(a, b, **options), inputs)


def test_saturated_attention_leaves_the_gradient_finite():
    """Softmax underflows to numbers whose logarithm has a gradient beyond float32; these count as 0."""
    scores = torch.zeros(2, 1, 2, 4, 4)
    scores[..., 0] = 101.0  # the others get about 1e-44, a denormal number
    noise, another = torch.randn(2, *scores.shape, generator=torch.Generator().manual_seed(0))
    scores += noise
    scores.requires_grad_()
    view = scores.softmax(-1)
    assert ((view > 0) & (view < 1e-38)).any()
    other = (scores.detach() * 0.5 + another).softmax(-1)
    loss = attention_mutual_information(view, other, valid=torch.ones(1, 4, 4, dtype=torch.bool), samples=16)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(scores.grad).all()
