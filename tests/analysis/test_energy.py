"""E_CLS beside scores: stages, each seed's mean taken out, and whole seeds drawn again."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib.analysis import energy

NAMES = ["SimCSE", "SimCSE I", "TNCSE I", "JTCSE II", "JTCSE D"]


def frame(encoder, seed, value, layer, reading="context tensor", backbone="b"):
    return dict(zip(energy.COLUMNS, [backbone, encoder, seed, reading, layer, value, ""], strict=True))


def test_every_encoder_has_its_stage_and_the_mean_over_its_layers():
    rows = [
        frame(name, 1, 10.0 * i + layer, layer) for i, name in enumerate([*NAMES, "untuned"]) for layer in (1, 2, 3)
    ]
    rows += [frame("TNCSE I", 1, 50.0, layer, "layer output") for layer in (1, 2, 3)] + [frame("NCE I", 1, 1.0, 1)]
    scores = pd.DataFrame({"backbone": "b", "encoder": [*NAMES, "untuned"], "seed": "1", "score": range(6)})
    both = energy.beside_scores(pd.DataFrame(rows), scores)
    context = both[both.reading == "context tensor"].set_index("encoder")
    assert context.stage.to_dict() == {
        "SimCSE": "stage 1", "SimCSE I": "stage 1", "TNCSE I": "stage 2", "JTCSE II": "stage 2", "JTCSE D": "student",
        "untuned": "untuned",
    }  # fmt: skip
    assert context.energy.tolist() == pytest.approx([0.02, 0.12, 0.22, 0.32, 0.42, 0.52])
    assert context.score.tolist() == list(range(6)) and "NCE I" not in set(both.encoder)  # without a score
    assert both[both.reading == "layer output"].energy.tolist() == [0.5]


def test_seeds_that_are_good_throughout_do_not_count_as_agreement():
    """Within each seed more x is less y; seed 2 has more of both."""
    rows = pd.DataFrame({"seed": [1, 1, 1, 2, 2, 2], "x": [1.0, 2, 3, 11, 12, 13], "y": [3.0, 2, 1, 13, 12, 11]})
    found = energy.seed_correlation(rows, "x", "y")
    assert rows.x.corr(rows.y, method="spearman") > 0
    assert found == {"correlation": pytest.approx(-1), "low": pytest.approx(-1), "high": pytest.approx(-1)}


def test_the_interval_is_that_of_all_ways_to_draw_the_seeds_again():
    random = np.random.default_rng(5)
    rows = pd.DataFrame({"seed": np.repeat([1, 2, 3], 4), "x": random.normal(size=12), "y": random.normal(size=12)})
    found = energy.seed_correlation(rows, "x", "y")
    parts = {}
    for seed in (1, 2, 3):
        part = rows[rows.seed == seed]
        parts[seed] = np.stack([part.x - part.x.mean(), part.y - part.y.mean()])
    assert found["correlation"] == pytest.approx(stats.spearmanr(*np.concatenate(list(parts.values()), 1)).statistic)
    ways = [np.concatenate([parts[s] for s in way], 1) for way in itertools.product((1, 2, 3), repeat=3)]
    ways = sorted(stats.spearmanr(*way).statistic for way in ways)  # 27, equally likely
    assert (found["low"], found["high"]) == pytest.approx((ways[0], ways[-1]))
    one = energy.seed_correlation(rows[rows.seed == 1], "x", "y")
    assert np.isnan([one["low"], one["high"]]).all() and not np.isnan(one["correlation"])


@pytest.fixture
def placed():
    random = np.random.default_rng(0)
    rows = [
        (name, stage, seed)
        for seed in ("1", "2")
        for name, stage in zip(NAMES, ["stage 1"] * 2 + ["stage 2"] * 2 + ["student"], strict=True)
    ]
    rows = pd.DataFrame([*rows, ("untuned", "untuned", "")], columns=["encoder", "stage", "seed"])
    return rows.assign(
        backbone="b", reading="context tensor", energy=random.normal(size=11), score=random.normal(size=11)
    )


def test_correlations_are_over_all_trained_and_within_stages_of_several_encoders(placed):
    table = energy.correlations(placed).loc["b", "context tensor"]
    assert table.encoders.to_dict() == {"all trained": 10, "stage 1": 4, "stage 2": 4}
    one = placed[placed.stage == "stage 1"]
    assert table.loc["stage 1", "as it is"] == pytest.approx(one.energy.corr(one.score, method="spearman"))
    assert (
        table.loc["stage 1", "seeds' means taken out"] == energy.seed_correlation(one, "energy", "score")["correlation"]
    )


def test_panels_show_all_encoders_and_stages_without_their_seeds_means(placed):
    shown = energy.panels(pd.concat([placed, placed.assign(backbone="c", energy=placed.energy + 100)]))
    assert shown.groupby("panel", sort=False).size().to_dict() == {"all encoders": 22, "stage 1": 8, "stage 2": 8}
    stage = shown[shown.panel == "stage 1"]
    assert stage.groupby(["backbone", "seed"])[["energy", "score"]].mean().abs().max().max() < 1e-9
