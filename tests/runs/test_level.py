"""The level field: what is tried, what the trials choose, what is trained, and what the tables make of the rows."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib import results
from lib.checks import ConfigError
from lib.runs import Plan, level
from lib.runs import plan as module
from lib.runs.level import Field

TABLE = {
    "SimCSE": {"change": {"method": "simcse"}, "own": [{"projection": "none"}, {"projection": "always"}], "why": "-"},
    "sum of two SimCSE": {"sum": ["SimCSE", "SimCSE, again"], "why": "-"},
    "NCE": {
        "change": {"method": "jtcse", "cross_attention_layers": 0, "icnce_weight": 0.0, "ictm_weight": 0.0},
        "after": {"backbone": "SimCSE", "second_backbone": "SimCSE, again"},
        "own": [{"dropout": 0.2}], "over": ["sum of two SimCSE"], "why": "-",
    },
}  # fmt: skip


@pytest.fixture
def config(config):
    return config.replace(corpus_size=32, batch_size=16, max_steps=1)


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Configurations that were trained, in their order; the dev score is highest at temperature 0.1 without projection."""
    done = {}

    def run(config, label=""):
        score = 10 * (config.method_arguments["temperature"] == 0.1) + (config.method_arguments["projection"] == "none")
        metrics, rows = {"steps": 1, "best_step": 1, "dev": float(score)}, {"rows": config.corpus_size}
        new = SimpleNamespace(id=f"run-{len(done)}", config=config, metrics=metrics, provenance=rows, folder=tmp_path)
        return done.setdefault(str(config), new)

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "find", lambda config, shared: None)
    return done


def declared(config, methods, table=TABLE, **changes):
    how = {"rates": [1e-4, 2e-4], "temperatures": [0.05, 0.1], "trial_size": 16, "trial_seeds": [7, 8], "seeds": [1, 2]}
    return Field(Plan("demo"), table, config, methods=methods, **(how | changes))


def test_every_method_has_the_common_trials_and_its_own_at_the_best_of_them(config, trained):
    field = declared(config, ["SimCSE"])
    done = field.runs("SimCSE")
    tried = field.plan.runs("SimCSE: trials")
    assert tried.settings.unique().tolist() == [
        "rate 0.0001, temperature 0.05", "rate 0.0001, temperature 0.1", "rate 0.0002, temperature 0.05",
        "rate 0.0002, temperature 0.1", "projection none", "projection always",
    ]  # fmt: skip
    assert tried.groupby("settings").seed.apply(sorted).tolist() == [[7, 8]] * 6 and set(tried.sentences) == {16}
    own = [run.config for run in tried[tried.settings == "projection always"].run]
    common = {(one.learning_rate, one.method_arguments["temperature"]) for one in own}
    assert common == {(1e-4, 0.1)}  # the first of ties
    final = [run.config for run in done.run]
    assert [(one.seed, one.corpus_seed, one.corpus_size) for one in final] == [(1, 1, 32), (2, 2, 32)]
    chosen = [one.method_arguments | {"rate": one.learning_rate} for one in final]
    assert {(one["rate"], one["temperature"], one["projection"]) for one in chosen} == {(1e-4, 0.1, "none")}
    assert len(trained) == 12 + 2


def test_twins_start_from_two_encoders_of_the_same_seed_and_sentences(config):
    field = declared(config, ["NCE"])
    (trial,) = [one for one in field.plan if one.group == "NCE" and one.seed == 2]
    first, second = trial.after["backbone"], trial.after["second_backbone"]
    assert (first.group, second.group) == ("SimCSE", "SimCSE, again")
    assert (first.config.seed, second.config.seed) == (2, 2 + level.OTHER_SEED)
    assert first.config.corpus_seed == second.config.corpus_seed == 2 and first.config.corpus_size == 32
    (tried,) = [one for one in field.plan if one.settings == "dropout 0.2" and one.seed == 7]
    assert tried.after["backbone"].config.corpus_size == 16 and tried.after["backbone"].seed == 7
    assert set(trial.after) == {"backbone", "second_backbone", "learning_rate", "temperature", "dropout"}
    keys = [{one.key for one in some.plan if one.method == "NCE"} for some in (field, declared(config, []))]
    assert keys[0] == keys[1] and keys[0], "methods can be run in pieces: the same runs whichever others the field has"


