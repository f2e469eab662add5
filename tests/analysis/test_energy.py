"""E_CLS beside scores: stages, and each seed's mean taken out."""

import pandas as pd
import pytest

from lib.analysis import energy

NAMES = ["SimCSE", "SimCSE I", "TNCSE I", "JTCSE II", "JTCSE D"]
SAME = {"source": "small", "backbone": "b"}


def row(method, value, layer, reading="context tensor"):
    return SAME | {"method": method, "seed": "1", "group": reading, "layer": layer, "value": value}


def test_every_trained_encoder_has_its_stage_and_the_mean_over_its_layers():
    rows = [row(name, i + layer / 10, layer) for i, name in enumerate([*NAMES, "untuned"]) for layer in (1, 2, 3)]
    rows += [row("TNCSE I", 0.5, layer, "layer output") for layer in (1, 2, 3)] + [row("NCE I", 1.0, 1)]
    scores = pd.DataFrame(SAME | {"method": [*NAMES, "untuned"], "seed": "1", "value": range(6)})
    both = energy.beside_scores(pd.DataFrame(rows), scores)
    context = both[(both.reading == "context tensor") & (both.panel == "all trained")].set_index("method")
    assert context.stage.to_dict() == {
        "SimCSE": "stage 1", "SimCSE I": "stage 1", "TNCSE I": "stage 2", "JTCSE II": "stage 2", "JTCSE D": "student",
    }  # fmt: skip
    assert context.energy.tolist() == pytest.approx([0.2, 1.2, 2.2, 3.2, 4.2])
    assert context.score.tolist() == list(range(5)) and "NCE I" not in set(both.method)  # without a score
    assert both[both.reading == "layer output"].energy.tolist() == [0.5]
    stages = both[both.panel != "all trained"].set_index(["panel", "method"])
    assert set(stages.index.get_level_values("panel")) == {"stage 1", "stage 2"}  # with several encoders
    assert stages.energy["stage 1"].to_dict() == pytest.approx({"SimCSE": -0.5, "SimCSE I": 0.5})
    assert stages.score["stage 2"].to_dict() == {"TNCSE I": -0.5, "JTCSE II": 0.5}
