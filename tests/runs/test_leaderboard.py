"""All methods beside each other: which rows are compared with which, and what follows from them, by hand."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from lib import paths
from lib.config import RunConfig
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS
from lib.runs import ROW_COLUMNS, leaderboard, tables

STS = {"metric": "spearman", "split": "test", "aggregation": "all", "protocol": "SentEval"}


def sts(method, values, *, table="Table 5", backbone="mini-bert", run="simcse-a", **other):
    """Rows of the seven tasks: seed -> score on each of them."""
    common = {"paper": "", "table": table, "method": method, "backbone": backbone, "profile": "small"} | STS | other
    return [
        common | {"task": task, "seed": seed, "value": value, "run_id": run if seed else ""}
        for seed, value in values.items()
        for task in STS_TASKS
    ]


RUNS = {
    "simcse-a": {"rows": 10000, "settings": {"max_steps": 0, "epochs": 1, "batch_size": 64}},
    "simcse-b": {"rows": 1000, "settings": {"max_steps": 0, "epochs": 2, "batch_size": 64}},
    "old": {"rows": 10000},
    "mean": {"rows": 3000, "settings": {"max_steps": 0, "epochs": 1, "batch_size": 64}},
}
FILES = {
    "simcse": sts("untuned, cls", {"": 40.0})
    + sts("untuned, mean", {"": 45.0})
    + sts("untuned, cls", {"": 62.0}, backbone="averaging start")
    + sts("SimCSE, 10,000 sentences", {"1": 60.0, "2": 61.0, "3": 62.0})
    + sts("SimCSE, 1,000 sentences", {"1": 58.0}, run="simcse-b")
    + sts("SimCSE, tuned, 1,000 sentences", {"1": 62.0, "2": 62.5}, run="simcse-b")
    + sts("SimCSE, 10,000 sentences, mean", {"1": 70.0})
    + sts("untuned, mean", {"": 75.0}, backbone="untouched")
    + sts("untuned, cls", {"": 71.0}, backbone="untouched"),
    "micse": sts("SimCSE, 1,000 sentences", {"1": 59.0, "2": 60.0}, table="Table 3", run="simcse-b")
    + sts("SimCSE + AMI, 1,000 sentences", {"1": 62.0, "2": 63.1}, table="Table 3", run="simcse-b")
    + sts("SimCSE, 10,000 sentences", {"1": 64.0, "2": 65.0}, table="Table 3")
    + sts("SimCSE + AMI, 10,000 sentences", {"1": 64.5, "2": 65.6}, table="Table 3")
    + sts("SimCSE + AMI", {"1": 99.0, "2": 99.0}, table="Figure 4, 10,000 sentences"),  # a study of sizes, left out
    "infocse": sts("SimCSE", {"1": 60.0, "2": 60.5}, table="Table 2")
    + sts("InfoCSE", {"1": 61.0, "2": 61.6, "9": 99.0}, table="Table 2")
    + sts("InfoCSE", {"1": 1.0}, table="Table 2", aggregation="wmean"),
    "msse": sts("MSSE w/o DCM", {"1": 90.0}, table="Table 1, 10,000 sentences"),
    "jtcse": sts("JTCSE", {"1": 66.0, "2": 67.1, "3": 68.0}, table="", run="old"),
    "three_r": sts("SimCSE", {"1": 76.0, "2": 77.0}, table="Table 2, 3,000 sentences, read by the mean", run="mean", backbone="untouched")
    + sts("micse", {"1": 76.5, "2": 77.4}, table="Table 2, around, 3,000 sentences, read by the mean", run="mean", backbone="untouched")
    + sts("micse", {"1": 70.0}, table="Table 2, around, 3,000 sentences", run="mean", backbone="untouched"),
}  # fmt: skip


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A repository with these rows."""
    folder = tmp_path / "results" / "small"
    folder.mkdir(parents=True)
    for name, rows in FILES.items():
        text = pd.DataFrame(rows, columns=ROW_COLUMNS).to_csv(index=False)
        (folder / f"{name}.csv").write_text(text)
        written = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "runs": RUNS}
        (folder / f"{name}.provenance.json").write_text(json.dumps(written))
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return folder


