"""The transfer protocol on a few easy lines per task: folds, settings, rows."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from lib.data.transfer import Split
from lib.evaluation import RESULT_COLUMNS, evaluate_transfer, transfer
from lib.evaluation.logistic_regression import Setting, fit_classifiers


def test_pair_features():
    u, v = np.array([[1.0, -2.0]]), np.array([[3.0, 4.0]])
    np.testing.assert_array_equal(transfer.pair_features(u, v), [[2.0, 6.0, 3.0, -8.0]])


def some(random, words, number):
    """Easy texts: the word of the class is in the text, among noise."""
    labels = np.arange(number) % len(words)
    noise = [" ".join(f"w{n}" for n in random.integers(0, 30, size=3)) for _ in labels]
    return Split([f"{text} {words[label]}" for text, label in zip(noise, labels, strict=True)], None, labels)


@pytest.fixture
def tasks():
    """A task of each kind: folds, with a dev and a test set, with a test set, and of pairs that are equal or not."""
    random = np.random.default_rng(0)
    sst, trec = some(random, ("bad", "good"), 30), some(random, ("human", "place", "number"), 72)
    first, second = some(random, ("x",), 30).sentences1, some(random, ("y",), 30).sentences1
    labels = np.arange(30) % 2
    second = [a if label else b for a, b, label in zip(first, second, labels, strict=True)]
    return {
        "CR": {"train": some(random, ("bad", "good"), 51)},
        "SST2": dict.fromkeys(("train", "dev", "test"), sst),
        "TREC": dict.fromkeys(("train", "test"), trec),
        "MRPC": dict.fromkeys(("train", "test"), Split(first, second, labels)),
    }


@cache
def direction(word):
    return np.random.default_rng(int.from_bytes(word.encode(), "little")).normal(size=24)


def bag_of_words(texts):
    return np.stack([sum(map(direction, text.split())) for text in texts])


def test_rows_and_determinism(tasks, monkeypatch):
    """As the papers' tables: ten folds of 0.9 of the rows in each of ten, four penalties, a refit; but in few passes."""
    fits = []

    def quick(*arguments, setting, seed):
        fits.append((len(arguments[4]), setting, seed))
        return fit_classifiers(*arguments, setting=Setting(3e-2, 8, tenacity=1, passes_per_evaluation=1), seed=seed)

    monkeypatch.setattr(transfer, "fit_classifiers", quick)
    calls = []

    def encode(texts):
        calls.append(texts)
        return bag_of_words(texts)

    frame = pd.concat([evaluate_transfer(encode, *task) for task in tasks.items()], ignore_index=True)
    numbers, settings, seeds = zip(*fits, strict=True)
    assert numbers == (400, 10, 4, 40, 1, 40, 1)  # CR, SST2, TREC, MRPC
    assert {*settings} == {Setting(1e-3, 64, tenacity=5, passes_per_evaluation=4)} and {*seeds} == {1111}
    assert frame.columns.tolist() == RESULT_COLUMNS
    assert frame["task"].tolist() == [task for task in tasks for _ in range(2)]
    assert frame["split"].tolist() == ["test", "dev"] * 4
    assert set(frame["protocol"]) == {"SentEval, logistic regression, full"}
    assert frame["value"].between(60, 100).all()
    assert len(calls) == 4 and all(len(set(call)) == len(call) for call in calls)
    assert evaluate_transfer(bag_of_words, "MRPC", tasks["MRPC"]).equals(frame[6:].reset_index(drop=True))
