"""Geometry against obvious loops and values computed by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.analysis.geometry import alignment, gold_cosines, spectrum, uniformity
from lib.data.sts import STSTask, Subset
from lib.encoders import SentenceEncoder


def test_uniformity_equals_pdist_and_does_not_depend_on_the_block_size():
    x = torch.randn(37, 6)
    expected = torch.pdist(F.normalize(x, dim=1)).pow(2).mul(-2).exp().mean().log()
    for rows in (4, 36, 37, 1000):
        torch.testing.assert_close(uniformity(x, rows_at_once=rows), expected, rtol=1e-4, atol=1e-5)


def test_alignment_equals_the_loop():
    x, y = torch.randn(2, 9, 4)
    distances = [float(((a / a.norm()) - (b / b.norm())).norm()) for a, b in zip(x, y, strict=True)]
    assert alignment(x, y).item() == pytest.approx(sum(d**2 for d in distances) / 9, rel=1e-5)
    assert alignment(x, y, alpha=1).item() == pytest.approx(sum(distances) / 9, rel=1e-5)


def test_hand_values_and_that_uniformity_needs_two_rows():
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # distance 2
    assert uniformity(opposite).item() == pytest.approx(-8)
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-5)
    assert alignment(opposite[:1], opposite[1:]).item() == pytest.approx(4)
    with pytest.raises(ValueError, match="two rows"):
        uniformity(torch.ones(1, 3))


@pytest.mark.parametrize(("n", "step"), [(40, 1), (500, 1), (501, 2), (1100, 3)])
def test_cosines_of_pairs_that_are_spread_over_all(tiny_bert, sentences, n, step):
    first, second = (tuple((sentences * n)[start : start + n]) for start in (0, 3))
    pairs = STSTask("toy", "dev", "own", {"dev": Subset(first, second, np.arange(n) / n)})
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    found = gold_cosines(encoder, pairs)
    assert found.x.tolist() == pairs.gold[::step].tolist() and found["item"].tolist() == [*range(len(found))]
    z = torch.tensor(encoder.encode([first[2 * step], second[2 * step]]))
    assert found.y[2] == pytest.approx(torch.cosine_similarity(*z, dim=0).item(), abs=2e-5)


def test_the_spectrum_by_eigenvalues(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    z = encoder.encode(sentences[:12]).astype(float)
    expected = np.sqrt(np.linalg.eigvalsh(z @ z.T)[::-1].clip(0))
    found = spectrum(encoder, sentences[:12])
    np.testing.assert_allclose(found.y, expected / expected[0], atol=2e-5)
    assert found.x.tolist() == [*range(1, 13)] and found.y[0] == 1
