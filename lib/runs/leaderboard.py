"""Every method beside every other, from the published rows of all notebooks: gains over SimCSE under the same conditions,
what was measured and what was not, and which method to take."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from pandas.io.formats.style import Styler

from lib import paths
from lib.analysis import cost, ranks
from lib.analysis.papers import by_choice, gain_table, gains
from lib.checks import DataError
from lib.config import RunConfig
from lib.data import tokenize_corpus
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS
from lib.methods.jtcse import CONTROLS
from lib.runs import store
from lib.runs.prepare import Shared, encoder_name, load
from lib.runs.tables import METHODS, SPELT, reading

# file of results/<profile>/ -> further methods that it is the source of, besides tables.METHODS
FURTHER = {
    "simcse": [],
    "three_r": ["InforMin-CL", "SSCL", "miCSE", "InfoCSE", "MSSE", "JTCSE"],
}
SOURCES = {file: [*METHODS.get(file, []), *FURTHER.get(file, [])] for file in {**FURTHER, **METHODS}}
TWO_STAGES = ["SimCSE", "SimCSE"]  # an encoder on each view, before both are trained together
# method -> what its training consists of, one after the other, where that is not one run of its own
STAGES = {
    "sum of stage 1": TWO_STAGES,
    "NCE": [*TWO_STAGES, "NCE"],
    "TNCSE": [*TWO_STAGES, "TNCSE"],
    "JTCSE": [*TWO_STAGES, "JTCSE"],
    "JTCSE D": [*TWO_STAGES, "JTCSE", "JTCSE D"],
    "SimCSE + 3R, SimCSE's settings": ["SimCSE + 3R"],
    "MSSE w/o DCM and ICM": ["SimCSE"],
}
TWINS = ("sum of stage 1", "NCE", "TNCSE", "JTCSE")  # two encoders read every sentence at search time
COST_COLUMNS = ["table", "backbone", "method", "quantity", "value", "seed", "run_id"]
# kind of evaluation -> its tasks (none: all) and the rows that count
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "STS": (tuple(STS_TASKS), "metric == 'spearman' and split == 'test' and aggregation == 'all'"),
    "transfer": (tuple(TRANSFER_TASKS), "metric == 'accuracy' and split == 'test'"),
    "documents": ((), "metric == 'ndcg@10' and split == 'test'"),
    "partners": ((), "metric == 'recall@1' and protocol.str.contains('queries: sentence 1,')"),
    "clusters": ((), "metric == 'v_measure'"),
}
ADVICE = ["backbone", "data", "budget", "take", "score", "seeds", "gain", "low", "high", "SimCSE", "untrained"]
ADVICE += ["also above SimCSE"]
CONDITIONS = ["backbone", "data", "file", "table"]  # rows that agree in these were measured to be compared
SIZE = r"([\d,]+ (?:sentences|triples))"
READ_BY_MEAN = reading("mean")
TUNED = ", tuned"  # SimCSE with a grid of trials on dev, in conditions of its own


def source(profile: str) -> str:
    """The profile whose published rows a notebook shows: its own; the demo, whose numbers are no results, shows small."""
    return "small" if profile == "demo" else profile


def rows(profile: str) -> pd.DataFrame:
    """The published rows of all methods and of untuned encoders.

    Returns:
        ROW_COLUMNS, and: file; kind of KINDS; data, how many sentences or triples they were trained on (empty: none), and
        the reading where it is not [CLS]; steps of the run (NaN where its settings were not kept); label, the method, and
        where it was measured under several conditions on the same data, these. A table without a SimCSE of its own is
        given that of the file, else that of simcse.csv, with the same backbone, data and kind.
    """
    frames = []
    for file, methods in SOURCES.items():
        known, trained = by_choice(store.published(profile, file)), _trained(profile, file)
        plain = known.method.str.replace(rf", {SIZE}", "", regex=True).replace(SPELT)
        runs = [trained.get(run_id, {}) for run_id in known.run_id]
        data = [
            _data(table, run) + READ_BY_MEAN * (name.endswith(", mean") or table.endswith(READ_BY_MEAN))
            for table, run, name in zip(known.table, runs, plain, strict=True)
        ]
        labels = {"file": file, "data": data, "steps": [_steps(run) for run in runs]}
        tuned = plain.str.startswith(f"SimCSE{TUNED}")
        known = known.assign(method=plain.where(~(tuned | plain.str.startswith("SimCSE, mean")), "SimCSE"), **labels)
        known["table"] += tuned.map({True: TUNED, False: ""})
        known.loc[known.run_id == "", "data"] = ""
        # STS under a figure is a study of sizes, at one λ
        known = known[~known.table.str.startswith("Figure") | (known.metric != "spearman")]
        known = known[known.method.isin(["SimCSE", *methods]) | known.method.str.startswith("untuned")]
        frames += [_of_kind(known, kind) for kind in KINDS]
    found = pd.concat(frames, ignore_index=True)
    found = pd.concat([found, _borrowed(found)], ignore_index=True)
    return _labelled(found.astype({"seed": str, "steps": float, "value": float}))


def _labelled(found: pd.DataFrame) -> pd.DataFrame:
    """With the column label, see `rows`."""
    place, name = ["file", "table"], ["backbone", "data", "method", "kind"]
    several = found.groupby(name)[place].transform("nunique").max(axis=1) > 1
    stem = found.table.str.replace(rf",? ?{SIZE}", "", regex=True)
    told_apart = found.method + " (" + (found.file + ", " + stem).str.removesuffix(", ") + ")"
    return found.assign(label=found.method.where(~several | (found.data == ""), told_apart))


def _trained(profile: str, file: str) -> dict[str, Mapping[str, Any]]:
    """Provenance of the runs behind a file, by id."""
    path = paths.root() / "results" / profile / f"{file}.provenance.json"
    known = paths.read_json(path).get("runs") if path.is_file() else {}
    if not isinstance(known, dict) or not all(isinstance(run, dict) and "rows" in run for run in known.values()):
        raise DataError(f"{path} does not say which runs its rows come from: restore it from git.")
    settings = [run["settings"] for run in known.values() if run.get("settings") is not None]
    if not all(isinstance(one, dict) and {"max_steps", "epochs", "batch_size"} <= {*one} for one in settings):
        raise DataError(f"{path} does not say how long its runs were trained: restore it from git.")
    return known


def _data(table: str, provenance: Mapping[str, Any]) -> str:
    if "rows" not in provenance:
        return ""
    return f"{provenance['rows']:,} {'triples' if 'triples' in table else 'sentences'}"


def _steps(provenance: Mapping[str, Any]) -> float:
    known = provenance.get("settings")
    if known is None:
        return float("nan")
    return known["max_steps"] or known["epochs"] * math.ceil(provenance["rows"] / known["batch_size"])


def _of_kind(known: pd.DataFrame, kind: str) -> pd.DataFrame:
    tasks, which = KINDS[kind]
    some = known.query(which)
    if kind == "clusters":  # the same texts with another number of clusters are another task
        some = some.assign(task=some.task + some.protocol.str.extract(r"(, k \d+)", expand=False).fillna(""))
    return some[some.task.isin(tasks) if tasks else some.task.notna()].assign(kind=kind)


def _borrowed(found: pd.DataFrame) -> pd.DataFrame:
    """SimCSE's rows for the conditions that have none: of another table of the file, else of simcse.csv."""
    keys, same = [*CONDITIONS, "kind"], ["backbone", "data", "kind"]
    trained = found[~found.method.str.startswith("untuned")]
    plain = trained[trained.method == "SimCSE"]
    lacking = trained[keys].drop_duplicates()
    lacking = lacking[~_in(lacking, plain, keys)]
    plain = plain[~plain.table.str.endswith(TUNED)]  # had more trials than any method: lent to none
    near = plain[plain.groupby(["file", *same]).table.transform("nunique") == 1]  # of several, which is meant is open
    near = near.drop(columns="table").merge(lacking, on=["file", *same])
    far = plain[plain.file == "simcse"].drop(columns=["file", "table"])
    far = far.merge(lacking[~_in(lacking, near, keys)], on=same)
    return pd.concat([near, far])[list(found)]


