"""E_CLS beside scores: stages, and each seed's mean taken out."""

import pandas as pd
import pytest

from lib.analysis import energy

NAMES = ["SimCSE", "SimCSE I", "TNCSE I", "JTCSE II", "JTCSE D"]
SAME = {"source": "small", "backbone": "b"}


def row(method, value, layer, reading="context tensor"):
    return SAME | {"method": method, "seed": "1", "group": reading, "layer": layer, "value": value}


def test_trained_encoders_of_a_stage_have_the_mean_over_their_layers_and_their_score():
    rows = [row(name, i + layer / 10, layer) for i, name in enumerate([*NAMES, "untuned"]) for layer in (1, 2, 3)]
    rows += [row("TNCSE I", 0.5, layer, "layer output") for layer in (1, 2, 3)] + [row("NCE I", 1.0, 1)]
    scores = pd.DataFrame(SAME | {"method": [*NAMES, "untuned"], "seed": "1", "value": range(6)})
    both = energy.beside_scores(pd.DataFrame(rows), scores)
    assert set(both.reading) == {"context tensor"} and "NCE I" not in set(
        both.method
    )  # alone in a stage, without a score
    stages = both.set_index(["panel", "method"])
    assert stages.stage.to_list() == [panel for panel, _ in stages.index] == ["stage 1"] * 2 + ["stage 2"] * 2
    assert stages.energy["stage 1"].to_dict() == pytest.approx({"SimCSE": -0.5, "SimCSE I": 0.5})
    assert stages.score["stage 2"].to_dict() == {"TNCSE I": -0.5, "JTCSE II": 0.5}
