"""Distillation as a method: the teacher's vectors beside the tokens, and the term."""

import numpy as np
import pytest

from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.ensemble import EncoderSum
from tests.methods.conftest import build, tokenized


@pytest.fixture(params=["one", "two"])
def teacher(request, tiny_bert, tiny_roberta, tmp_path, shake):
    """Folder of an encoder that is pooled by the mean, or of an ensemble with two tokenizers."""
    backbones = {tiny_bert: "mean", tiny_roberta: "cls"}
    encoders = [SentenceEncoder.from_pretrained(folder, pooling=pooling) for folder, pooling in backbones.items()]
    first, second = (shake(encoder, seed, scale=0.1) for seed, encoder in enumerate(encoders))
    (first if request.param == "one" else EncoderSum([first, second], [0.3, 0.7])).save(tmp_path / "teacher")
    return str(tmp_path / "teacher")


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_term_is_the_mean_squared_error_to_a_teacher_that_reads_no_more_than_the_student(
    tiny_bert, teacher, sentences, pooling
):
    method, chosen = build("distill", tiny_bert, pooling=pooling, teacher=teacher), np.array([11, 4, 17, 0])
    texts = [sentences[i] for i in chosen]
    terms = method(tokenized(method, sentences[:20], max_length=8).batch(chosen))
    whole, cut = ensemble.load(teacher), ensemble.load(teacher)
    for part in (method.encoder, *ensemble.parts(cut)):
        part.max_length = 8
    difference = method.encoder.encode(texts) - cut.encode(texts)
    assert set(terms) == {"mse"} and abs(whole.encode(texts) - cut.encode(texts)).max() > 1e-2
    assert float(terms["mse"].detach()) == pytest.approx((difference**2).sum() / (4 * 32), rel=1e-4)
