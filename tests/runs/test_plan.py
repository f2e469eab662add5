"""The plan of a notebook: what it declares and refuses, what it finds, what it trains, and what it measures."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from lib import paths, results, runs
from lib.checks import ConfigError
from lib.data import load_sts
from lib.encoders import SentenceEncoder
from lib.evaluation import RESULT_COLUMNS, evaluate_sts
from lib.runs import Best, Plan, measure
from lib.runs import plan as module

STORE = Path(__file__).parent / "fixture_store"  # filled by the code of commit bc8d0f4, before plans had trials


@pytest.fixture
def plan():
    return Plan("demo", paper="simcse")


def trained():
    """Metrics of the runs in the store, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in paths.runs().glob("*/*/metrics.json")}


def each(name, values):
    """A variant for every value."""
    return {str(value): {name: value} for value in values}


def counts(plan, column="to train"):
    return plan.check()[column].tolist()


# --- Declaring ---


def test_a_trial_for_every_variant_and_seed_is_named_by_method_or_settings_or_both(plan, config):
    added = plan.add("main", config.replace(corpus_size=100), {"SimCSE": {}, "hot": {"temperature": 0.2}}, [5, 6])
    assert list(added) == [("SimCSE", 5), ("SimCSE", 6), ("hot", 5), ("hot", 6)]
    trial = added["hot", 6]
    assert (trial.method, trial.settings, trial.seed, trial.group) == ("hot", "given", 6, "main")
    assert (trial.config.seed, trial.config.corpus_seed, trial.config.method_arguments["temperature"]) == (6, 6, 0.2)
    plan.add("sweep", config, each("temperature", [0.1, 0.2]), [1], method="SimCSE")
    plan.add("trials", config, {("CT", "rate 0.0001"): {"method": "ct", "learning_rate": 1e-4}}, [1])
    plan.add("chosen", config, {"SimCSE": {}}, [1], settings="chosen")
    assert [(trial.method, trial.settings) for trial in plan if trial.group != "main"] == [
        ("SimCSE", "0.1"), ("SimCSE", "0.2"), ("CT", "rate 0.0001"), ("SimCSE", "chosen"),
    ]  # fmt: skip


def test_a_new_plan_starts_without_rows(plan, config):
    plan.add("main", config, {"SimCSE": {}}, [1])
    plan.measure("main", "dev", table="T")
    assert len(results.rows("demo")) > 0
    Plan("demo")
    assert results.rows("demo").empty


def test_equal_configurations_of_a_group_are_one_run(plan, config):
    same = {"temperature": config.method_arguments["temperature"]}
    added = plan.add("switches", config, {"as it is": {}, "hotter": {"temperature": 0.2}, "again": same}, [1, 1, 2])
    assert [trial.method for trial in plan] == ["as it is", "as it is", "hotter", "hotter"]
    assert added["again", 2] is added["as it is", 2]
    plan.add("others", config, {"SimCSE": {}}, [1])  # groups may share a run
    table = plan.check()
    assert table.runs.tolist() == [4, 1, 4] and table["to train"].tolist() == [4, 0, 4]


def test_nothing_to_vary_is_an_empty_group(plan, config):
    assert plan.add("no seeds", config, {"SimCSE": {}}, []) == {}
    assert plan.add("no values", config, {}, [1], after={"backbone": Best("backbone", {})}) == {}
    for group in ("no seeds", "no values"):
        assert plan.runs(group).empty and list(plan.runs(group)) == module.RUN_COLUMNS
        assert list(plan.measure(group, "dev", table="Table 1")) == results.SHAPES["scores"]
    assert plan.check().empty


@pytest.mark.parametrize(
    ("variants", "after", "words"),
    [
        ({"a": {"temperature": -1.0}}, {}, "main, a, given: temperature must be"),
        ({"a": {"temprature": 1.0}}, {}, "main, a, given: .*did you mean 'temperature'"),
        ({"a": {}}, {"techer": Best("dropout", {})}, "main, a, given: there are no trials to choose dropout from"),
    ],
)
def test_a_wrong_value_names_its_group_and_variant(plan, config, variants, after, words):
    with pytest.raises(ConfigError, match=words):
        plan.add("main", config, variants, [1], after)
    with pytest.raises(ConfigError, match="has no runs called 'mian', only main"):
        plan.runs("mian")
    for profile, paper in (("demo", "simcse"), ("small", "")):
        with pytest.raises(ConfigError, match="publish: the plan names no paper, or has the demo profile"):
            Plan(profile, publish=True, paper=paper)


# --- Checking ---