COSTS = pd.DataFrame({"work": {"SimCSE": 1.0, "SimCSE + AMI": 1.2, "JTCSE": 4.0}, "encoders": {"SimCSE": 1, "SimCSE + AMI": 1, "JTCSE": 2}})  # fmt: skip
ANY = float("inf")
BUDGETS = {"small": (1.5, 1), "any": (ANY, ANY)}


def test_rows_say_on_how_much_data_they_were_trained_and_under_which_conditions(published):
    found = leaderboard.rows("small")
    assert set(found.kind) == {"STS"} and not found.method.str.contains("MSSE").any()
    trained = found[found.data != ""].drop_duplicates(["file", "data", "method"]).set_index(["file", "data", "method"])
    assert trained.steps["simcse", "10,000 sentences", "SimCSE"] == 157
    assert trained.steps["micse", "1,000 sentences", "SimCSE + AMI"] == 32
    assert np.isnan(trained.steps["jtcse", "10,000 sentences", "JTCSE"])
    assert trained.label["micse", "1,000 sentences", "SimCSE"] == "SimCSE (micse, Table 3)"
    assert trained.label["micse", "1,000 sentences", "SimCSE + AMI"] == "SimCSE + AMI"
    assert ("simcse", "10,000 sentences, read by the mean", "SimCSE") in trained.index
    assert set(found[found.method.str.startswith("untuned")].data) == {""}


def test_gains_are_paired_within_their_own_conditions(published):
    averaged = leaderboard.averages(leaderboard.differences(leaderboard.rows("small"), "STS"), complete=7)
    gains = averaged.set_index(["file", "data", "method", "seed"]).gain.sort_index()
    assert gains["micse", "1,000 sentences", "SimCSE + AMI"].round(2).to_dict() == {"1": 3.0, "2": 3.1}
    assert gains["infocse", "10,000 sentences", "InfoCSE"].round(2).tolist()[:2] == [1.0, 1.1]
    assert np.isnan(gains["infocse", "10,000 sentences", "InfoCSE", "9"])  # SimCSE has no such seed
    # JTCSE has no SimCSE of its own: that of simcse.csv, same encoder and data
    assert gains["jtcse", "10,000 sentences", "JTCSE"].round(2).to_dict() == {"1": 6.0, "2": 6.1, "3": 6.0}
    # another table of the file has it, for the mean of the tokens alone
    assert gains["three_r", "3,000 sentences, read by the mean", "miCSE"].round(2).to_dict() == {"1": 0.5, "2": 0.4}
    assert gains["three_r", "3,000 sentences", "miCSE"].isna().all()
    table = leaderboard.summary(averaged).set_index(["file", "data", "method"])
    assert table.loc[("jtcse", "10,000 sentences", "JTCSE"), ["gain", "seeds"]].round(3).tolist() == [6.033, 3]
    assert table.index.get_level_values("data")[0] == "1,000 sentences"


