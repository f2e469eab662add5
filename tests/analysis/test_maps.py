"""Maps: neighbours stay neighbours, a shuffled map is not trusted, the same seed gives the same map."""

import numpy as np
import pytest

from lib.analysis.maps import layout, trust


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    return np.eye(6)[np.arange(120) % 6] + 0.1 * random.normal(size=(120, 6))


@pytest.mark.parametrize("kind", ["tsne", "umap"])
def test_a_map_keeps_the_groups_and_a_shuffled_one_does_not(vectors, kind):
    points = layout(vectors, kind)
    assert points.shape == (120, 2) and np.isfinite(points).all()
    groups = np.arange(120) % 6
    centres = np.stack([points[groups == g].mean(0) for g in range(6)])
    nearest = np.linalg.norm(points[:, None] - centres[None], axis=2).argmin(1)
    assert (nearest == groups).mean() > 0.95
    assert trust(vectors, points) > 0.9 > 0.7 > trust(vectors, np.random.default_rng(1).permutation(points))
    np.testing.assert_allclose(layout(vectors * 7, kind), points, atol=1e-3)  # lengths do not count, the seed does


def test_what_makes_no_sense_is_refused(vectors):
    with pytest.raises(ValueError, match="tsne or umap, not 'pca'"):
        layout(vectors, "pca")
    with pytest.raises(ValueError, match="at least five"):
        layout(vectors[:4])