def stages(plan, config):
    """Two first stages, a second stage from both, a student of one of them."""
    one = plan.add("first", config, {"I": {}, "II": {"dropout": 0.2}}, [1, 2])
    joint = config.replace(method="jtcse", cross_attention_layers=2)
    twins = {"backbone": (one, "I"), "second_backbone": (one, "II")}
    plan.add("second", joint, {"JTCSE": {}}, [1, 2], twins)
    plan.add("student", config.replace(method="distill", teacher="later"), {"D": {}}, [1], {"teacher": one["II", 1]})
    return plan


def test_runs_that_start_from_runs_of_their_seed_and_are_to_train_where_these_are_missing(plan, config):
    stages(plan, config)
    plan.tasks("sts", ["demo"], config.data_folder())
    assert counts(plan) == [4, 2, 1, 7] and not any(path.is_file() for path in paths.runs().rglob("*"))
    second = plan.runs("second").run[1].config
    first = plan.runs("first").set_index(["method", "seed"]).run
    assert second.backbone == str(first["I", 2].folder / "encoder")
    assert second.method_arguments["second_backbone"] == str(first["II", 2].folder / "encoder")
    teacher = plan.runs("student").run[0].config.method_arguments["teacher"]
    assert teacher == str(first["II", 1].folder / "encoder") and len(trained()) == 7
    assert counts(plan) == [0, 0, 0, 0]
    assert counts(stages(Plan("demo"), config), "found") == [4, 2, 1, 7]
    for gone in (first["II", 2], plan.runs("student").run[0]):  # what starts from the first is to be trained, too
        shutil.rmtree(gone.folder)
    again = stages(Plan("demo"), config)
    assert counts(again, "found") == [3, 1, 0, 4] and counts(again) == [1, 1, 1, 3]


def test_the_checks_change_no_name(plan, config):
    """A method may change the encoder that it is built with: the plan still finds what was trained."""
    for projection in ("always", "train_only"):
        runs.run(config.replace(projection=projection, seed=1, corpus_seed=1))
    plan.add("projection", config, each("projection", ["always", "train_only"]), [1], method="SimCSE")
    assert counts(plan, "found") == [2, 2]


# --- What dev chooses, and runs ---


def test_a_run_takes_what_the_trials_with_the_best_mean_have(plan, config):
    scores = {(1e-4, 7): 50.0, (1e-4, 8): 70.0, (2e-4, 7): 61.0, (2e-4, 8): 63.0, (3e-4, 7): 62.0, (3e-4, 8): 62.0}

    def declared(plan):
        changes = {("SimCSE", f"rate {rate}"): {"learning_rate": rate, "temperature": rate * 100} for rate, _ in scores}
        trials = plan.add("choice", config, changes, [7, 8])
        best = {name: Best(name, trials) for name in ("learning_rate", "temperature")}
        plan.add("main", config, {"SimCSE": {}}, [1], best, settings="chosen")
        return plan

    assert counts(declared(plan)) == [6, 1, 7] and not trained()
    for run in plan.runs("choice").run:
        dev = scores[run.config.learning_rate, run.config.seed]
        (run.folder / "metrics.json").write_text(json.dumps(run.metrics | {"dev": dev}))
    frame = declared(Plan("demo")).runs("main")
    chosen = frame.run[0].config
    assert (chosen.learning_rate, chosen.method_arguments["temperature"]) == (2e-4, 0.02)  # the first of equal means
    assert len(trained()) == 7 and frame.settings.tolist() == ["chosen"]
    assert counts(declared(Plan("demo")), "found") == [6, 1, 7]


# --- Measuring ---


def test_rows_have_the_conditions_of_their_run_and_are_kept(plan, config, tiny_bert):
    plan.add("main", config, {"SimCSE": {}}, [1, 2], settings="chosen")
    plan.tasks("sts", ["demo"], config.data_folder())
    untuned = [SentenceEncoder.from_pretrained(tiny_bert, pooling=pooling) for pooling in ("cls", "mean")]
    rows = plan.measure("main", table="Table 5", untuned=untuned)
    shown = rows[rows.aggregation == "all"][["method", "settings", "pooling", "seed", "backbone", "paper", "table"]]
    about = [tiny_bert.name, "simcse", "Table 5"]
    assert shown.to_numpy().tolist() == [
        ["untuned", "given", "cls", "", *about], ["untuned", "given", "mean", "", *about],
        ["SimCSE", "chosen", "cls", "1", *about], ["SimCSE", "chosen", "cls", "2", *about],
    ]  # fmt: skip
    assert rows.run_id.tolist()[-1] == plan.runs("main").run_id[1] and rows.profile.unique() == ["demo"]
    assert rows.sentences.isna().tolist()[0] and rows.sentences.iloc[-1] == 200
    for run in plan.runs("main").run:
        shutil.rmtree(run.folder / "encoder")  # it cannot be computed again
    pd.testing.assert_frame_equal(plan.measure("main", table="Table 5", untuned=untuned), rows)
    assert len(results.rows("demo", paper="simcse", table="Table 5")) == len(rows)


