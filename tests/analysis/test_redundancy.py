"""3R's dimensions, pool and tokens in a finished encoder, against the same by hand."""

from itertools import combinations

import numpy as np
import pytest

from lib.analysis.redundancy import dimension_statistics, smoothness
from lib.encoders import SentenceEncoder

POOL = ["the dog sees the house", "a cat was in the park"]


def mean_cosine(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.mean([unit[i] @ unit[j] for i, j in combinations(range(len(unit)), 2)])


def test_statistics_by_hand_and_a_threshold_of_0_that_takes_nothing_away(tiny_bert, sentences):
    encoder, texts = SentenceEncoder.from_pretrained(tiny_bert), sentences[:9]
    x, hbar = encoder.encode(texts), encoder.encode(POOL).mean(0)
    sigma = x.std(0)
    c = float(np.median(sigma)) + 1e-4
    reduced = np.where(sigma < c, x - hbar, x)
    seen = dimension_statistics(encoder, texts, POOL, threshold=c)
    centred = np.where(sigma < c, x - x.mean(0), x)
    a, b = hbar[sigma < c], x.mean(0)[sigma < c]
    cosine = hbar @ x.mean(0) / np.linalg.norm(hbar) / np.linalg.norm(x.mean(0))
    expected = {
        "σ, smallest": sigma.min(),
        "σ, median": np.sort(sigma)[(len(sigma) - 1) // 2],
        "σ, largest": sigma.max(),
        "redundant, %": 100 * (sigma < c).mean(),
        "cos(hbar, mean)": cosine,
        "where redundant": a @ b / np.linalg.norm(a) / np.linalg.norm(b),
        "cosine of texts": mean_cosine(x),
        "after subtraction": mean_cosine(reduced),
        "after centring": mean_cosine(centred),
    }
    assert seen == pytest.approx(expected, abs=1e-4)
    assert 0 < seen["redundant, %"] < 100
    seen = dimension_statistics(encoder, texts, POOL, threshold=0.0)
    assert np.isnan(seen["where redundant"]) and seen["redundant, %"] == 0
    assert seen["after subtraction"] == pytest.approx(seen["cosine of texts"])


def test_smoothness_is_that_of_the_loop_over_layers_and_pairs_of_tokens(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert, dropout=0.5).train()
    frame = smoothness(encoder, sentences[:7], batch_size=3)
    assert encoder.training and frame.layer.tolist() == [0, 1, 2]
    encoder.eval()
    expected = []
    for text in sentences[:7]:
        inputs = encoder.tokenizer(text, return_tensors="pt")
        layers = encoder.backbone(**inputs, output_hidden_states=True).hidden_states
        expected.append([mean_cosine(layer[0].detach().numpy()) for layer in layers])
    assert set(frame.metric) == {"token cosine"}
    np.testing.assert_allclose(frame.value, np.mean(expected, axis=0), atol=1e-5)
