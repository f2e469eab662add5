"""Every method beside every other, from the rows of all notebooks: gains over SimCSE under the same conditions, what was
measured and what was not, and what a method costs."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from lib import results, session
from lib.analysis import cost
from lib.config import RunConfig
from lib.data import tokenize_corpus
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS
from lib.encoders import SentenceEncoder
from lib.runs import level
from lib.runs.prepare import Shared, encoder_name, load, preflight

# paper -> the tables that compare methods
MAIN = {
    "simcse": ["Table 5"], "micse": ["Table 3"], "infocse": ["Table 2"], "msse": ["Table 1"], "jtcse": ["Table I"],
    "three_r": ["Table 2", "Table 2, around"],
}  # fmt: skip
# What counts as a method; the others change one part of one.
METHODS = [
    "SimCSE", "SimCSE + AMI", "SimCSE + MoCo", "miCSE", "DiffCSE", "InfoCSE", "InfoCSE + RTD", "MSSE", "MSSE w/o DCM and ICM",
    "sum of stage 1", "NCE", "TNCSE", "JTCSE", "JTCSE D", "SimCSE + 3R", "InforMin-CL", "SSCL",
]  # fmt: skip
PLACES = {name: place for place, name in enumerate([*MAIN, *METHODS])}
TWO_STAGES = ["SimCSE", "SimCSE"]  # an encoder on each view, before both are trained together
# method -> what its training consists of, one after the other, where that is not one run of its own
STAGES = {
    "sum of stage 1": TWO_STAGES,
    "NCE": [*TWO_STAGES, "NCE"],
    "TNCSE": [*TWO_STAGES, "TNCSE"],
    "JTCSE": [*TWO_STAGES, "JTCSE"],
    "JTCSE D": [*TWO_STAGES, "JTCSE", "JTCSE D"],
    "MSSE w/o DCM and ICM": ["SimCSE"],
}
TWINS = ("sum of stage 1", "NCE", "TNCSE", "JTCSE")  # two encoders read every sentence at search time
# kind of evaluation -> filters of its rows
KINDS: dict[str, dict[str, Any]] = {
    "STS": {"task": STS_TASKS, "metric": "spearman", "split": "test", "aggregation": "all"},
    "transfer": {"task": TRANSFER_TASKS, "metric": "accuracy", "split": "test"},
    "documents": {"metric": "ndcg@10", "split": "test"},
    "partners": {"metric": "recall@1", "protocol": lambda column: column.str.contains("queries: sentence 1,")},
    "clusters": {"metric": "v_measure", "protocol": lambda column: column.str.contains("K-Means")},
}
CONDITIONS = "source backbone pooling sentences paper settings".split()  # rows that agree in these can be compared


def _rows(profile: str, kind: str, **filters: Any) -> pd.DataFrame:
    found = results.rows(profile, **filters, **KINDS[kind])
    if kind == "clusters":  # the same texts with another number of clusters are another task
        found["task"] += found.protocol.str.extract(r"(, k \d+)", expand=False).fillna("")
    return found


def main(profile: str, kind: str = "STS") -> pd.DataFrame:
    """Rows of trained METHODS in one of KINDS, with the given or the chosen settings; of STS, those of MAIN. In the order of
    MAIN and METHODS."""
    found = _rows(profile, kind, method=METHODS, settings=["given", "chosen"])
    if kind == "STS":
        places = [(paper, table) for paper, tables in MAIN.items() for table in tables]
        found = found[pd.MultiIndex.from_frame(found[["paper", "table"]]).isin(places)]
    return found.sort_values(["paper", "method"], key=lambda column: column.map(PLACES.get), ignore_index=True)


def gains(found: pd.DataFrame) -> pd.DataFrame:
    """What `main` gives, compared with SimCSE of the same paper, encoder, reading, number of sentences and settings:
    CONDITIONS, method, group, label (see `_named`), and what `results.compare` gives, the highest mean of an encoder,
    reading and number of sentences first."""
    table = results.compare(found, "SimCSE", [*CONDITIONS, "method"]).reset_index()
    order = ["backbone", "pooling", "sentences", "mean"]
    return _named(table.sort_values(order, ascending=[True, True, True, False], ignore_index=True))


def per_seed(found: pd.DataFrame) -> pd.DataFrame:
    """`value`, the mean of every seed over its tasks, and `gain`, how much more that is than SimCSE's, with the columns of
    `gains` that say whose; seeds that SimCSE lacks are left out."""
    each, same = results.averages(found), [*CONDITIONS, "seed"]
    base = each[each.method == "SimCSE"].drop_duplicates(same)[[*same, "value"]]
    both = each.merge(base, on=same, suffixes=("", " of SimCSE"))
    both = both.assign(gain=both.value - both["value of SimCSE"])
    return _named(both[[*CONDITIONS, "method", "seed", "value", "gain"]])


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """With `group` (sentences and reading) and `label` (method, and the paper whose conditions it was measured under)."""
    reading = frame.pooling.map(lambda pooling: "" if pooling == "cls" else f", {pooling}")
    group = frame.sentences.map("{:,} sentences".format).astype(str) + reading
    chosen = frame.settings.map(lambda name: "" if name == "given" else f", {name}")
    return frame.assign(group=group, label=frame.method + " (" + frame.paper + chosen + ")")


def by_task(profile: str, kind: str) -> pd.DataFrame:
    """Scores in one of KINDS, mean over the seeds: a row for every encoder, reading, number of sentences and method, untuned
    ones first, a column for every task, and the average where a method has all of them."""
    some = pd.concat([_rows(profile, kind, method="untuned"), main(profile, kind)])
    some.loc[some.method == "untuned", ["paper", "settings"]] = ""
    some = some.sort_values(["backbone", "sentences"], na_position="first", kind="stable")
    keys = ["backbone", "pooling", "sentences", "paper", "settings", "method"]
    table = some.groupby([*keys, "task"], sort=False, dropna=False).value.mean().unstack("task", sort=False)
    tasks = [task for task in KINDS[kind].get("task", ()) if task in table] or list(table)
    table = table[tasks]
    if len(tasks) > 1:
        table["Avg."] = table[tasks].mean(axis=1, skipna=False)
    return table


# --- Costs ---


def cost_configs(config: RunConfig, layers: int) -> dict[str, RunConfig]:
    """What a step of every method is measured with: name -> `config` with the method's arguments in the level field.

    layers: of the backbone; AMI looks at the middle ones, and JTCSE attends across in the upper half. Auxiliary networks
    start from what any backbone has: that costs the same as pre-trained heads.
    """
    half, table = layers // 2, level.read("params/level/methods.yaml")
    changes = {name: entry["change"] for name, entry in table.items() if name in METHODS and "change" in entry}
    changes["SimCSE + MoCo"] = changes["miCSE"] | {"ami_weight": 0.0}
    changes["InfoCSE + RTD"] = changes["InfoCSE"] | {"rtd_weight": 0.005}
    here = {name: {"min_layer": half - 2, "max_layer": half + 2} for name in ("SimCSE + AMI", "SimCSE + MoCo", "miCSE")}
    here |= {name: {"lm_head": "fresh"} for name in ("InfoCSE", "InfoCSE + RTD", "MSSE")}
    here |= {"JTCSE": {"cross_attention_layers": half}, "JTCSE D": {"teacher": config.backbone}}
    return {name: config.replace(**changes[name] | here.get(name, {})) for name in METHODS if name in changes}


def step_costs(config: RunConfig, *, repeats: int = 2) -> Callable[[SentenceEncoder], pd.DataFrame]:
    """A function for `Plan.measure`: what one step of every method costs on an encoder, that of `config`, in rows (method,
    metric, value, ...): those of `cost.training_step` on the first batch of the corpus; the step's `time` in steps of SimCSE
    (`cost.relative_time`); and at search time `search`, 10^9 multiply-accumulates for a sentence of max_length tokens, and
    `parameters`, in millions. Raises now what `preflight` raises.

    repeats: rounds in which a method and SimCSE take turns.
    """
    preflight(config)

    def measured(encoder: SentenceEncoder) -> pd.DataFrame:
        lines, shared, peer = [], Shared(), None
        for name, one in cost_configs(config, encoder.backbone.config.num_hidden_layers).items():
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


def costs(rows: pd.DataFrame) -> pd.DataFrame:
    """What a method costs relative to SimCSE, all of its stages together, each with as many steps, from what `step_costs`
    gives; a method of STAGES of which a stage is missing is left out.

    Returns:
        By method: work (operations of training), time, memory (the largest of its steps), trained (parameters, the most at
        a time), encoders (at search time), search (operations there). Stage 1 of InfoCSE, which many runs share, is not in it.
    """
    steps = rows.pivot_table(index="method", columns="metric", values="value", sort=False)
    relative = steps / steps.loc["SimCSE"]
    lines = {}
    for method in dict.fromkeys([*steps.index, *STAGES]):
        stages = STAGES.get(method, [method])
        if set(stages) <= set(steps.index):
            taken = relative.loc[stages]
            line = {"work": taken.operations.sum(), "time": taken.time.sum(), "memory": taken.kept.max()}
            encoders = 1.0 + (method in TWINS)
            lines[method] = line | {"trained": taken.trained.max(), "encoders": encoders, "search": encoders}
    return pd.DataFrame(lines).T.astype({"encoders": int})
