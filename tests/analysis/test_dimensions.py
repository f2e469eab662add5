from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.analysis.dimensions import agreement, scales_at_start, term_history
from lib.data import load_corpus, load_sts
from lib.encoders import SentenceEncoder
from lib.losses import dimension_contrast, info_nce
from tests.methods.test_contract import configure


def test_values_and_gradients_are_those_of_the_losses_with_weight_one(tiny_bert, corpus_file):
    config = configure(tiny_bert, "", "msse", corpus=str(corpus_file), batch_size=8)
    config = config.replace(dropout=0.0, projection="none", decoder_input_dropout=0.0)
    frame, again = (scales_at_start(config.replace(dimension_weight=weight)) for weight in (0.0, 0.5))
    pd.testing.assert_frame_equal(frame, again)
    encoder = SentenceEncoder.from_pretrained(tiny_bert, pooling=config.pooling, dropout=0.0)
    texts = load_corpus(str(corpus_file), corpus_file.parent, size=8, seed=config.corpus_seed).columns[0]
    h = torch.from_numpy(encoder.encode(texts))
    both = torch.stack([h, h], 1).requires_grad_()
    loss = info_nce(both[:, 0], both[:, 1])
    assert frame.loc["L_NCE", "value"] == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
    gradient = torch.autograd.grad(loss, both)[0].norm().item()
    assert frame.loc["L_NCE", "gradient at h"] == pytest.approx(gradient, rel=1e-2, abs=1e-6)
    assert frame.loc["L_NCE", "relative to L_NCE"] == 1
    contrast = frame.loc["L_DCM, sum"].value
    assert contrast == pytest.approx(dimension_contrast(h, h, reduce="sum").item(), rel=1e-3)
    assert contrast == pytest.approx(h.size(1) ** 2 * frame.loc["L_DCM, dim2", "value"], rel=1e-4)
    words = sum(map(len, encoder.tokenize(texts, config.max_length)))
    whole, share = (frame.loc[f"L_ICM, {how} over the tokens"] for how in ("sum", "mean"))
    assert whole.value == pytest.approx(words * share.value, rel=1e-4)
    assert whole["gradient at h"] == pytest.approx(words * share["gradient at h"], rel=1e-3)
    assert (frame["gradient at h"] > 0).all()


def test_quantities_of_a_history_by_hand():
    steps = pd.DataFrame({"step": [1, 2], "own_vector": [np.nan, 4.0], "mean_vector": [np.nan, 4.25]})
    sent = {"contrastive_gradient": 2.0, "dimension_gradient": 1.0, "reconstruction_gradient": 0.5}
    steps = steps.assign(other_vector=6.0, **sent)
    wanted = {"dimension": 0.5, "reconstruction": 0.25, "saves": 0.25, "misleads": 2.0}
    found = term_history(*wanted)(SimpleNamespace(history=steps))
    assert set(found.step) == {2} and found.set_index("metric").value.to_dict() == wanted


def test_agreement_is_over_the_pairs_that_mean_the_same(tiny_bert, tmp_path):
    encoder, task = SentenceEncoder.from_pretrained(tiny_bert), load_sts(tmp_path, "demo", "dev")
    found = agreement(encoder, task).set_index("metric")
    alike = [i for i, gold in enumerate(task.gold) if gold > 4]
    x, y = (encoder.encode([side[i] for i in alike]) for side in (task.sentences1, task.sentences2))
    both = np.corrcoef(x.T, y.T)[: x.shape[1], x.shape[1] :]
    others = both[~np.eye(len(both), dtype=bool)]
    assert found.value["correlation with itself"] == pytest.approx(both.diagonal().mean(), abs=1e-5)
    assert found.value["correlation with others"] == pytest.approx(np.sqrt(np.square(others).mean()), abs=1e-5)
    assert found[["task", "split", "protocol"]].to_numpy().tolist() == [["demo", "dev", "pairs with gold above 4"]] * 2
