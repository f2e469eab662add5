"""All methods beside each other: which rows are compared with which, and what follows from them, by hand."""

import numpy as np
import pandas as pd
import pytest

from lib import results
from lib.checks import DataError
from lib.config import RunConfig
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder
from lib.runs import leaderboard

BASE = {"backbone": "mini-bert", "pooling": "cls", "sentences": 10000, "settings": "given", "table": "Table 5", "paper": "simcse"}  # fmt: skip
STS = {"metric": "spearman", "split": "test", "aggregation": "all", "protocol": "SentEval"}
MICSE = {"paper": "micse", "table": "Table 3"}
INFOCSE = {"paper": "infocse", "table": "Table 2"}
OTHER = {"paper": "three_r", "table": "Table 2, around", "sentences": 3000, "backbone": "untouched", "pooling": "mean"}


@pytest.fixture
def add(repository):
    """Function that adds rows of the seven tasks: method, scores by seed."""

    def added(method, values, **other):
        seeds = values if isinstance(values, dict) else {str(seed + 1): value for seed, value in enumerate(values)}
        base = BASE | STS | {"method": method, "profile": "small"} | other
        lines = [base | {"task": task, "seed": s, "value": value} for s, value in seeds.items() for task in STS_TASKS]
        return results.add(pd.DataFrame(lines))

    return added


@pytest.fixture
def found(add):
    for pooling, value, other in (("cls", 40, {}), ("mean", 45, {}), ("cls", 62, {"backbone": "averaging start"})):
        add("untuned", {"": value}, pooling=pooling, sentences=None, **other)
    add("untuned", {"": 75.0}, sentences=None, backbone="untouched", pooling="mean")
    add("untuned", {"": 71.0}, sentences=None, backbone="untouched")
    add("SimCSE", [60.0, 61.0, 62.0])
    add("SimCSE", [58.0], sentences=1000)
    add("SimCSE", [62.0, 62.5], sentences=1000, settings="chosen")
    for sentences, plain, changed in ((1000, [59.0, 60.0], [62.0, 63.1]), (10000, [64.0, 65.0], [64.5, 65.6])):
        add("SimCSE", plain, sentences=sentences, **MICSE)
        add("SimCSE + AMI", changed, sentences=sentences, **MICSE)
    add("SimCSE + AMI", [99.0, 99.0], paper="micse", table="Figure 4")  # a study of sizes, no comparison of methods
    add("SimCSE", [60.0, 60.5], **INFOCSE)
    add("InfoCSE", {"1": 61.0, "2": 61.6, "9": 62.0}, **INFOCSE)
    add("InfoCSE", [1.0], aggregation="wmean", **INFOCSE)
    add("MSSE w/o DCM", [90.0], paper="msse", table="Table 1")  # no method of its own
    add("SimCSE", [60.0, 61.0, 62.0], paper="jtcse", table="Table I")
    add("JTCSE", [66.0, 67.1, 68.0], paper="jtcse", table="Table I")
    add("SimCSE", [76.0, 77.0], **OTHER)
    add("miCSE", [76.5, 77.4], **OTHER)
    add("miCSE", [70.0], **OTHER | {"pooling": "cls"})
    return leaderboard.main("small")


def test_the_rows_are_those_of_methods_in_the_tables_that_compare_methods(found):
    assert set(found.method) == {"SimCSE", "SimCSE + AMI", "InfoCSE", "JTCSE", "miCSE"}
    assert set(found.task) == {*STS_TASKS} and set(found.aggregation) == {"all"} and "Figure 4" not in set(found.table)


def test_gains_are_paired_within_their_own_conditions(found):
    table = leaderboard.gains(found).set_index([*leaderboard.CONDITIONS[1:], "method"])
    assert table.gain["mini-bert", "cls", 1000, "micse", "given", "SimCSE + AMI"] == pytest.approx(3.05)
    assert table.gain["mini-bert", "cls", 10000, "micse", "given", "SimCSE + AMI"] == pytest.approx(0.55)
    infocse = table.loc["mini-bert", "cls", 10000, "infocse", "given", "InfoCSE"]
    assert (infocse.gain, infocse.seeds) == (pytest.approx(1.05), 2), "SimCSE has no seed 9"
    assert np.isnan(table.gain["untouched", "cls", 3000, "three_r", "given", "miCSE"]), "SimCSE was not read by [CLS]"
    assert table.loc["mini-bert", "cls", 10000]["mean"].is_monotonic_decreasing
    assert list(table.index.get_level_values("sentences")[:2]) == [1000, 1000]
    each = leaderboard.per_seed(found).set_index(["paper", "sentences", "method", "seed"]).gain.sort_index()
    assert each["micse", 1000, "SimCSE + AMI"].round(6).to_dict() == {"1": 3.0, "2": 3.1}
    assert (each.xs("SimCSE", level="method") == 0).all() and ("infocse", 10000, "InfoCSE", "9") not in each
    names = leaderboard.gains(found)
    assert {"1,000 sentences", "3,000 sentences, mean"} <= set(names.group)
    assert {"SimCSE (micse)", "SimCSE (simcse, chosen)", "JTCSE (jtcse)"} <= set(names.label)
    assert set(leaderboard.per_seed(found).label) == set(names.label)