def test_a_trained_encoder_is_set_against_the_same_reading_of_the_untrained_one(published):
    found = leaderboard.rows("small")
    table = leaderboard.over_untrained(found, "untouched")
    by_mean = table.loc[("3,000 sentences, read by the mean", "miCSE")]
    expected = {"untrained": 75, "trained": 76.95, "change": 1.95, "SICK-R": 1.95, "seeds": 2}
    assert by_mean[list(expected)].round(2).to_dict() == expected
    half = 12.706 * 0.45  # Student's t of two seeds, deviation 0.6364 over the root of two
    assert by_mean[["low", "high"]].tolist() == pytest.approx([1.95 - half, 1.95 + half], abs=0.001)
    at_cls = table.loc[("3,000 sentences", "miCSE")]
    assert at_cls.change == -1 and np.isnan(at_cls.low) and np.isnan(at_cls.transfer)
    of_transfer = [{**found[found.method == "miCSE"].iloc[0], "kind": "transfer", "task": name, "value": 82.0} for name in TRANSFER_TASKS]  # fmt: skip
    start = [row | {"method": "untuned, mean", "data": "", "value": 81.0} for row in of_transfer]
    table = leaderboard.over_untrained(pd.concat([found, pd.DataFrame(of_transfer + start)]), "untouched")
    assert table.loc[("3,000 sentences, read by the mean", "miCSE"), "transfer"] == 1
    lacking = pd.concat([found, pd.DataFrame(of_transfer[:6] + start)])
    assert leaderboard.over_untrained(lacking, "untouched").transfer.isna().all()
    lent = table.index[table.index.get_level_values("method") == "SimCSE"]  # to miCSE's table, and counted once
    assert len(lent) == 1 and leaderboard.over_untrained(found, "nobody's").empty


def test_seeds_without_all_tasks_are_left_out(published):
    differing = leaderboard.differences(leaderboard.rows("small"), "STS")
    lacking = differing[(differing.task != "STS12") | (differing.seed != "1")]
    assert "1" not in set(leaderboard.averages(lacking, complete=7).seed)


LOW = pd.DataFrame([["word vectors, untrained", "mini-bert", 62.0]], columns=["name", "backbone", "value"])


def test_a_method_is_taken_that_beats_the_simcse_beside_it_and_every_other_simcse(published):
    answer = leaderboard.advice(leaderboard.rows("small"), COSTS, BUDGETS, LOW).set_index(["data", "budget"])
    # 1,000 sentences: AMI gains for sure and is affordable; a larger budget changes nothing, so it has no row
    assert answer.loc[("1,000 sentences", "small"), "take"] == "SimCSE + AMI"
    assert ("1,000 sentences", "any") not in answer.index
    # 10,000: AMI's gain is not sure, InfoCSE's does not reach the best SimCSE, which is micse's; JTCSE is too expensive
    few = answer.loc["10,000 sentences"]
    assert few.loc["small", "take"] == "SimCSE (micse, Table 3)" and few.loc["small", "score"] == 64.5
    assert few.loc["any", "take"] == "JTCSE" and few.loc["any", "also above SimCSE"] == ""
    assert few.loc["any", "seeds"] == 3 and few.loc["any", "low"] > 0 and np.isnan(few.loc["small", "gain"])
    assert answer.loc[("10,000 sentences, read by the mean", "small"), "take"] == "SimCSE"


def test_a_tuned_simcse_counts_among_the_best_and_is_lent_to_none(published):
    found = leaderboard.rows("small")
    tuned = found.table == "Table 5, tuned"
    assert set(found[tuned].label) == {"SimCSE (simcse, Table 5, tuned)"} and tuned.sum() == 2 * len(STS_TASKS)
    answer = leaderboard.advice(found, COSTS, BUDGETS, LOW).set_index(["data", "budget"])
    assert answer.loc[("1,000 sentences", "small"), "SimCSE"] == 62.25
    found.loc[tuned, "value"] += 1
    answer = leaderboard.advice(found, COSTS, BUDGETS, LOW).set_index(["data", "budget"])
    assert answer.loc[("1,000 sentences", "small"), "take"] == "SimCSE (simcse, Table 5, tuned)"


def test_no_training_is_the_answer_where_the_untrained_encoder_scores_as_high(published):
    found = leaderboard.rows("small")
    found = found[found.backbone == "mini-bert"]
    answer = leaderboard.advice(found, COSTS, BUDGETS, LOW.assign(value=80.0))
    assert set(answer["take"]) == {"no training: word vectors, untrained"} and answer.gain.isna().all()