def test_mistakes_are_named(config, tmp_path):
    with pytest.raises(ConfigError, match="a method of the level field .SimSCE. is unknown: choose one of SimCSE, sum"):
        declared(config, ["SimSCE"])
    with pytest.raises(ConfigError, match="trial_seeds"):
        declared(config, ["SimCSE"], trial_seeds=[1])
    with pytest.raises(ConfigError, match="NCE: trials, NCE, dropout 2: dropout must be"):
        declared(config, ["NCE"], TABLE | {"NCE": TABLE["NCE"] | {"own": [{"dropout": 2.0}]}})
    (tmp_path / "methods.yaml").write_text("SimCSE: {chagne: {}}")
    with pytest.raises(ConfigError, match="did you mean 'change'"):
        level.read(str(tmp_path / "methods.yaml"))


def test_the_shipped_table(config):
    table = level.read("params/level/methods.yaml")
    assert table["SimCSE"]["change"] == {"method": "simcse"}
    for name, entry in table.items():
        assert entry["why"] and (set(entry) >= {"change", "own"} or set(entry) == {"sum", "why"}), name
        assert "sum" in entry or len(entry["own"]) == 3
        assert "common" not in entry or len(entry["common"]) == 9
        others = [*entry.get("over", []), *entry.get("after", {}).values(), *entry.get("sum", [])]
        assert {one.removesuffix(level.AGAIN) for one in others} <= set(table)
    assert set(level.LONGER.values()) <= set(table)
    plan = declared(config, [], table, rates=[1e-4], temperatures=[0.05], seeds=[1]).plan
    assert {name for name, entry in table.items() if "change" in entry} <= {one.method for one in plan}


# --- Tables ---


LONGER = TABLE | {"SimCSE, 4 epochs": {"change": {"method": "simcse", "epochs": 4}, "own": [], "why": "-"}}
SCORES = {  # method -> encoder -> seed -> score on both tasks
    "SimCSE": {"A": [60.0, 61.0, 60.5], "B": [70.0, 70.0, 70.0]},
    "NCE": {"A": [63.0, 63.9, 63.6], "B": [70.1, 69.9, 70.1]},
    "SimCSE, 4 epochs": {"A": [62.0, 63.0, 62.4], "B": [71.0, 71.1, 70.8]},
    "sum of two SimCSE": {"A": [61.0, 62.2, 61.4], "B": [70.0, 70.3, 70.1]},
}


