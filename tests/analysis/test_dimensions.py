from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.analysis.dimensions import agreement, term_history
from lib.data import load_sts
from lib.encoders import SentenceEncoder


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