def test_ranks_curves_and_coverage(published):
    found = leaderboard.rows("small")
    differing = leaderboard.differences(found, "STS")
    ranked = leaderboard.mean_ranks(differing)
    assert set(ranked.group) == {"mini-bert, 10,000 sentences"} and ranked.tasks.unique() == [7]
    assert ranked.set_index("method")["rank"].to_dict() == {"JTCSE": 1, "InfoCSE": 2, "SimCSE + AMI": 3, "SimCSE": 4}
    assert ranked.difference.unique() == pytest.approx([2.569 * (20 / 42) ** 0.5], abs=1e-3)
    curves = leaderboard.few_shot(leaderboard.averages(differing, complete=7))
    assert curves.groupby(["method", "sentences"]).value.mean().round(2).to_dict() == {
        ("SimCSE + AMI", 1000): 3.05, ("SimCSE + AMI", 10000): 0.55,
    }  # fmt: skip
    seeds = leaderboard.coverage(found).STS
    assert (
        seeds["mini-bert", "10,000 sentences", "SimCSE"] == 3 and seeds["mini-bert", "10,000 sentences", "JTCSE"] == 3
    )
    assert leaderboard.coverage(found).transfer.isna().all()


def test_scores_by_task_have_an_average_where_all_tasks_are_there(published):
    table = leaderboard.beside(leaderboard.rows("small"), "STS")
    assert list(table) == [*STS_TASKS, "Avg.", "seeds"]
    assert table.loc[("mini-bert", "10,000 sentences", "JTCSE"), ["Avg.", "seeds"]].tolist() == [
        pytest.approx(67.03, abs=0.01),
        3,
    ]
    assert table.index[1][1] == "" and np.isnan(table.seeds.iloc[1])


def test_where_encoders_lie_after_training_and_before(published):
    rows = [("10,000 sentences", "b", m, s, step, q, v) for m, s, step, q, v in [
        ("SimCSE", 1, 0, "alignment", 7.0), ("SimCSE", 1, 0, "uniformity", -60.0), ("SimCSE", 1, 9, "alignment", 30.0), ("SimCSE", 1, 9, "uniformity", -300.0),
    ]]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["table", "backbone", "method", "seed", "step", "quantity", "value"])
    frame.to_csv(published / "msse_geometry.csv", index=False)
    one = leaderboard.geometry("small").set_index("encoder")
    assert one.loc["SimCSE, 10,000", ["alignment", "uniformity"]].tolist() == [0.3, -3.0]
    assert one.loc["untuned", ["alignment", "uniformity"]].tolist() == [0.07, -0.6]
    frame.replace("SimCSE", "SimCSE, wider choice").to_csv(published / "three_r_geometry.csv", index=False)
    assert set(leaderboard.geometry("small").encoder) == {
        "untuned",
        "SimCSE, 10,000",
        "SimCSE, 10,000, wider choice",
    }
    frame.to_csv(published / "three_r_geometry.csv", index=False)
    assert set(leaderboard.geometry("small").encoder) == {
        "untuned",
        "SimCSE (msse), 10,000",
        "SimCSE (three_r), 10,000",
    }
    frame.replace("10,000 sentences", "10,000 sentences, read by the mean").to_csv(
        published / "three_r_geometry.csv", index=False
    )
    assert {"untuned", "untuned, read by the mean"} <= set(leaderboard.geometry("small").encoder)


def test_a_profile_without_rows_gives_empty_tables(published):
    found = leaderboard.rows("paper")
    differing = leaderboard.differences(found, "STS")
    averaged = leaderboard.averages(differing, complete=7)
    empty = [
        differing,
        averaged,
        leaderboard.summary(averaged),
        tables.floors("paper"),
        leaderboard.mean_ranks(differing),
    ]
    empty += [
        leaderboard.advice(found, COSTS, BUDGETS, LOW),
        leaderboard.few_shot(averaged),
        leaderboard.geometry("paper"),
    ]
    empty += [leaderboard.coverage(found), leaderboard.beside(found, "transfer")]
    assert all(not len(frame) for frame in empty)
    assert leaderboard.shown(empty[-1], "transfer") == "not measured yet: transfer"
    assert leaderboard.source("demo") == "small" and leaderboard.source("paper") == "paper"


