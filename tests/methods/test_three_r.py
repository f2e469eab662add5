"""3R: its limits bit by bit, the reduction by hand, the threshold, its variants."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import paths, runs
from lib.batch.parameters import declared
from lib.data.exemplars import load_pool
from lib.losses import deviations, info_nce
from tests.methods.conftest import tokenized
from tests.methods.test_contract import ARGUMENTS, configure, prepare, train

REFUSED = {"distill", "mlm"}
AROUND = sorted(set(ARGUMENTS) - REFUSED)


def inside(folder, second, name):
    """The inner method, with a projection that 3R can be put around."""
    config = configure(folder, second, name)
    return config.replace(projection="train_only") if name in ("diffcse", "infocse") else config


def wrapped(folder, second, name="simcse", **changes):
    if name in ("esimcse", "micse"):
        changes = {"place": "projection"} | changes
    return inside(folder, second, name).replace(method=f"three_r({name})", **changes)


def without(history, *columns):
    return {name: values for name, values in history.items() if name not in columns}


LOGS = ("threshold", "redundant", "deviation")


def test_a_pool_is_cut_where_the_backbone_ends(lively, second, sentences):
    method, _ = prepare(wrapped(lively("bert", max_position_embeddings=32), second), sentences)
    assert method.read_apart(load_pool())["encoder"].isfinite().all()


@pytest.mark.parametrize("name", AROUND)
def test_a_threshold_of_0_is_the_inner_method_bit_by_bit_and_one_above_all_is_overall_subtraction(
    tiny_bert, second, sentences, name
):
    plain = train(inside(tiny_bert, second, name), sentences)
    never = train(wrapped(tiny_bert, second, name, threshold=0.0, threshold_rate=0.0), sentences)
    assert without(never["history"], *LOGS) == plain["history"]
    assert never["history"]["redundant"] == [0.0] * 3
    for weight, tensor in plain["weights"].items():
        assert torch.equal(tensor, never["weights"][weight]), weight
    above = wrapped(tiny_bert, second, name, threshold_rate=0.0)
    seen = [
        train(config, sentences, lambda method: method.threshold.data.fill_(100))
        for config in (above, above.replace(dimensions="all"))
    ]
    assert seen[0]["history"]["redundant"] == [1.0] * 3
    assert without(seen[0]["history"], *LOGS) == without(seen[1]["history"], *LOGS)
    assert seen[1]["history"]["loss"] != plain["history"]["loss"]  # it reaches every method's loss


def by_hand(h, hbar, sigma, c):
    """Eq. 5, dimension by dimension."""
    return torch.stack([h[:, d] - hbar[d] if sigma[d] < c else h[:, d] for d in range(h.size(1))], dim=1)


def reduced_at_the_median(method, sigma):
    """A threshold that takes half of the dimensions."""
    c = sigma.median().item() + 1e-4
    method.threshold.data.fill_(c)
    return c


def pool_vector(method, encoder):
    return torch.from_numpy(encoder.encode(list(method.drawn()), any_words=True)).mean(0)


def test_the_reduction_by_hand_with_hard_negatives_by_the_anchors_dimensions(tiny_bert, second, sentences):
    config = wrapped(tiny_bert, second, exemplars=4).replace(dropout=0.0, projection="none", mlm_weight=0.0)
    method, _ = prepare(config, sentences)
    batch = tokenized(method, sentences[:8], sentences[8:16], sentences[16:24]).batch(np.arange(8))
    h, positive, negative = (method.encoder(*batch.column(role)) for role in ("anchor", "positive", "hard_negative"))
    drawn, hbar, sigma = method.drawn(), pool_vector(method, method.encoder), deviations(h)
    assert len(set(drawn)) == 4 and set(drawn) < set(load_pool())
    c = reduced_at_the_median(method, sigma)
    z, z_positive, z_negative = (by_hand(x, hbar, sigma, c) for x in (h, positive, negative))
    expected = info_nce(z, z_positive, hard_negatives=z_negative)
    torch.testing.assert_close(method(batch)["info_nce"], expected, rtol=1e-4, atol=1e-5)
    assert 0.3 < method.logged()["redundant"] < 0.7 and method.logged()["threshold"] == pytest.approx(c)
    method.after_step()
    assert set(method.drawn()) != set(drawn)  # other sentences in every step, the same for the same seed
    assert prepare(config, sentences)[0].drawn() == drawn


def test_a_queue_is_reduced_like_the_embeddings_and_without_gradient(tiny_bert, second, sentences):
    method, tokens = prepare(wrapped(tiny_bert, second, "micse").replace(dropout=0.0), sentences)
    views = method.inner.embed(tokens.batch(np.arange(8)))
    queue = torch.randn(5, method.encoder.dimension, generator=torch.Generator().manual_seed(0))
    head = method.inner.training_head
    hbar = head(torch.from_numpy(method.encoder.encode(list(method.drawn()), any_words=True))).mean(0)
    projected = head(views.embeddings["encoder"])
    sigma = deviations(projected[:, 0])
    c = reduced_at_the_median(method, sigma)
    reduced = method.project(views.replace(negatives=queue))
    torch.testing.assert_close(reduced.negatives, by_hand(queue, hbar, sigma, c), rtol=1e-4, atol=1e-5)
    z = reduced.embeddings["encoder"]
    torch.testing.assert_close(z[:, 1], by_hand(projected[:, 1], hbar, sigma, c), rtol=1e-4, atol=1e-5)
    assert not reduced.negatives.requires_grad and z.requires_grad


def test_each_of_two_encoders_has_its_own_pool_vector_and_dimensions(tiny_bert, second, sentences):
    method, tokens = prepare(wrapped(tiny_bert, second, "tncse").replace(dropout=0.0), sentences)
    views = method.inner.embed(tokens.batch(np.arange(8)))
    sigmas = {name: deviations(h[:, 0]) for name, h in views.embeddings.items()}
    c = reduced_at_the_median(method, torch.cat(list(sigmas.values())))
    masks = [sigma < c for sigma in sigmas.values()]
    assert not torch.equal(*masks)
    reduced = method.project(views)
    for name, encoder in zip(("first", "second"), method.encoder.encoders, strict=True):
        h, hbar = views.embeddings[name], pool_vector(method, encoder)
        for view in range(2):
            expected = by_hand(h[:, view], hbar, sigmas[name], c)
            torch.testing.assert_close(reduced.embeddings[name][:, view], expected, rtol=1e-4, atol=1e-5)


def test_a_batch_of_one_sentence_has_no_deviations_and_stays_as_it_is(tiny_bert, second, sentences):
    method, tokens = prepare(wrapped(tiny_bert, second, threshold=0.9), sentences)
    one = method.inner.embed(tokens.batch(np.arange(1)))
    assert torch.equal(method.reduce(one).embeddings["encoder"], one.embeddings["encoder"])
    method.arguments = replace(method.arguments, dimensions="all")
    assert not torch.equal(method.reduce(one).embeddings["encoder"], one.embeddings["encoder"])


def test_the_threshold_learns_with_its_own_rate_and_the_encoder_through_the_pool(tiny_bert, second, sentences):
    config = wrapped(tiny_bert, second, threshold=0.5, threshold_rate=0.01, relaxation_width=0.5)
    method, tokens = prepare(config, sentences)
    group = method.parameter_groups(config)[-1]
    assert group["lr"] == 0.01 and group["params"] == [method.threshold]
    history = train(config, sentences)["history"]
    steps = np.diff(history["threshold"])
    assert (steps != 0).all() and np.abs(steps).max() < 0.011
    fixed = train(config.replace(threshold_rate=0.0), sentences)["history"]
    assert fixed["threshold"] == [0.5] * 3
    config = config.replace(threshold=1.0, threshold_rate=0.0, dropout=0.0)
    one, other = (train(config.replace(redundant_gradient=g), sentences)["history"] for g in (True, False))
    assert one["loss"][0] == pytest.approx(other["loss"][0], rel=1e-5)
    assert one["gradient_norm"][0] != other["gradient_norm"][0]


PARAMETERS = declared(paths.root() / "notebooks/6_three_r.ipynb")[1]
TABLE_3 = runs.variants("three_r", PARAMETERS, half=3, lower_layer=1, upper_layer=5)["Table 3"]
VARIANTS = [change for name, change in TABLE_3.items() if isinstance(name, tuple)]


@pytest.fixture
def words(tmp_path):
    (tmp_path / "words.csv").write_text("word,count\nthe,3\ndog,2\nhouse,1\n")
    return str(tmp_path / "words.csv")


def test_every_variant_has_a_gradient_of_its_own(tiny_bert, second, sentences, words):
    norms = {}
    for changes in ({}, *VARIANTS, {"relaxation": "soft", "deviation_gradient": True}):
        config = wrapped(tiny_bert, second, words=words, max_steps=1, **changes)
        method, tokens = prepare(config, sentences)
        sigma = deviations(method.inner.embed(tokens.batch(np.arange(16))).embeddings["encoder"][:, 0])
        history = train(config, sentences, lambda method, sigma=sigma: reduced_at_the_median(method, sigma))["history"]
        norms[str(changes)] = history["gradient_norm"][0]
    assert len({*norms.values()}) == len(norms), norms


def test_the_deviations_of_words_are_taken_once(tiny_bert, second, sentences, words):
    config = wrapped(tiny_bert, second, dimensions="words", words=words).replace(dropout=0.0)
    method, tokens = prepare(config, sentences)
    expected = deviations(torch.from_numpy(method.encoder.encode(["the", "dog", "house"])))
    method(tokens.batch(np.arange(8)))
    torch.testing.assert_close(method.deviation_encoder, expected, rtol=1e-4, atol=1e-5)
    method.encoder.backbone.embeddings.word_embeddings.weight.data.mul_(2)
    method(tokens.batch(np.arange(8)))
    torch.testing.assert_close(method.deviation_encoder, expected, rtol=1e-4, atol=1e-5)