def test_some_runs_of_a_group_and_other_labels_are_published(config, repository):
    plan = Plan("small", publish=True, paper="simcse")
    plan.add("main", config.replace(profile="small"), {"SimCSE": {}}, [1, 2])
    some = plan.runs("main").query("seed == 2").assign(settings="as many steps", backbone="a start")
    rows = plan.measure(some, "dev", table="dev")
    assert rows.method.tolist() == ["SimCSE"] and rows.value.tolist() == some.dev.tolist()
    labels = {"settings": "as many steps", "backbone": "a start", "seed": "2", "task": "demo", "split": "dev"}
    assert (rows[list(labels)] == labels).all(axis=None)
    published = pd.read_csv(repository / "results" / "small" / "simcse.csv")
    assert published.run_id.tolist() == some.run_id.tolist()


def test_dev_and_functions_of_runs_or_encoders_are_measured_and_undeclared_tasks_are_not(plan, config, tiny_bert):
    plan.add("main", config, {"SimCSE": {}}, [1])
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    rows = plan.measure("", "dev", table="dev", untuned=encoder)
    expected = evaluate_sts(encoder.encode, [load_sts(config.data_folder(), "demo", "dev")])
    assert rows.value.tolist() == expected[expected.aggregation == "all"].value.tolist()
    (run,) = plan.runs("main").run
    assert plan.measure("", "dev", table="dev", other=run).run_id.tolist() == [run.id]
    curves = plan.measure("main", results.history("alignment", "uniformity"), table="geometry")
    assert list(curves) == results.SHAPES["curves"] and {*curves.metric} == {"alignment", "uniformity"}
    assert curves.step.tolist() == [0, 2, 0, 2]

    def size(encoder):
        return pd.DataFrame({"metric": ["dimension"], "value": [encoder.dimension]})

    rows = plan.measure("main", size, table="size")
    assert rows[["metric", "value", "seed"]].to_numpy().tolist() == [["dimension", 32.0, "1"]]
    with pytest.raises(ConfigError, match="no tasks of the kind 'sts': declare them with plan.tasks"):
        plan.measure("main", table="Table 5")
    plan.tasks("transfer", [], config.data_folder())
    assert plan.measure("main", "transfer", table="Table E.1").empty


# --- A store that older code filled ---


@pytest.fixture
def older(tmp_path, monkeypatch):
    """That store, and the configurations of its runs."""
    shutil.copytree(STORE, tmp_path / "store")
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "store"))
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "store"))
    stored = [runs.Run(folder) for folder in sorted((tmp_path / "store" / "demo").iterdir())]
    configs = {run.id: run.config.replace(backbone=str(tmp_path / "store" / "encoder")) for run in stored}
    teacher = str(tmp_path / "store/demo/simcse-78fe09314394/encoder")
    return {name: one.replace(teacher=teacher) if one.method == "distill" else one for name, one in configs.items()}


def test_runs_that_older_code_trained_keep_their_names_and_are_found_and_so_are_the_scores_that_it_kept(older, plan):
    student, other, plain = older.values()
    before = trained()
    one = plan.add("SimCSE", plain, {"SimCSE": {}}, [1])
    plan.add("repeated words", other, {"SimCSE": {}}, [2])
    plan.add("student", student.replace(teacher="later"), {"D": {}}, [1], {"teacher": (one, "SimCSE")})
    assert counts(plan, "found") == [1, 1, 1, 3]
    assert plan.runs("student").run_id.tolist() == [list(older)[0]] and trained() == before

    def computed(encode):
        pytest.fail("measured again")

    run = runs.Run(paths.runs() / "demo" / "simcse-78fe09314394")
    transfer = measure.Evaluation("transfer-MR", "MR", computed)
    sts = measure.Evaluation("sts", ["content of the pairs"], computed)
    for subject, evaluation, value in ((run, transfer, 50.25), (run, sts, 70.125), (run.encoder(), transfer, 60.5)):
        rows = measure.scores(subject, [evaluation])
        assert list(rows) == RESULT_COLUMNS and rows.value.tolist() == [value]