def test_costs_of_several_stages_add_up():
    columns = ["operations", "kept", "trained", "time", "search", "parameters"]
    steps = pd.DataFrame([[10.0, 4, 2, 1, 1, 2], [30.0, 8, 4, 3, 2, 4], [5.0, 2, 2, 1, 1, 2]], index=["SimCSE", "JTCSE", "JTCSE D"], columns=columns)  # fmt: skip
    found = leaderboard.costs(steps)
    assert found.loc["JTCSE"].to_dict() == {"work": 5, "time": 5, "memory": 2, "trained": 2, "encoders": 2, "search": 2}
    assert found.loc["JTCSE D", ["work", "encoders"]].tolist() == [5.5, 1]
    assert found.loc["sum of stage 1", ["work", "encoders"]].tolist() == [2, 2]
    assert "TNCSE" not in found.index and found.loc["SimCSE", "work"] == 1


def test_every_stage_of_a_method_has_a_configuration_that_is_costed(tiny_bert):
    configs = leaderboard.cost_configs(RunConfig(backbone=str(tiny_bert), dev_task="none"), layers=4)
    assert {stage for stages in leaderboard.STAGES.values() for stage in stages} <= set(configs)
    assert {config.backbone for config in configs.values()} == {str(tiny_bert)}
    assert configs["JTCSE D"].method_arguments["teacher"] == str(tiny_bert)
    assert (
        configs["miCSE"].method_arguments["max_layer"]
        == configs["JTCSE"].method_arguments["cross_attention_layers"] + 2
    )
    assert len(set(configs.values())) == len(configs), "no two methods are the same run"


def test_a_step_is_measured_and_its_rows_can_be_published(tiny_bert, corpus_file):
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), batch_size=16, max_length=16, dev_task="none")
    configs = {"SimCSE": config, "TNCSE": config.replace(method="tncse")}
    steps = leaderboard.step_costs(configs, repeats=1)
    assert steps.time["SimCSE"] == 1.0 and steps.time["TNCSE"] > 0
    assert steps.operations["SimCSE"] < steps.operations["TNCSE"]
    assert steps.search["TNCSE"] == pytest.approx(2 * steps.search["SimCSE"])
    counted = ["operations", "kept", "trained"]
    pd.testing.assert_frame_equal(leaderboard.step_costs(configs, repeats=1)[counted], steps[counted])
    rows = leaderboard.cost_rows(steps, config)
    assert list(rows) == leaderboard.COST_COLUMNS and set(rows.table) == {"batch 16, 16 tokens"} and len(rows) == 12


def test_the_committed_rows_fit():
    """Whatever is published: every method of the sources has a SimCSE beside it, but for those that were only trained to
    put 3R around them, and no seed stands twice."""
    found = leaderboard.rows("small")
    assert {"mini-bert", "minilm-stripped"} <= set(found.backbone) and (found.kind == "STS").any()
    averaged = leaderboard.averages(leaderboard.differences(found, "STS"), complete=7)
    assert not averaged.duplicated([*leaderboard.CONDITIONS, "method", "seed"]).any()
    assert not averaged.duplicated(["backbone", "data", "label", "seed"]).any()
    paired = averaged[averaged.gain.notna()]
    assert set(averaged.method) - {"SimCSE", "InforMin-CL", "SSCL"} <= set(paired.method)
    answer = leaderboard.advice(found, COSTS, BUDGETS, tables.floors())
    assert answer.score.notna().all() and (answer["take"] != "").all()