def _in(rows: pd.DataFrame, others: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Whether the others have these keys, row by row."""
    return pd.MultiIndex.from_frame(rows[list(keys)]).isin(pd.MultiIndex.from_frame(others[list(keys)]))


def differences(found: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Scores of trained encoders in one kind of evaluation, and what they gain over SimCSE under the same conditions.

    Args:
        found: what `rows` gives.

    Returns:
        CONDITIONS, label, method, steps, seed, task, value and gain (NaN where SimCSE has no such seed and task).
    """
    some = found[(found.kind == kind) & (found.data != "")]
    paired = [*CONDITIONS, "seed", "task"]
    gained = some.assign(gain=gains(some, over="SimCSE", value="value", paired=paired))
    return gained[[*CONDITIONS, "label", "method", "steps", "seed", "task", "value", "gain"]].reset_index(drop=True)


def averages(differing: pd.DataFrame, *, complete: int = 1) -> pd.DataFrame:
    """Mean over the tasks of what `differences` gives, a row for each seed; seeds with fewer than `complete` tasks are
    left out. With the column group, encoder and data."""
    keys = [*CONDITIONS, "label", "method", "seed"]
    grouped = differing.groupby(keys, sort=False)
    means = grouped[["steps", "value", "gain"]].mean()[grouped.size() >= complete].reset_index()
    return means.assign(group=means.backbone + ", " + means.data)


def summary(averaged: pd.DataFrame) -> pd.DataFrame:
    """What `averages` gives over the seeds: CONDITIONS, method, label, group, steps; mean, std and seeds; gain with its 95 %
    interval, `low` and `high` (Student's t). By encoder and amount of data, the highest mean first."""
    by = [*CONDITIONS, "method"]
    table = gain_table(averaged, over="SimCSE", value="value", by=by)
    table = table.join(averaged.groupby(by)[["label", "group", "steps"]].first()).reset_index()
    table = table.rename(columns={"95 % low": "low", "95 % high": "high"})
    order = {"ascending": [True, True, False], "key": _sizes_as_numbers, "ignore_index": True}
    return table.sort_values(["backbone", "data", "mean"], **order)


def _sizes_as_numbers(column: pd.Series) -> pd.Series:
    """For sorting: the column data as its numbers of sentences, every other column as it is."""
    if column.name != "data":
        return column
    return column.astype(str).str.extract(r"^([\d,]+)")[0].str.replace(",", "").astype(float)


def over_untrained(found: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """What training does to an encoder, against the same reading ([CLS] or the mean of the tokens) of it as it is.

    Args:
        found: what `rows` gives.

    Returns:
        By data and method: untrained and trained, averages of the seven STS tasks; change with its 95 % interval, `low` and
        `high` (Student's t over the seeds); change of SICK-R alone and of the average of the transfer tasks (NaN where one
        was not measured); seeds of STS.
    """
    keys = ["data", "method"]
    some = found[(found.backbone == backbone) & found.kind.isin(["STS", "transfer"])]
    some = some.drop_duplicates([*keys, "kind", "seed", "task"])  # SimCSE is lent to tables that have none
    start, some = some[some.data == ""].set_index(["method", "task"]).value, some[some.data != ""]
    reading = some.data.str.endswith(READ_BY_MEAN).map({True: "untuned, mean", False: "untuned, cls"})
    untrained = start.reindex(pd.MultiIndex.from_arrays([reading, some.task])).to_numpy()
    some = some.assign(untrained=untrained, change=some.value - untrained)
    seeds = some[some.kind == "STS"].groupby([*keys, "seed"], sort=False)[["value", "untrained", "change"]]
    means = seeds.mean()[seeds.count().change == len(STS_TASKS)].reset_index()
    if not len(means):
        return pd.DataFrame()
    both = pd.concat(
        [means, means.drop_duplicates(["data", "seed"]).assign(method="untrained", value=lambda x: x.untrained)]
    )
    table = gain_table(both, over="untrained", value="value", by=keys).drop("untrained", level="method")
    table = table.rename(columns={"mean": "trained", "gain": "change", "95 % low": "low", "95 % high": "high"})
    table["untrained"] = means.groupby(keys).untrained.mean()
    table["SICK-R"] = some[some.task == "SICK-R"].groupby(keys).change.mean()
    transfer = some[some.kind == "transfer"].dropna(subset="change").groupby(keys)
    table["transfer"] = transfer.change.mean().where(transfer.task.nunique() == len(TRANSFER_TASKS))
    return table[["untrained", "trained", "change", "low", "high", "SICK-R", "transfer", "seeds"]]


def beside(found: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Scores in one kind of evaluation, mean over the seeds: a row for every encoder, amount of data and method, untuned
    readings first, a column for every task, their average where a method has all of them, and the seeds."""
    some = found[found.kind == kind]
    some = some.assign(label=some.label.where(some.data != "", some.method))
    keys = ["backbone", "data", "label"]
    table = some.groupby([*keys, "task"], sort=False).value.mean().unstack("task")
    tasks = [task for task in KINDS[kind][0] if task in table] or list(table)
    table = table[tasks]
    if len(tasks) > 1:
        table["Avg."] = table[tasks].mean(axis=1, skipna=False)
    table["seeds"] = some[some.data != ""].groupby(keys).seed.nunique()
    places = table.index.to_frame(index=False)
    return table.iloc[places.sort_values(["backbone", "data"], key=_sizes_as_numbers, na_position="first").index]


def shown(table: pd.DataFrame, caption: str, *, whole: Sequence[str] = ("seeds", "steps")) -> Styler | str:
    """A table with its caption, two decimals, missing cells empty, the columns `whole` without a fraction; a sentence where
    it is empty."""
    if not len(table):
        return f"not measured yet: {caption}"
    styled = table.style.format(precision=2, na_rep="").set_caption(caption)
    return styled.format("{:.0f}", subset=[name for name in whole if name in table], na_rep="")


def cost_configs(config: RunConfig, layers: int) -> dict[str, RunConfig]:
    """What a step of every method is measured with: name -> `config` with the method's own arguments.

    layers: of the backbone; AMI looks at the middle ones, and JTCSE attends across in the upper half. Auxiliary networks
    start from what any backbone has: that costs the same as pre-trained heads.
    """
    half = layers // 2
    ami = {"method": "micse", "ami_weight": 1.0, "min_layer": half - 2, "max_layer": half + 2}
    heads = {"head": "top_layers", "lm_head": "fresh"}
    jtcse = {"method": "jtcse", "cross_attention_layers": half}
    changes = {
        "SimCSE": {},
        "SimCSE + AMI": ami | {"queue_size": 0},
        "SimCSE + MoCo": {"method": "micse", "ami_weight": 0.0},
        "miCSE": ami,
        "DiffCSE": {"method": "diffcse"},
        "InfoCSE": {"method": "infocse"} | heads,
        "InfoCSE + RTD": {"method": "infocse", "rtd_weight": 0.005} | heads,
        "MSSE": {"method": "msse", "lm_head": "fresh"},
        "SimCSE + 3R": {"method": "three_r(simcse)"},
        "InforMin-CL": {"method": "informin_cl"},
        "SSCL": {"method": "sscl"},
        "NCE": jtcse | CONTROLS["NCE"],
        "TNCSE": {"method": "tncse"},
        "JTCSE": jtcse,
        "JTCSE D": {"method": "distill", "teacher": config.backbone},
    }
    return {name: config.replace(**change) for name, change in changes.items()}


def step_costs(configs: Mapping[str, RunConfig], *, repeats: int = 2) -> pd.DataFrame:
    """What one step of each run costs (`cost.training_step`, on the first batch of its corpus), its `time` in steps of the
    first run (`cost.relative_time`), and its encoder at search time: `search`, 10^9 multiply-accumulates for a sentence
    of max_length tokens, and `parameters`, in millions.

    Args:
        configs: by name, the index of what is returned. repeats: rounds in which a run and the first one take turns.

    Raises:
        ConfigError, DataError, EncoderError: see `prepare.load`.
    """
    lines, shared, peer = {}, Shared(), None
    for name, config in configs.items():
        corpus, encoder, _ = load(config, shared)
        torch.manual_seed(config.seed)
        method = config.spec.build(copy.deepcopy(encoder), config.method_arguments)  # which may change its encoder
        tokens = tokenize_corpus(corpus, encoder, max_length=config.max_length)
        tokens = replace(tokens, extra=method.row_data(corpus, config.max_length))
        batch = tokens.batch(range(config.batch_size)).to(encoder.device)
        peer = peer or (method, batch)
        counts = cost.training_step(method, batch)
        counts["time"] = cost.relative_time(method, batch, *peer, rounds=repeats) if len(lines) else 1.0
        parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
        search = cost.multiply_accumulates(method.encoder, config.max_length)
        lines[name] = counts | {"search": search, "parameters": parameters}
    return pd.DataFrame(lines).T


def costs(steps: pd.DataFrame) -> pd.DataFrame:
    """What a method costs relative to SimCSE, all of its stages together, each with as many steps.

    Args:
        steps: by method, the columns of `step_costs`; SimCSE and the stages of STAGES among them, or a method is left out.

    Returns:
        By method: work (operations of training), time, memory (the largest of its steps), trained (parameters, the most at
        a time), encoders (at search time), search (operations there). Stage 1 of InfoCSE, which many runs share, is not in it.
    """
    relative = steps / steps.loc["SimCSE"]
    lines = {}
    for method in dict.fromkeys([*steps.index, *STAGES]):
        stages = STAGES.get(method, [method])
        if set(stages) <= set(steps.index):
            taken = relative.loc[stages]
            line = {"work": taken.operations.sum(), "time": taken.time.sum(), "memory": taken.kept.max()}
            encoders = 1 + (method in TWINS)
            lines[method] = line | {"trained": taken.trained.max(), "encoders": encoders, "search": float(encoders)}
    return pd.DataFrame(lines).T


def cost_rows(steps: pd.DataFrame, config: RunConfig) -> pd.DataFrame:
    """Costs as rows for `publish`, in units of their own but for the time: COST_COLUMNS."""
    long = steps.rename_axis("method").reset_index().melt("method", var_name="quantity")
    labels = {"table": f"batch {config.batch_size}, {config.max_length} tokens", "seed": "", "run_id": ""}
    return long.assign(backbone=encoder_name(config.backbone), **labels)[COST_COLUMNS]


def advice(
    found: pd.DataFrame, costs: pd.DataFrame, budgets: Mapping[str, tuple[float, int]], floors: pd.DataFrame
) -> pd.DataFrame:
    """Which method to take, for every encoder, amount of data and budget.

    The one with the highest score on the seven STS tasks among those within the budget that beat SimCSE twice: their gain
    over SimCSE under the same conditions has an interval above 0 (95 %, Student's t over the seeds, so at least two), and
    their score is above the best that SimCSE has on this data under any conditions, another rate or projection, say.
    Where there is none it is that SimCSE, and where an untrained reading of the encoder scores as high, no training.

    Args:
        found: what `rows` gives.
        costs: by method: `work`, training relative to SimCSE's, and `encoders` at search time. A method that is not
            there is in no budget with a limit.
        budgets: name -> largest work and number of encoders, the smallest budget first.
        floors: what `tables.floors` gives: the best untrained reading of each encoder.

    Returns:
        ADVICE: take and its score, seeds, gain with `low` and `high` (NaN for SimCSE); the scores of the best SimCSE
        and of the best `untrained` reading; `also above SimCSE`. A larger budget has a row where it changes what to take.
    """
    averaged = averages(differences(found, "STS"), complete=len(STS_TASKS))
    table = summary(averaged.dropna(subset="gain"))  # seeds that SimCSE has too
    low = floors.set_index("backbone")
    lines = []
    for (backbone, data), group in table.groupby(["backbone", "data"]):
        plain = group[group.method == "SimCSE"].nlargest(1, "mean")
        line = {"backbone": backbone, "data": data, "SimCSE": plain["mean"].max()}
        line |= {"untrained": low.value.get(backbone, math.nan)}
        surely = group[(group.low > 0) & ~(group["mean"] <= line["SimCSE"])]
        taken = None
        for budget, (work, encoders) in budgets.items():
            fits = costs.index[(costs.work <= work) & (costs.encoders <= encoders)]
            unlimited = math.isinf(work) and math.isinf(encoders)
            better = surely[surely.method.isin(fits) | unlimited].sort_values("mean", ascending=False, kind="stable")
            answer = _answer(better, plain, line["untrained"], low.name.get(backbone))
            if answer["take"] != taken:
                lines.append(line | {"budget": budget} | answer)
            taken = answer["take"]
    answers = pd.DataFrame(lines, columns=ADVICE)
    return answers.sort_values(["backbone", "data"], key=_sizes_as_numbers, ignore_index=True)


def _answer(better: pd.DataFrame, plain: pd.DataFrame, untrained: float, reading: str | None) -> dict[str, Any]:
    """What `advice` takes of the methods that are better than SimCSE (best first), of SimCSE itself and of no training."""
    best = (better if len(better) else plain).head(1)
    if not len(best) or best["mean"].iloc[0] <= untrained:
        return {"take": f"no training: {reading}" if reading else "", "score": untrained}
    best = best.iloc[0]
    if not len(better):
        return {"take": best.label, "score": best["mean"], "seeds": best.seeds}
    answer = {"take": best.label, "score": best["mean"], "seeds": best.seeds, "gain": best.gain}
    answer |= {"low": best.low, "high": best.high}
    return answer | {"also above SimCSE": ", ".join(better.label[1:])}


def mean_ranks(differing: pd.DataFrame, *, least: int = 3) -> pd.DataFrame:
    """Mean ranks over the tasks by gain over SimCSE, for every encoder and amount of data with `least` methods.

    Args:
        differing: what `differences` gives.

    Returns:
        group (encoder and data), method (its label), rank, difference (Nemenyi's critical one, 5 %), tasks, friedman
        (p-value).
    """
    frames = []
    compared = differing.dropna(subset="gain")
    for (backbone, data), part in compared.groupby(["backbone", "data"], sort=True):
        named = part.label.where(part.method != "SimCSE", "SimCSE")
        scores = part.assign(label=named).groupby(["task", "label"]).gain.mean().unstack().dropna(axis=1)
        if scores.shape[1] < least or len(scores) < 2:
            continue
        found = ranks.average_ranks(scores).rename("rank").rename_axis("method").reset_index()
        difference = ranks.critical_difference(scores.shape[1], len(scores))
        labels = {"group": f"{backbone}, {data}", "difference": difference, "tasks": len(scores)}
        frames.append(found.assign(**labels, friedman=ranks.friedman(scores)))
    return (
        pd.concat(frames, ignore_index=True)
        if frames
        else pd.DataFrame(columns=["group", "method", "rank", "difference"])
    )


def few_shot(averaged: pd.DataFrame) -> pd.DataFrame:
    """The gains of methods with several amounts of data under one table: backbone, method, sentences, seed, value."""
    sizes = averaged.data.astype(str).str.extract(r"^([\d,]+) sentences$")[0].str.replace(",", "")
    stem = averaged.table.astype(str).str.replace(rf",? ?{SIZE}", "", regex=True)
    shown = averaged.assign(sentences=sizes, stem=stem).dropna(subset=["sentences", "gain"])
    shown = shown.astype({"sentences": int}).query("method != 'SimCSE'")
    keys = ["backbone", "method", "file", "stem"]
    shown = shown[shown.groupby(keys).sentences.transform("nunique") > 1]
    stems = shown.groupby(["backbone", "method"]).stem.transform("nunique")
    name = shown.method.where(stems == 1, shown.method + " (" + shown.stem + ")")
    return shown.assign(method=name, value=shown.gain)[["backbone", "method", "sentences", "seed", "value"]]


def geometry(profile: str) -> pd.DataFrame:
    """Alignment and uniformity on the dev pairs after the last step, and before the first one (method `untuned`, its data the
    reading where that is not [CLS]); of the methods of SOURCES.

    Returns:
        backbone, data (with the choice of settings where it was wider), method, file (the paper), seed, alignment,
        uniformity: of all files <paper>_geometry of a profile; encoder, method and data, with the paper where several
        measured it.
    """
    keys, frames = ["backbone", "data", "method", "file", "seed"], []
    for path in sorted((paths.root() / "results" / profile).glob("*_geometry.csv")):
        known = by_choice(pd.read_csv(path, keep_default_na=False, dtype={"seed": str}))
        file = path.stem.removesuffix("_geometry")
        known = known.rename(columns={"table": "data"}).assign(file=file, value=known.value / 100)
        last = known[known.step == known.groupby(keys).step.transform("max")]
        last = last[last.method.isin(["SimCSE", *SOURCES.get(file, [])])]
        start = known[known.step == 0]
        reading = start.data.str.extract("(read by .*)")[0].fillna("")
        frames += [start.assign(method="untuned", data=reading, file="", seed=""), last]
    if not frames:
        return pd.DataFrame(columns=[*keys, "alignment", "uniformity", "encoder"])
    both = pd.concat(frames).drop_duplicates([*keys, "quantity"])
    both = both.pivot(index=keys, columns="quantity", values="value").reset_index().rename_axis(columns=None)
    several = both.groupby(keys[:3]).file.transform("nunique") > 1
    name = both.method.where(~several, both.method + " (" + both.file + ")")
    return both.assign(encoder=(name + ", " + both.data.str.replace(" sentences", "")).str.removesuffix(", "))


def coverage(found: pd.DataFrame) -> pd.DataFrame:
    """How many seeds every trained method has, by encoder and data (rows) and kind of evaluation (columns); nothing: NaN.

    Measured under several conditions, that with most seeds counts.
    """
    keys = ["backbone", "data", "method"]
    trained = found[found.data != ""].drop_duplicates([*CONDITIONS, "method", "kind", "seed"])
    seeds = trained.groupby([*keys, "kind", *CONDITIONS[2:]], sort=False).seed.nunique()
    table = seeds.groupby([*keys, "kind"], sort=False).max().unstack("kind")
    return table.reindex(columns=list(KINDS)).sort_index(level=[0, 1], sort_remaining=False)
