"""Aggregations by hand, scipy as the oracle, and the published scores of a public encoder."""

import os

import numpy as np
import pytest
from scipy.stats import spearmanr

from lib.checks import EncoderError
from lib.data import STSTask, Subset, load_sts
from lib.data.sts import STS_TASKS
from lib.evaluation import evaluate_sts
from lib.evaluation.sts import cosine, evaluate_pair
from tests.conftest import REAL


def task(name="STS12", sizes=(30, 10), seed=0):
    random = np.random.default_rng(seed)
    subsets = {}
    for i, n in enumerate(sizes):
        first, second = (tuple(f"{name} {i} {j} {side}" for j in range(n)) for side in "ab")
        subsets[str(i)] = Subset(first, second, random.integers(0, 6, n).astype(float))
    return STSTask(name, "test", "SentEval", subsets)


def encode(sentences):
    """A vector from the characters of a sentence, the same for the same text."""
    return np.stack([np.random.default_rng(list(s.encode())).normal(size=8) for s in sentences]).astype(np.float32)


def test_three_aggregations_and_the_average_over_seven_scores_rounded_to_two_decimals():
    def score(pairs):
        cosines = cosine(encode(pairs.sentences1), encode(pairs.sentences2))
        return 100 * spearmanr(cosines, pairs.gold).statistic

    whole = task()
    values = evaluate_sts(encode, [whole]).set_index("aggregation").value
    large, small = map(score, whole.subsets.values())
    assert values["all"] == pytest.approx(score(whole))
    assert values["mean"] == pytest.approx((large + small) / 2)
    assert values["wmean"] == pytest.approx((30 * large + 10 * small) / 40)
    tasks = [task(name, (12,), seed=i) for i, name in enumerate(STS_TASKS)]
    frame = evaluate_sts(encode, tasks)
    scores = frame[(frame.aggregation == "all") & (frame.task != "Avg.")].value
    average = frame[(frame.aggregation == "all") & (frame.task == "Avg.")].value
    assert average.item() == pytest.approx(scores.round(2).mean())
    assert "Avg." not in set(evaluate_sts(encode, tasks[:6]).task)


def test_every_distinct_sentence_is_encoded_once_to_a_vector_each():
    calls = []
    repeated = task()
    evaluate_sts(lambda s: calls.append(list(s)) or encode(s), [repeated, repeated])
    assert len(calls) == 1 and len(calls[0]) == len(set(calls[0])) == 80
    with pytest.raises(EncoderError, match="shape"):
        evaluate_sts(lambda s: encode(s)[:3], [repeated])


def test_one_pair_of_a_task():
    one, other = Subset(("a", "b"), ("c", "d"), np.array([1.0, 2.8])), Subset(("e",), ("f",), np.array([5.0]))
    vectors = {"b": [1.0, 0.0], "d": [3.0, 4.0]}
    pairs = STSTask("T", "test", "p", {"one": one, "other": other})
    rows = evaluate_pair(lambda texts: np.array([vectors[text] for text in texts]), pairs, "one", 2)
    assert rows.set_index("metric").value.to_dict() == {"cosine": pytest.approx(60.0), "gold": pytest.approx(56.0)}
    assert set(rows.task) == {"T, one, 2"}


def test_broken_vectors_count_as_cosine_zero():
    x = np.array([[1.0, 0], [0, 0], [np.nan, 1]])
    np.testing.assert_array_equal(cosine(x, np.ones((3, 2)) * [1, 0]), [1, 0, 0])


@pytest.mark.published
@pytest.mark.skipif(
    not {"CSE_DATA", "CSE_MINILM"} <= set(os.environ), reason="needs CSE_DATA and CSE_MINILM (make published)"
)
def test_published_scores_of_all_minilm_l6_v2():
    from lib.encoders import SentenceEncoder

    encoder = SentenceEncoder.from_pretrained(os.environ["CSE_MINILM"])
    assert encoder.pooling == "mean"
    frame = evaluate_sts(encoder.encode, [load_sts(REAL, name) for name in STS_TASKS])
    scores = frame[frame.aggregation == "all"].set_index("task").value.round(2)
    expected = dict(zip(STS_TASKS, (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.15), strict=True))
    assert {name: scores[name] for name in STS_TASKS} == expected
