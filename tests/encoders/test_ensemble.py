"""Sums of encoders: vectors, merging, and the round trip through disk."""

import shutil

import numpy as np
import pytest
import torch

from lib.checks import EncoderError
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.ensemble import EncoderSum, merge, parts


@pytest.fixture
def encoder(shake):
    """Function (folder, seed, options) -> loaded, its weights moved: another seed is another encoder."""
    return lambda folder, seed, **options: shake(SentenceEncoder.from_pretrained(folder, **options), seed)


@pytest.fixture
def three(encoder, tiny_bert):
    return [encoder(tiny_bert, seed) for seed in (1, 2, 3)]


@pytest.mark.parametrize("weights", [None, [0.3, 0.7, -2.0]])
def test_the_vector_is_the_weighted_sum_of_those_that_each_encoder_gives_with_the_options(three, sentences, weights):
    expected = sum(w * e.encode(sentences[:20]) for w, e in zip(weights or [1, 1, 1], three, strict=True))
    total, tokens = EncoderSum(three, weights), []
    three[2].register_forward_pre_hook(lambda module, args: tokens.append(args[0].numel()))
    vectors = total.encode(sentences[:20], batch_tokens=40)
    assert len(tokens) > 1 and max(tokens) <= 40
    assert vectors.dtype == np.float32 and total.encode([]).shape == (0, 32)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_merging_twins_with_a_third(three, tiny_roberta, sentences, encoder):
    third = encoder(tiny_roberta, 3)
    merged = merge([EncoderSum(three[:2]), third], [0.3, 0.7])
    assert merged.weights == [0.3, 0.3, 0.7] and parts(merged) == [*three[:2], third]
    vectors = [one.encode(sentences[:9]) for one in parts(merged)]
    expected = 0.3 * (vectors[0] + vectors[1]) + 0.7 * vectors[2]
    np.testing.assert_allclose(merged.encode(sentences[:9]), expected, atol=1e-5)


def test_a_relative_folder_is_found_from_here_and_from_the_repository(three, repository, monkeypatch):
    EncoderSum(three).save(repository / "saved")
    (repository / "elsewhere").mkdir()
    for place in (repository, repository / "elsewhere"):
        monkeypatch.chdir(place)
        assert len(parts(ensemble.load("saved"))) == 3


def test_the_fingerprint_follows_the_members_their_order_and_their_weights(three, tmp_path):
    one, two, third = three
    total = EncoderSum([one, two], [0.3, 0.7])
    total.save(tmp_path / "saved")
    assert ensemble.load(tmp_path / "saved").fingerprint() == total.fingerprint()
    others = [one, EncoderSum([one]), EncoderSum([one, two]), EncoderSum([one, two], [0.7, 0.3])]
    others += [EncoderSum([two, one], [0.7, 0.3]), EncoderSum([one, third], [0.3, 0.7])]
    assert len({total.fingerprint(), *(encoder.fingerprint() for encoder in others)}) == 7


def test_options_reach_the_members_and_wrong_members_or_weights_are_refused(three, tiny_bert, encoder, tmp_path):
    with pytest.raises(EncoderError, match=r"\[16, 32\]"):
        EncoderSum([three[0], encoder(tiny_bert, 4, projection=torch.nn.Linear(32, 16))])
    EncoderSum(three[1:], [2.0, 3.0]).save(tmp_path / "saved")
    again = ensemble.load(tmp_path / "saved", pooling="mean")
    assert again.weights == [2.0, 3.0] and {part.pooling for part in parts(again)} == {"mean"}
    listed = tmp_path / "saved" / ensemble.LIST
    listed.write_text(listed.read_text().replace("3.0", "NaN"))
    with pytest.raises(EncoderError, match="its vectors are not finite"):
        ensemble.load(tmp_path / "saved")
    shutil.rmtree(tmp_path / "saved/encoder_2")
    with pytest.raises(EncoderError, match="encoder_2"):
        ensemble.load(tmp_path / "saved")
