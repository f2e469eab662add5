"""What a method costs: one step of each, measured in turns with SimCSE, and all of its stages together."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
import yaml

from lib import paths, session
from lib.analysis import cost
from lib.checks import check_known
from lib.config import RunConfig
from lib.data import tokenize_corpus
from lib.encoders import SentenceEncoder
from lib.runs.prepare import Shared, encoder_name, load, preflight

TABLE = "params/level/methods.yaml"  # what each method of the level field is
KEYS = ("change", "common", "own", "after", "sum", "over", "why")  # of a method there
SAME_STEP = {"method", "projection", "augmentation", "epochs"}  # SimCSE's changes with which a step costs the same
AGAIN = ", again"  # a method with another random seed, on the same sentences


def read(file: str) -> dict[str, dict[str, Any]]:
    """The table of methods, from a file below the project or elsewhere; raises ConfigError for a key that nobody reads."""
    path = paths.root() / file
    table = yaml.safe_load(path.read_text(encoding="utf8"))
    for name, entry in table.items():
        check_known(entry, KEYS, f"key of {name} in {path.name}:")
    return table


def stages(name: str, table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The trainings of a method, one after the other: those of all that it starts from or adds up, and its own."""
    entry = table.get(name.removesuffix(AGAIN), {})
    before = entry.get("sum", entry.get("after", {}).values())
    return [one for start in before for one in stages(start, table)] + [name.removesuffix(AGAIN)] * ("sum" not in entry)


def is_same_step(change: Mapping[str, Any]) -> bool:
    """Whether a step of a method of the level field costs what one of SimCSE does."""
    return change["method"] == "simcse" and SAME_STEP.issuperset(change)


def cost_configs(config: RunConfig, table: Mapping[str, Mapping[str, Any]], layers: int) -> dict[str, RunConfig]:
    """What a step of every method is measured with: name -> `config` with the method's arguments in the level field.

    table: of the level field. layers: of the backbone; AMI looks at the middle ones, and JTCSE attends across in the upper
    half. Auxiliary networks start from what any backbone has: that costs the same as pre-trained heads.
    """
    half = layers // 2
    changes = {name: entry["change"] for name, entry in table.items() if "change" in entry}
    changes = {name: change for name, change in changes.items() if name == "SimCSE" or not is_same_step(change)}
    here = {name: {"min_layer": half - 2, "max_layer": half + 2} for name in ("SimCSE + AMI", "miCSE")}
    here |= {name: {"lm_head": "fresh"} for name in ("InfoCSE", "MSSE")}
    here |= {"JTCSE": {"cross_attention_layers": half}, "JTCSE D": {"teacher": config.backbone}}
    here["RankCSE"] = {"teacher": config.backbone, "second_teacher": config.backbone}
    return {name: config.replace(**change | here.get(name, {})) for name, change in changes.items()}


def step_costs(
    config: RunConfig, table: Mapping[str, Mapping[str, Any]], *, repeats: int = 2
) -> Callable[[SentenceEncoder], pd.DataFrame]:
    """A function for `Plan.measure`: what one step of every method costs on an encoder, that of `config`, in rows (method,
    metric, value, ...): those of `cost.training_step` on the first batch of the corpus; the step's `time` in steps of SimCSE
    (`cost.relative_time`); and at search time `search`, 10^9 multiply-accumulates for a sentence of max_length tokens, and
    `parameters`, in millions. Raises now what `preflight` raises.

    table: of the level field. repeats: rounds in which a method and SimCSE take turns.
    """
    preflight(config)

    def measured(encoder: SentenceEncoder) -> pd.DataFrame:
        lines, shared, peer = [], Shared(), None
        for name, one in cost_configs(config, table, encoder.backbone.config.num_hidden_layers).items():
            corpus, fresh, _ = load(one, shared)
            torch.manual_seed(one.seed)
            method = one.spec.build(copy.deepcopy(fresh), one.method_arguments)  # which may change its encoder
            tokens = tokenize_corpus(corpus, fresh, max_length=one.max_length)
            tokens = replace(tokens, extra=method.row_data(corpus, one.max_length))
            batch = tokens.batch(range(one.batch_size)).to(fresh.device)
            peer = peer or (method, batch)
            counts = {"method": name} | cost.training_step(method, batch)
            counts["time"] = cost.relative_time(method, batch, *peer, rounds=repeats) if lines else 1.0
            counts["search"] = cost.multiply_accumulates(method.encoder, one.max_length)
            counts["parameters"] = sum(p.numel() for p in method.encoder.parameters()) / 1e6
            lines.append(counts)
        labels = {"backbone": encoder_name(config.backbone), "device": session.device_name().split(",")[0]}
        labels |= {"protocol": f"batch {config.batch_size}, {config.max_length} tokens"}
        return pd.DataFrame(lines).melt("method", var_name="metric").assign(**labels)

    return measured


def relative(rows: pd.DataFrame, table: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """What a method costs relative to SimCSE, all of its stages together, each with as many steps, from what `step_costs`
    gives; a method of which a stage is missing is left out.

    table: of the level field; None: the project's. Not counted: what is read once before training (the texts by RankCSE's
    teachers, or JTCSE D's), and PromptBERT's template.

    Returns:
        By method: work (operations of training), time, memory (the largest of its steps), trained (parameters, the most at
        a time), encoders (at search time). Stage 1 of InfoCSE, which many runs share, is not in it.
    """
    steps = rows.pivot_table(index="method", columns="metric", values="value", sort=False)
    relative = steps / steps.loc["SimCSE"]
    table, lines = table or read(TABLE), {}
    for method in dict.fromkeys([*steps.index, *table]):
        trained = stages(method, table)
        if set(trained) <= set(steps.index):
            taken = relative.loc[trained]
            line = {"work": taken.operations.sum(), "time": taken.time.sum(), "memory": taken.kept.max()}
            entry = table.get(method, {})
            encoders = 1.0 + ("sum" in entry or "second_backbone" in entry.get("after", {}))
            lines[method] = line | {"trained": taken.trained.max(), "encoders": encoders}
    return pd.DataFrame(lines).T.astype({"encoders": int})
