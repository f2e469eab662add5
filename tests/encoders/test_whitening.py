"""BERT-whitening: by hand, what it makes of the sentences it is fitted on, what it does not depend on, refusals."""

import numpy as np
import pytest

from lib.checks import EncoderError
from lib.config import RunConfig
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum
from lib.encoders.whitening import Whitened
from lib.runs import Plan


class Fixed:
    """Gives the text "i" row i of its vectors, in float64."""

    def __init__(self, vectors):
        self.vectors = np.asarray(vectors, dtype=np.float64)

    def encode(self, sentences, **options):
        return self.vectors[[int(one) for one in sentences]]


TEXTS = [str(i) for i in range(60)]
VECTORS = np.random.default_rng(0).normal(size=(60, 5)) @ np.random.default_rng(1).normal(size=(5, 5)) + 7.0


def test_by_hand():
    """Variances 8 and 2 on turned axes, around (10, 20): each axis is divided by its deviation, the widest comes first."""
    spread = np.array([[4, 0], [-4, 0], [0, 2], [0, -2]]) / np.sqrt(2)
    found = Whitened(Fixed(spread @ [[1, 1], [-1, 1]] + [10, 20]), TEXTS[:4]).encode(TEXTS[:4])
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.abs(found), np.sqrt([[2, 0], [2, 0], [0, 2], [0, 2]]), atol=1e-6)
    assert found[0, 0] == -found[1, 0] and found[2, 1] == -found[3, 1]


def test_cosines_do_not_depend_on_what_a_linear_map_did_to_the_vectors():
    mapped = VECTORS @ np.triu(np.ones((5, 5))) - 3
    both = [Whitened(Fixed(some), TEXTS[:40]).encode(TEXTS) for some in (VECTORS, mapped)]
    cosines = [x @ x.T / np.outer(*[np.linalg.norm(x, axis=1)] * 2) for x in both]
    np.testing.assert_allclose(*cosines, atol=1e-5)


def test_k_dimensions_are_the_first_of_all():
    encoder = Fixed(VECTORS * [1, 10, 1, 1, 100])
    whole, two = (Whitened(encoder, TEXTS, k).encode(TEXTS) for k in (0, 2))
    np.testing.assert_array_equal(two, whole[:, :2])
    assert abs(np.corrcoef(two[:, 0], VECTORS[:, 4])[0, 1]) > 0.99


def test_directions_without_variance_are_left_out_and_more_are_refused():
    for vectors, texts in ((VECTORS, TEXTS[:4]), (VECTORS @ np.diag([1, 1, 1, 0, 0]), TEXTS)):
        assert Whitened(Fixed(vectors.astype(np.float32)), texts).encode(TEXTS).shape == (60, 3)
        with pytest.raises(EncoderError, match=f"of {len(texts)} sentences vary in 3 directions, not 4"):
            Whitened(Fixed(vectors), texts, 4)
    for texts in (TEXTS[:1], ["3", "3"]):
        with pytest.raises(EncoderError, match="vary in 0 directions, not 1"):
            Whitened(Fixed(VECTORS), texts)


def test_a_plan_measures_it_as_a_reading_of_its_encoder(tiny_bert, sentences, shake):
    encoder = shake(SentenceEncoder.from_pretrained(tiny_bert, pooling="mean"))
    both = EncoderSum([encoder, encoder])
    readings = [Whitened(encoder, sentences), Whitened(encoder, sentences, 8), Whitened(both, sentences), encoder]
    assert len({one.fingerprint() for one in readings}) == 4
    plan = Plan("demo")
    plan.add("runs", RunConfig(backbone=str(tiny_bert)), {"SimCSE": {}}, [1])
    plan.tasks("sts", ["demo"], RunConfig().data_folder())
    rows = plan.measure("", "sts", table="whitening", untuned=readings).query("aggregation == 'all'")
    assert rows.pooling.tolist() == ["mean, whitened"] * 3 + ["mean"]
    assert rows.value.nunique() == 3  # twice the vectors are the same, whitened
