"""Points and curves of scored pairs, against the same computed one by one."""

import numpy as np
import pytest

from lib.analysis import cosines
from lib.data.sts import STSTask, Subset
from lib.encoders import SentenceEncoder


@pytest.fixture
def encoder(tiny_bert):
    return SentenceEncoder.from_pretrained(tiny_bert)


@pytest.fixture
def pairs(sentences):
    gold = np.linspace(0, 5, 20)
    return STSTask("toy", "dev", "dev", {"0": Subset(tuple(sentences[:20]), tuple(sentences[20:40]), gold)})


def test_a_pair_is_a_point_of_its_gold_score_and_cosine(encoder, pairs, monkeypatch):
    found = cosines.by_gold(encoder, pairs)
    assert [*found] == ["item", "metric", "group", "x", "y"] and [*found.x] == [*pairs.gold]
    x, y = encoder.encode([pairs.sentences1[7]])[0], encoder.encode([pairs.sentences2[7]])[0]
    assert found.y[7] == pytest.approx(x @ y / np.sqrt(x @ x * (y @ y)), abs=1e-5)
    monkeypatch.setattr(cosines, "MOST", 7)
    few = cosines.by_gold(encoder, pairs)
    assert [*few.item] == [*range(7)] and [*few.y] == pytest.approx([*found.y[::3]], abs=1e-6)


def test_singular_values_are_those_of_the_vectors_and_start_at_1(encoder, pairs):
    found = cosines.singular_values(encoder, pairs)
    vectors = encoder.encode([*pairs.sentences1, *pairs.sentences2])
    squared = np.sort(np.linalg.eigvalsh(vectors.T.astype(float) @ vectors))[::-1][: len(found)]
    assert [*found.step] == [*range(32)] and found.value[0] == 1
    np.testing.assert_allclose(found.value**2, squared / squared[0], atol=1e-5)
