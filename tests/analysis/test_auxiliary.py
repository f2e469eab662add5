"""What the auxiliary network reads and sends back, and MSSE's terms, against slower ways to the same numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.analysis.auxiliary import guesses, signals, with_swap
from lib.analysis.dimensions import term_history
from tests.methods.conftest import build, lively

__all__ = ["lively"]  # a fixture


def test_ratios_are_those_of_the_columns():
    history = pd.DataFrame({"step": [0, 1, 2, 3], "info_nce": [np.nan, 2.0, 1.0, 0.5]})
    history["auxiliary"], history["auxiliary_gradient"] = [np.nan, 0.04, 0.03, 0.05], [np.nan, 0.1, 0.1, 0.2]
    history["contrastive_gradient"] = [np.nan, 1.0, 1.0, 20.0]
    history["own_vector"], history["other_vector"] = [np.nan, 4.0, np.nan, 5.0], [np.nan, 4.5, np.nan, 6.0]
    run = SimpleNamespace(history=history, config=SimpleNamespace(method_arguments={"auxiliary_weight": 0.01}))
    never = signals(SimpleNamespace(history=history[["step", "info_nce"]], config=run.config))
    assert never.empty and with_swap(never).empty
    rows = signals(run)
    assert rows.settings.unique().tolist() == ["λ = 0.01"]
    expected = {"gradient ratio": [0.1, 0.01], "loss ratio": [2, 10], "other vector": [4.5, 6], "own vector": [4, 5]}
    swapped = {name: expected[name] for name in ("gradient ratio", "loss ratio")} | {"swap": [0.5, 1]}
    for found, values in ((rows, expected), (with_swap(rows.assign(seed="42", layer=pd.NA)), swapped)):
        wide = found.pivot(index="step", columns="metric", values="value")
        assert wide.index.tolist() == [1, 3] and {*wide} == {*values}
        assert all(wide[name].tolist() == pytest.approx(expected) for name, expected in values.items())


def test_quantities_of_a_history_by_hand():
    steps = pd.DataFrame({"step": [1, 2], "own_vector": [np.nan, 4.0], "mean_vector": [np.nan, 4.25]})
    sent = {"contrastive_gradient": 2.0, "dimension_gradient": 1.0, "reconstruction_gradient": 0.5}
    steps = steps.assign(other_vector=6.0, **sent)
    wanted = {"dimension": 0.5, "reconstruction": 0.25, "saves": 0.25, "misleads": 2.0}
    found = term_history(*wanted)(SimpleNamespace(history=steps))
    assert set(found.step) == {2} and found.set_index("metric").value.to_dict() == wanted


def test_the_losses_of_the_terms_are_no_quantities():
    steps = pd.DataFrame({"step": [1], "dimension": [30.0], "reconstruction": [7.0], "loss": [1.0]})  # swap_every: 0
    found = term_history("dimension", "reconstruction", "loss")(SimpleNamespace(history=steps))
    assert found.metric.tolist() == ["loss"]


def test_guesses_one_by_one(lively):
    """Piece by piece, in a batch of one; the same sentence as the other one gives the same column."""
    arguments = {"head": "top_layers", "late_layers": 1, "auxiliary_weight": 1.0, "mlm_weight": 1.0}
    method = build("infocse", lively("bert", initializer_range=0.3), **arguments)
    sentence, other = "a happy dog runs in the park", "two women play guitar"
    frame = guesses(method, sentence, other)
    assert frame.hidden.tolist() == sentence.split()
    tokenizer, encoder = method.encoder.tokenizer, method.encoder
    h = torch.tensor(encoder.encode([sentence]))
    for place, row in enumerate(frame.itertuples(index=False), start=1):
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        labels = torch.full_like(ids, -100)
        labels[0, place] = ids[0, place]
        ids[0, place] = tokenizer.mask_token_id
        text = method.auxiliary.read(ids, torch.ones_like(ids), labels)
        probabilities = method.auxiliary(h, text).softmax(-1)[0]
        assert row[1] == pytest.approx(100 * float(probabilities[text.labels[0]].detach()), rel=1e-3)
        assert row[2] == tokenizer.convert_ids_to_tokens(int(probabilities.argmax()))
    assert guesses(method, "", other).empty and len(guesses(method, "a dog " * 50, other)) == 64 - 2  # positions
    same = guesses(method, sentence, sentence)
    assert np.allclose(same.iloc[:, 1], same.iloc[:, 3]) and not np.allclose(frame.iloc[:, 1], frame.iloc[:, 3])