@pytest.fixture
def found():
    lines = [
        {"method": method, "backbone": encoder, "seed": str(seed), "task": task, "value": value + above}
        for task, above in {"STS12": 1.0, "STS13": -1.0}.items()
        for method, encoders in SCORES.items()
        for encoder, values in encoders.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(lines).assign(sentences=100, settings="level", pooling="cls", device="CPU", protocol="")


def test_gains_over_simcse_are_wider_for_every_contrast(found):
    standing = level.standings(found, {"NCE": 5.0})
    assert standing.loc["A"].index.tolist() == ["NCE", "SimCSE, 4 epochs", "sum of two SimCSE", "SimCSE"]
    row, each = standing.loc["A", "NCE"], np.subtract(SCORES["NCE"]["A"], SCORES["SimCSE"]["A"])
    assert row.gain == pytest.approx(each.mean()) and row.work == 5.0 and row.tasks == "2 of 2"
    holm = results.compare(found[found.backbone == "A"], "SimCSE", ["backbone", "method"], holm="backbone")
    assert standing.loc["A"][["low", "high"]].sort_index().equals(holm.loc["A"][["low", "high"]].sort_index())
    both = standing["both encoders"]
    assert both["A", "SimCSE"] == "" and both.loc[:, "NCE"].nunique() == 1


def test_the_finding_counts_intervals_above_0_of_means_above_the_floor_however_a_method_is_read(found):
    standing = level.standings(found, {})
    on_a, on_b = level.finding(standing).split("; ")
    assert on_a == "With equal trials 3 of 3 rivals beat SimCSE on the A"
    assert on_b == "only SimCSE with 4 epochs, of 3 rivals, beats SimCSE on the B"
    none = level.finding(standing.drop(("B", "SimCSE, 4 epochs")))
    assert none.endswith("; none of the 2 rivals beats SimCSE on the B")
    read = found.assign(pooling=np.where(found.method == "NCE", "mask_prompt", "cls"))
    pd.testing.assert_frame_equal(level.standings(read, {}), standing)
    assert len(level.controls(read, LONGER, {})) == len(level.controls(found, LONGER, {}))


def test_controls_are_what_a_method_adds_to_and_simcse_with_as_much_work(found):
    against = level.controls(found, LONGER, {"NCE": 5.0, "SimCSE, 4 epochs": 4.0})
    assert set(against.loc["A"].index) == {("NCE", "SimCSE, 4 epochs"), ("NCE", "sum of two SimCSE")}
    gain = against.loc[("A", "NCE", "sum of two SimCSE"), "gain"]
    assert gain == pytest.approx(np.subtract(SCORES["NCE"]["A"], SCORES["sum of two SimCSE"]["A"]).mean())


def test_work_counts_all_stages(repository):
    columns = {"operations": [10.0, 35.0], "kept": 1.0, "trained": 1.0, "time": 1.0}
    steps = pd.DataFrame({"method": ["SimCSE", "NCE"]} | columns)
    of = {"paper": "leaderboard", "table": "cost", "backbone": "mini-bert", "profile": "small"}
    results.add(steps.melt("method", var_name="metric").assign(**of))
    table = LONGER | {
        "replaced": {"change": {"method": "simcse", "replacement_rate": 0.1}}
    }  # costs more, and was not costed
    assert level.works(table) == {"SimCSE": 1.0, "sum of two SimCSE": 2.0, "NCE": 5.5, "SimCSE, 4 epochs": 4.0}


def test_whitening_is_fitted_on_the_sentences_of_its_run_and_compared_on_the_same_seed(config, monkeypatch, found):
    monkeypatch.setenv("CSE_PROGRESS", "off")
    field = declared(config, ["sum of two SimCSE"], rates=[1e-4], temperatures=[0.05], seeds=[2], own=False)
    done = field.runs("sum of two SimCSE")
    (read,) = level.whitened(done, config).encoder
    vectors = read.encode(config.whole_corpus().sample(32, 2).columns[0])
    assert np.allclose(np.cov(vectors.T, bias=True), np.eye(vectors.shape[1]), atol=1e-3)
    assert read.encoder is done.encoder.iloc[0] and np.allclose(vectors.mean(axis=0), 0, atol=1e-3)
    read = found[(found.seed == "1") & (found.method == "NCE")].assign(pooling="cls, whitened")
    added = level.whitening(found, read.assign(value=read.value + 2.0))
    assert added.dropna().index.unique("method").tolist() == ["NCE"] and np.allclose(added.dropna(), 2.0)
    assert level.whitening(found, read[:0]).isna().all()


def test_choices_say_how_sure_they_are():
    values = {"seed": ["7", "8"], "rate 0.1": [50.0, 60.0], "rate 0.2": [56.0, 58.0], "rate 0.3": [57.0, 50.0]}
    tried = pd.DataFrame(values).melt("seed", var_name="settings").assign(backbone="A", method="SimCSE")
    line = level.choices(tried).loc["A", "SimCSE"]
    assert (line.trials, line.chosen, line.dev, line.ahead) == (3, "rate 0.2", 57.0, 2.0)
    assert line.alone == "7: rate 0.3; 8: rate 0.1"
    own = tried.replace({"settings": {"rate 0.1": "dropout 0.2"}})
    own["value"] += 5 * (own.settings == "dropout 0.2")
    assert level.choices(own).loc["A", "SimCSE"].chosen == "rate 0.2, dropout 0.2"


def test_tables_without_rows_are_empty():
    nothing = results.rows("paper", paper="level", settings="level")
    assert level.standings(nothing, {}).empty and level.controls(nothing, LONGER, {}).empty
    assert level.choices(nothing).empty and level.finding(level.standings(nothing, {})) == ""
