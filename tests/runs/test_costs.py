"""What a method costs, by hand: stages that add up, and a step of each that is measured."""

import pandas as pd
import pytest

from lib.checks import DataError
from lib.encoders import SentenceEncoder
from lib.runs import costs


def test_costs_of_several_stages_add_up():
    columns = ["operations", "kept", "trained", "time", "search", "parameters"]
    steps = pd.DataFrame([[10.0, 4, 2, 1, 1, 2], [30.0, 8, 4, 3, 2, 4], [5.0, 2, 2, 1, 1, 2]], index=["SimCSE", "JTCSE", "JTCSE D"], columns=columns)  # fmt: skip
    rows = steps.rename_axis("method").reset_index().melt("method", var_name="metric")
    found = costs.relative(rows)
    assert found.loc["JTCSE"].to_dict() == {"work": 5, "time": 5, "memory": 2, "trained": 2, "encoders": 2}
    assert found.loc["JTCSE D", ["work", "encoders"]].tolist() == [5.5, 1]
    assert found.loc["sum of two SimCSE", ["work", "encoders"]].tolist() == [2, 2]
    assert "TNCSE" not in found.index and found.loc["SimCSE", "work"] == 1


def test_every_stage_of_a_method_has_a_configuration_that_is_costed(config, tiny_bert):
    table = costs.read(costs.TABLE)
    configs = costs.cost_configs(config, table, layers=4)
    assert all(set(costs.stages(name, table)) <= set(configs) for name in configs)
    assert "SimCSE, words replaced" in configs and "SimCSE, cropped view" not in configs
    assert costs.stages("RankCSE", table) == ["SimCSE", "SimCSE", "RankCSE"]
    assert costs.stages("JTCSE D", table) == ["SimCSE", "SimCSE", "JTCSE", "JTCSE D"]
    assert {config.backbone for config in configs.values()} == {str(tiny_bert)}
    assert configs["JTCSE D"].method_arguments["teacher"] == str(tiny_bert)
    half = configs["JTCSE"].method_arguments["cross_attention_layers"]
    assert configs["miCSE"].method_arguments["max_layer"] == half + 2
    assert len(set(configs.values())) == len(configs), "no two methods are the same run"


def test_a_step_is_measured(config, tiny_bert, corpus_file, monkeypatch):
    config = config.replace(batch_size=16, dev_task="none")
    monkeypatch.setattr(costs, "cost_configs", lambda config, table, layers: {"SimCSE": config, "TNCSE": config.replace(method="tncse")})  # fmt: skip
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    rows = costs.step_costs(config, {}, repeats=1)(encoder)
    assert set(rows.backbone) == {tiny_bert.name} and set(rows.protocol) == {"batch 16, 16 tokens"}
    steps = rows.pivot(index="method", columns="metric", values="value")
    assert steps.time["SimCSE"] == 1.0 and steps.time["TNCSE"] > 0
    assert steps.operations["SimCSE"] < steps.operations["TNCSE"]
    assert steps.search["TNCSE"] == pytest.approx(2 * steps.search["SimCSE"])
    with pytest.raises(DataError, match="nowhere"):
        costs.step_costs(config.replace(corpus=str(corpus_file.with_name("nowhere.txt"))), {})
