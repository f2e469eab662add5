"""Scores: the vectors of encoders are taken again for their sum. (That an encoder is scored once: test_plan.)"""

from __future__ import annotations

import pandas as pd
import pytest

from lib.data import load_sts
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import RESULT_COLUMNS, evaluate_sts
from lib.runs import ROW_COLUMNS, scoring, times


@pytest.fixture
def scores(tmp_path):
    return scoring.Scores([load_sts(tmp_path, "demo")])


@pytest.fixture
def encoders(tiny_bert):
    poolings = ("cls", "mean", "first_last_mean", "embeddings_last_mean")
    return [SentenceEncoder.from_pretrained(tiny_bert, pooling=pooling) for pooling in poolings]


@pytest.fixture
def read(monkeypatch):
    """The poolings of the encoders that read sentences, in order."""
    seen, encode = [], SentenceEncoder.encode

    def recorded(self, *sentences, **options):
        seen.append(self.pooling)
        return encode(self, *sentences, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", recorded)
    return seen


def test_a_sum_takes_the_vectors_of_its_encoders(scores, encoders, read):
    one, two, *_ = encoders
    both = ensemble.EncoderSum([one, two], [0.3, 0.7])
    expected = evaluate_sts(both.encode, scores.tasks).value.tolist()
    read.clear()
    scores.of(one, {}, **LABELS)
    scores.of(two, {}, **LABELS)
    assert scores.of(both, {}, **LABELS).value.tolist() == expected and read == ["cls", "mean"]
    assert scores.to_read(ensemble.EncoderSum([one, two])) == []  # held
    scores.of(ensemble.EncoderSum(encoders), {}, **LABELS)
    assert scores.to_read(both) == []  # no longer held, but its scores are kept


def test_only_the_last_vectors_are_held(scores, encoders, read):
    one, two, three, four = encoders
    for encoder in encoders:
        scores.of(encoder, {}, **LABELS)
    assert scores.to_read(ensemble.EncoderSum([one, two, one])) == [one]
    scores.of(ensemble.EncoderSum([two, one]), {}, **LABELS)
    assert read[4:] == ["cls"]
    assert scores.to_read(ensemble.EncoderSum([three, four])) == [three]


def test_the_time_of_an_encoder_is_remembered_where_one_has_read(scores, encoders, monkeypatch):
    remembered = []
    monkeypatch.setattr(times, "remember", lambda kind, seconds, units: remembered.append(units))
    one, two, *_ = encoders
    scores.of(ensemble.EncoderSum([one, two]), {}, **LABELS)
    scores.of(ensemble.EncoderSum([two, one], [0.5, 0.5]), {}, **LABELS)
    assert remembered == [2]


def test_an_evaluation_of_a_kind_is_kept_for_an_encoder_and_what_its_rows_depend_on(scores, encoders):
    asked = []

    def evaluate(encode):
        asked.append(encode(["a dog", "a cat"]).shape)
        return pd.DataFrame([("MR", "test", "p", "-", "accuracy", 50.0)], columns=RESULT_COLUMNS)

    def rows(encoder):
        return scores.of_kind("transfer", encoder, LABELS, method="untuned")

    assert rows(encoders[0]).empty and list(rows(encoders[0])) == ROW_COLUMNS  # nothing was declared
    scores.evaluations = {"transfer": {"transfer-MR": ("MR", evaluate)}}
    for encoder in (encoders[0], encoders[1], encoders[0]):
        assert rows(encoder)[["method", "task", "value", "seed"]].to_numpy().tolist() == [["untuned", "MR", 50.0, ""]]
    assert len(asked) == 2
    scores.evaluations["transfer"]["transfer-MR"] = ("MR, another", evaluate)
    rows(encoders[0])
    assert len(asked) == 3


LABELS = {"paper": "", "table": "", "method": "", "backbone": "", "profile": "demo", "run_id": ""}
