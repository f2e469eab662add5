"""E_CLS beside scores: stages, each seed's mean taken out, and whole seeds drawn again."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

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


def test_seeds_that_are_good_throughout_do_not_count_as_agreement():
    """Within each seed more energy is less score; seed 2 has more of both."""
    rows = pd.DataFrame(
        {"seed": [1, 1, 1, 2, 2, 2], "energy": [1.0, 2, 3, 11, 12, 13], "score": [3.0, 2, 1, 13, 12, 11]}
    )
    found = energy.seed_correlation(rows)
    assert rows.energy.corr(rows.score, method="spearman") > 0
    assert found == {"correlation": pytest.approx(-1), "low": pytest.approx(-1), "high": pytest.approx(-1)}


def test_the_interval_is_that_of_all_ways_to_draw_the_seeds_again():
    random = np.random.default_rng(5)
    rows = pd.DataFrame(random.normal(size=(12, 2)), columns=["energy", "score"]).assign(seed=np.repeat([1, 2, 3], 4))
    found = energy.seed_correlation(rows)
    parts = {seed: (part - part.mean()).drop(columns="seed").to_numpy().T for seed, part in rows.groupby("seed")}
    assert found["correlation"] == pytest.approx(stats.spearmanr(*np.concatenate(list(parts.values()), 1)).statistic)
    ways = [np.concatenate([parts[s] for s in way], 1) for way in itertools.product((1, 2, 3), repeat=3)]
    ways = sorted(stats.spearmanr(*way).statistic for way in ways)  # 27, equally likely
    assert (found["low"], found["high"]) == pytest.approx((ways[0], ways[-1]))
    one = energy.seed_correlation(rows[rows.seed == 1])
    assert np.isnan([one["low"], one["high"]]).all() and not np.isnan(one["correlation"])


def test_correlations_are_over_all_trained_and_within_stages_of_several_encoders():
    random, stages = np.random.default_rng(0), ["stage 1"] * 2 + ["stage 2"] * 2 + ["student"]
    rows = [(name, stage, seed) for seed in "12" for name, stage in zip(NAMES, stages, strict=True)]
    placed = pd.DataFrame(rows, columns=["method", "stage", "seed"]).assign(**SAME, reading="context tensor")
    placed = placed.assign(panel="all trained", energy=random.normal(size=10), score=random.normal(size=10))
    again = placed.assign(panel="stage 1", energy=0.0)  # centred for its panel, and not counted twice
    table = energy.correlations(pd.concat([placed, again])).loc["small", "b", "context tensor"]
    assert table.encoders.to_dict() == {"all trained": 10, "stage 1": 4, "stage 2": 4}
    one = placed[placed.stage == "stage 1"]
    centred = energy.seed_correlation(one)
    assert table.loc["stage 1", "as it is"] == pytest.approx(one.energy.corr(one.score, method="spearman"))
    assert table.loc["stage 1", ["seeds' means taken out", "low", "high"]].tolist() == list(centred.values())
