"""Distillation as a method: the teacher's vectors beside the tokens, the term, runs."""

import dataclasses

import numpy as np
import pytest

from lib import runs
from lib.config import RunConfig
from lib.data import Corpus, tokenize_corpus
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.ensemble import EncoderSum
from tests.methods.conftest import build as build_method


@pytest.fixture
def changed(shake):
    """Function (folder, seed) -> an encoder with the weights of a backbone, moved."""
    return lambda folder, seed, **options: shake(SentenceEncoder.from_pretrained(folder, **options), seed, scale=0.1)


@pytest.fixture
def teacher(tiny_bert, tmp_path, changed):
    """Folder of a single encoder, pooled by the mean."""
    changed(tiny_bert, 1, pooling="mean").save(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.fixture
def twins(tiny_bert, tiny_roberta, tmp_path, changed):
    """Folder of an ensemble with two tokenizers."""
    EncoderSum([changed(tiny_bert, 1), changed(tiny_roberta, 2)], [0.3, 0.7]).save(tmp_path / "twins")
    return tmp_path / "twins"


def build(folder, teacher, **options):
    return build_method("distill", folder, teacher=str(teacher), **options)


def prepared(method, sentences, max_length=32):
    """The tokens with the teacher's vectors, as runs.run makes them."""
    corpus = Corpus("toy", (tuple(sentences),))
    tokens = tokenize_corpus(corpus, method.encoder, max_length=max_length)
    return dataclasses.replace(tokens, extra=method.row_data(corpus, max_length))


@pytest.mark.parametrize("kind", ["teacher", "twins"])
def test_every_row_has_the_vector_of_the_teacher(kind, request, tiny_bert, sentences):
    folder = request.getfixturevalue(kind)
    texts = sentences[:30] + sentences[:5]
    vectors = prepared(build(tiny_bert, folder, dropout=0.3), texts).extra["teacher"]
    assert vectors.shape == (35, 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, ensemble.load(folder).encode(texts), atol=1e-6)


def test_the_teacher_reads_no_more_than_the_student(twins, tiny_bert):
    texts = ["a dog runs in the park", " ".join(["a dog runs"] * 20)]
    method = build(tiny_bert, twins)
    vectors = {n: prepared(method, texts, max_length=n).extra["teacher"] for n in (8, 16)}
    teacher = ensemble.load(twins)
    for n in vectors:
        for part in ensemble.parts(teacher):
            part.max_length = n
        expected = teacher.encode(texts)
        np.testing.assert_allclose(vectors[n], expected, atol=1e-6)
    assert abs(vectors[8][1] - vectors[16][1]).max() > 1e-2


@pytest.mark.parametrize("kind", ["teacher", "twins"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_term_is_the_mean_squared_error(kind, pooling, request, tiny_bert, sentences):
    folder = request.getfixturevalue(kind)
    method, rows = build(tiny_bert, folder, pooling=pooling), np.array([11, 4, 17, 0])
    terms = method(prepared(method, sentences[:20]).batch(rows))
    texts = [sentences[i] for i in rows]
    difference = method.encoder.encode(texts) - ensemble.load(folder).encode(texts)
    assert set(terms) == {"mse"} and (difference**2).mean() > 1e-3
    assert float(terms["mse"].detach()) == pytest.approx((difference**2).sum() / (4 * 32), rel=1e-4)


def test_only_the_student_is_trained(teacher, tiny_bert, sentences):
    method = build(tiny_bert, teacher)
    tokens = prepared(method, sentences[:20])
    method(tokens.batch(np.arange(8)))["mse"].backward()
    assert {id(p) for p in method.parameters()} == {id(p) for p in method.encoder.parameters()}
    assert all(layer.attention.self.value.weight.grad.any() for layer in method.encoder.backbone.encoder.layer)


def test_its_own_teacher_leaves_nothing_to_learn(tiny_bert, sentences):
    method = build(tiny_bert, tiny_bert)
    assert method(prepared(method, sentences[:20]).batch(np.arange(20)))["mse"] < 1e-10


def test_a_run_brings_the_student_to_the_teacher(tiny_bert, corpus_file, twins, sentences):
    config = RunConfig(
        corpus=str(corpus_file), backbone=str(tiny_bert), batch_size=16, epochs=2, learning_rate=3.0e-3, dropout=0.0,
        max_length=16, dev_task="none", method="distill", method_arguments={"teacher": str(twins)},
    )  # fmt: skip
    finished = runs.run(config)
    student, target = finished.encoder(), ensemble.load(twins).encode(sentences)
    assert isinstance(student, SentenceEncoder)
    start = SentenceEncoder.from_pretrained(config.backbone)
    errors = [((e.encode(sentences) - target) ** 2).mean() for e in (start, student)]
    assert errors[1] < 0.5 * errors[0]
    assert finished.history.mse.iloc[0] == pytest.approx(errors[0], rel=0.3)