def test_the_same_texts_with_another_number_of_clusters_are_another_task(add):
    for method, value in (("untuned", {"": 20.0}), ("SimCSE", [50.0]), ("MSSE", [60.0])):
        for k in (20, 30):
            rows = add(
                method, value, paper="msse", table="Figure 4", metric="v_measure", protocol=f"K-Means, k {k}, 10 starts"
            )
            results._own[-1] = ("scores", rows.head(1).assign(task="titles", value=rows.value + k))
    assert leaderboard.gains(leaderboard.main("small", "clusters")).tasks.tolist() == ["2 of 2", ""]
    table = leaderboard.by_task("small", "clusters")
    assert list(table) == ["titles, k 20", "titles, k 30", "Avg."] and table.iloc[0].tolist() == [40, 50, 45]


def test_a_profile_without_rows_gives_empty_tables(repository):
    found = leaderboard.main("paper")
    tables = [leaderboard.gains(found), leaderboard.per_seed(found), results.floors(found)]
    tables += [leaderboard.by_task("paper", kind) for kind in leaderboard.KINDS]
    assert [len(table) for table in tables] == [0] * len(tables)


def test_costs_of_several_stages_add_up():
    columns = ["operations", "kept", "trained", "time", "search", "parameters"]
    steps = pd.DataFrame([[10.0, 4, 2, 1, 1, 2], [30.0, 8, 4, 3, 2, 4], [5.0, 2, 2, 1, 1, 2]], index=["SimCSE", "JTCSE", "JTCSE D"], columns=columns)  # fmt: skip
    rows = steps.rename_axis("method").reset_index().melt("method", var_name="metric")
    found = leaderboard.costs(rows)
    assert found.loc["JTCSE"].to_dict() == {"work": 5, "time": 5, "memory": 2, "trained": 2, "encoders": 2, "search": 2}
    assert found.loc["JTCSE D", ["work", "encoders"]].tolist() == [5.5, 1]
    assert found.loc["sum of stage 1", ["work", "encoders"]].tolist() == [2, 2]
    assert "TNCSE" not in found.index and found.loc["SimCSE", "work"] == 1


def test_every_stage_of_a_method_has_a_configuration_that_is_costed(tiny_bert):
    configs = leaderboard.cost_configs(RunConfig(backbone=str(tiny_bert), dev_task="none"), layers=4)
    assert {stage for stages in leaderboard.STAGES.values() for stage in stages} <= set(configs)
    assert {config.backbone for config in configs.values()} == {str(tiny_bert)}
    assert configs["JTCSE D"].method_arguments["teacher"] == str(tiny_bert)
    half = configs["JTCSE"].method_arguments["cross_attention_layers"]
    assert configs["miCSE"].method_arguments["max_layer"] == half + 2
    assert len(set(configs.values())) == len(configs), "no two methods are the same run"


def test_a_step_is_measured(tiny_bert, corpus_file, monkeypatch):
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), batch_size=16, max_length=16, dev_task="none")
    monkeypatch.setattr(leaderboard, "cost_configs", lambda config, layers: {"SimCSE": config, "TNCSE": config.replace(method="tncse")})  # fmt: skip
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    rows = leaderboard.step_costs(config, repeats=1)(encoder)
    assert set(rows.backbone) == {tiny_bert.name} and set(rows.protocol) == {"batch 16, 16 tokens"}
    steps = rows.pivot(index="method", columns="metric", values="value")
    assert steps.time["SimCSE"] == 1.0 and steps.time["TNCSE"] > 0
    assert steps.operations["SimCSE"] < steps.operations["TNCSE"]
    assert steps.search["TNCSE"] == pytest.approx(2 * steps.search["SimCSE"])
    with pytest.raises(DataError, match="nowhere"):
        leaderboard.step_costs(config.replace(corpus=str(corpus_file.with_name("nowhere.txt"))))


def test_the_published_rows_fit():
    """Every method has a SimCSE beside it, but for those that were only trained to put 3R around them."""
    for kind in leaderboard.KINDS:
        leaderboard.gains(leaderboard.main("small", kind))  # raises where unequal rows would be compared
    found = leaderboard.main("small")
    assert {*results.ENCODERS} <= set(found.backbone)
    table = leaderboard.gains(found).dropna(subset="gain")
    assert set(found.method) - {"SimCSE", "InforMin-CL", "SSCL"} <= set(table.method)
    assert not leaderboard.per_seed(found).duplicated(["backbone", "group", "label", "seed"]).any()
