from types import SimpleNamespace

import numpy as np
import pandas as pd

from lib.analysis.dimensions import term_history


def test_quantities_of_a_history_by_hand():
    steps = pd.DataFrame({"step": [1, 2], "own_vector": [np.nan, 4.0], "mean_vector": [np.nan, 4.25]})
    sent = {"contrastive_gradient": 2.0, "dimension_gradient": 1.0, "reconstruction_gradient": 0.5}
    steps = steps.assign(other_vector=6.0, **sent)
    wanted = {"dimension": 0.5, "reconstruction": 0.25, "saves": 0.25, "misleads": 2.0}
    found = term_history(*wanted)(SimpleNamespace(history=steps))
    assert set(found.step) == {2} and found.set_index("metric").value.to_dict() == wanted
