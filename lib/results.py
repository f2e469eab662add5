"""Measurements as rows: each value with its conditions in columns, the comparison of methods, and the verdict on it.

A table is a filter (`rows`) and a pivot; a gain, its interval and its verdict come from `compare` and `verdict` alone. Rows
that a notebook publishes stand in results/<profile>/<paper>.csv (scores), <paper>_curves.csv and <paper>_points.csv; the
provenance of their runs stands once, in runs.json beside them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler
from scipy import stats

from lib import paths
from lib.checks import ConfigError, DataError, check_known
from lib.data.sts import STS_TASKS

# Conditions of a measurement. pooling: how the vector was read. sentences: rows of the corpus that was trained on. settings:
# given (the notebook's), chosen (by dev scores), level (the level field), or what was changed ("dropout 0.2"). precision, device: of training.
CONDITIONS = "paper table method backbone pooling sentences settings precision device profile".split()
SHAPES = {
    "scores": [*CONDITIONS, *"task split protocol aggregation metric value seed run_id".split()],
    "curves": [*CONDITIONS, *"metric group step layer value seed run_id".split()],
    "points": [*CONDITIONS, *"metric group item label cluster x y seed run_id".split()],
}
ENDINGS = {"scores": "", "curves": "_curves", "points": "_points"}  # of the names of published files
MEASURED = ("value", "x", "y")  # all other columns tell rows apart
WHOLE = ("sentences", "step", "layer", "item", "cluster")  # whole numbers, or missing
# Of the two sides of a gain these have to be equal, where both have them.
EQUAL = [*CONDITIONS[3:], *"split protocol aggregation metric group step layer".split()]
ENCODERS = ("mini-bert", "minilm-stripped")  # that every method was trained from
MADE_FROM = {"averaging start": "mini-bert"}  # an encoder whose untrained score is the floor of another one, too
WORTH = 0.5  # points below which a gain is not worth having, where papers claim 1.2 to 3.9
HOLDS, ON_ONE, NO_GAIN, OPEN, CONTRADICTED, ONE_RUN, NOT_MEASURED = VERDICTS = (
    "holds", "holds on one encoder", "no gain worth having", "open", "contradicted", "one run", "not measured",
)  # fmt: skip

_own: list[tuple[str, pd.DataFrame]] = []  # shape and rows of this kernel


# --- Rows ---


def rows(profile: str | None = None, *, shape: str = "scores", **filters: Any) -> pd.DataFrame:
    """Published rows and those of this kernel, each measurement once, this kernel's first.

    Args:
        profile: of both; None: all, but for rows of the demo where the same filters find published ones of that encoder:
            its numbers are no results.
        shape: one of SHAPES.
        filters: column -> a value, a list of values, or a function of the column that gives a mask.

    Returns:
        The columns of the shape, and `source`: the profile where a row is published, else "this run, PROFILE".

    Raises:
        ConfigError: no such column. DataError: a damaged file.
    """
    check_known(filters, SHAPES[shape], "column of rows")
    files = sorted((paths.root() / "results").glob(f"{profile or '*'}/*{ENDINGS[shape]}.csv"))
    files = [path for path in files if ENDINGS[shape] or not path.stem.endswith(("_curves", "_points"))]
    public = _concat([_select(_read(path, shape, path.stat().st_mtime_ns), filters) for path in files], shape)
    own = _concat([_select(frame, filters) for kind, frame in _own if kind == shape], shape)
    if profile is None:
        own = own[(own.profile != "demo") | ~own.backbone.isin(public.backbone)]
    else:
        own = own[own.profile == profile]
    keys = [name for name in SHAPES[shape] if name not in MEASURED]
    own = own.drop_duplicates(keys, keep="last")
    both = pd.concat([own, public], ignore_index=True)
    is_public = both.duplicated(keys, keep=False) | (both.index >= len(own))
    both["source"] = both.profile.where(is_public, "this run, " + both.profile)
    both = both.drop_duplicates(keys)
    own_first = np.argsort(~both.source.str.startswith("this run"), kind="stable")
    return both.iloc[own_first].reset_index(drop=True)


def _concat(frames: Sequence[pd.DataFrame], shape: str) -> pd.DataFrame:
    return pd.concat([frame for frame in frames if len(frame)] or [_typed(pd.DataFrame(columns=SHAPES[shape]))])


def _select(frame: pd.DataFrame, filters: Mapping[str, Any]) -> pd.DataFrame:
    for name, wanted in filters.items():
        if callable(wanted):
            kept = wanted(frame[name])
        else:
            kept = frame[name].isin(wanted if pd.api.types.is_list_like(wanted) else [wanted])
        frame = frame[kept.fillna(False).astype(bool)]
    return frame


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """With text as text ("" where there is none), whole numbers as such, and values as float64."""
    return frame.assign(
        **{name: frame[name].astype(float) for name in MEASURED if name in frame},
        **{name: pd.to_numeric(frame[name].replace("", None)).astype("Int64") for name in WHOLE if name in frame},
        **{name: frame[name].fillna("").astype(str) for name in frame if name not in MEASURED + WHOLE},
    )


@lru_cache(maxsize=64)
def _read(path: Path, shape: str, version: int) -> pd.DataFrame:
    try:
        with path.open(encoding="utf8", newline="") as file:
            lines = list(csv.reader(file))
        if lines[:1] != [SHAPES[shape]] or {*map(len, lines)} != {len(lines[0])}:
            raise ValueError(f"not every line has the columns of {shape}")
        return _typed(pd.DataFrame(lines[1:], columns=lines[0]))
    except ValueError as error:  # such as a text where a number is expected
        raise DataError(f"{path} is damaged ({error}): restore it from git, or delete it and publish again.") from error


def add(frame: pd.DataFrame, run: Any = None, *, publish: bool = False, **labels: Any) -> pd.DataFrame:
    """Take measured rows into `rows`, their conditions filled in.

    Args:
        frame: the measured columns of a shape: with x and y points, with step or layer curves, else scores. Averages over
            tasks are left out: `averages` computes them.
        run: the Run that was measured, if one was.
        publish: write them to results/<profile>/ too, in place of rows of the same conditions.
        labels: columns that the run does not tell, or not so; columns of the frame stay as they are.

    Raises:
        DataError: two rows differ in measured values alone, or one mean over seeds would mix runs of different settings.
    """
    shape = "points" if {"x", "y"} <= {*frame} else "curves" if {"step", "layer"} & {*frame} else "scores"
    known = {"settings": "given"}
    if run is not None:
        known |= {name: getattr(run.config, name) for name in ("method", "pooling", "precision", "profile")}
        known |= {"backbone": run.labels["backbone"], "sentences": run.provenance["rows"], "run_id": run.id}
        known |= {"device": run.provenance.get("device", "").split(",")[0], "seed": str(run.config.seed)}
    here = frame.assign(**{name: value for name, value in (known | labels).items() if name not in frame})
    here = _typed(here.reindex(columns=SHAPES[shape]))
    if shape == "scores":
        here = here[here.task != "Avg."].reset_index(drop=True)
    keys = [name for name in SHAPES[shape] if name not in (*MEASURED, "run_id")]
    if len(twice := here[here.duplicated(keys)]):
        raise DataError(f"two rows with other values are both called {', '.join(map(str, twice[keys].iloc[0]))}.")
    _own.append((shape, here))
    if publish and len(here):
        _publish(here, shape, keys, run)
    return here


def history(
    *quantities: str, derive: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
) -> Callable[[Any], pd.DataFrame]:
    """A function of a run, for `Plan.measure`: quantities of its history at the steps that have all of them, as curves.

    derive: a history with further columns, from a history.
    """

    def curves(run: Any) -> pd.DataFrame:
        frame = derive(run.history).dropna(subset=list(quantities))
        return frame.melt("step", list(quantities), "metric")

    return curves


def _publish(frame: pd.DataFrame, shape: str, keys: Sequence[str], run: Any) -> None:
    path = paths.root() / "results" / frame.profile.iloc[0] / f"{frame.paper.iloc[0]}{ENDINGS[shape]}.csv"
    beside = path.with_name("runs.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with paths.locked(beside):
        runs = json.loads(beside.read_text(encoding="utf8")) if beside.is_file() else {}
        if run is not None:
            earlier = [*runs[run.id].get("also", []), runs[run.id]] if run.id in runs else []
            elsewhere = [one for one in earlier if one["device"] != run.provenance["device"]]
            also = [{name: one[name] for name in ("device", "commit", "versions", "finished")} for one in elsewhere]
            runs[run.id] = run.provenance | {"settings": run.settings} | ({"also": also} if also else {})
        public = _read(path, shape, path.stat().st_mtime_ns) if path.is_file() else frame[:0]
        both = pd.concat([public, frame], ignore_index=True)
        same = [name for name in keys if name not in ("precision", "device")]  # measured elsewhere, a row is replaced
        both = both.groupby(same, sort=False, as_index=False, dropna=False).last()[SHAPES[shape]]
        _check_settings(both, frame, runs)
        with paths.whole_file(path) as new:
            both.to_csv(new, index=False, lineterminator="\n")
        with paths.whole_file(beside) as new:
            parts = {name: json.dumps(runs[name], ensure_ascii=False, sort_keys=True) for name in sorted(runs)}
            text = ",\n".join(f"{json.dumps(name)}: {part}" for name, part in parts.items())
            new.write_text(f"{{\n{text}\n}}\n", encoding="utf8", newline="\n")


def _check_settings(both: pd.DataFrame, new: pd.DataFrame, runs: Mapping[str, Any]) -> None:
    """Raise DataError where rows that differ in their seed alone come from runs of different settings."""
    for who, part in both.merge(new[CONDITIONS].drop_duplicates()).groupby(CONDITIONS, dropna=False):
        known = [runs[name]["settings"] for name in {*part.run_id} if runs.get(name, {}).get("settings")]
        for name in sorted(set().union(*known)):
            values = {json.dumps(one[name], sort_keys=True) for one in known if name in one}
            if len(values) > 1:
                raise DataError(
                    f"the rows {', '.join(filter(None, map(str, who[:4])))} would come from runs with different {name} ("
                    f"{' and '.join(sorted(values))}): measure every seed again with the same settings, or delete these rows."
                )


# --- Comparing ---


def sts(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of STS that tables quote: test pairs, Spearman, aggregation all."""
    return frame[(frame.split == "test") & (frame.aggregation == "all") & (frame.metric == "spearman")]


def averages(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each seed: the mean over its tasks, named "Avg." where there are several. Seeds that lack a task that others
    of the same conditions have are left out."""
    frame = frame if "task" in frame else frame.assign(task="")  # curves
    keys = [name for name in frame if name not in ("task", "protocol", "value")]
    grouped = frame.groupby(keys, sort=False, dropna=False)
    means = grouped.agg(value=("value", "mean"), tasks=("task", "size"), task=("task", "first")).reset_index()
    means["task"] = means.task.where(means.tasks == 1, "Avg.")
    most = means.groupby([name for name in keys if name not in ("seed", "run_id")], dropna=False).tasks.transform("max")
    return means[means.tasks == most].drop(columns="tasks").reset_index(drop=True)


def interval(gains: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of paired differences, one for each seed: Student's t; NaN twice for one seed."""
    gains = np.asarray(gains, float)
    if len(gains) < 2:
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + level) / 2, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
    return float(gains.mean() - half), float(gains.mean() + half)


def gains(rows: pd.DataFrame, over: pd.DataFrame, *, free: Sequence[str] = ()) -> pd.DataFrame:
    """Paired differences of two sides: seeds in rows, tasks in columns, seeds that lack a task left out. A side without
    seeds, such as an untuned encoder, stands against every seed.

    free: columns in which the two sides may differ.

    Raises:
        ConfigError: the conditions of the two sides differ, or one has several values for a seed and task.
    """
    both = pd.concat([rows, over])
    for name in (name for name in EQUAL if name in both and name not in free):
        values = both[name].replace("", pd.NA).dropna().unique()
        if len(values) > 1 and not (name == "protocol" and both.groupby("task").protocol.nunique().max() < 2):
            raise ConfigError(
                f"{rows.method.iloc[0]} and {over.method.iloc[0]} differ in {name} ({', '.join(map(str, values))}): a gain "
                f"compares equal conditions; filter the rows, or name {name} in `by`."
            )
    wide = []
    for side in (rows, over):
        side = side.assign(task=side.task if "task" in side else "")
        if len(twice := side[side.duplicated(["seed", "task"])]):
            method, seed, task = twice.iloc[0][["method", "seed", "task"]]
            raise ConfigError(f"{method} has two values for seed {seed or 'none'} {task}: filter the rows further.")
        wide.append(side.pivot(index="seed", columns="task", values="value"))
    a, b = wide
    if list(a.index) != [""] and list(b.index) == [""]:
        b = b.loc[[""] * len(a)].set_axis(a.index)
    return a.sub(b).dropna(axis=1, how="all").dropna()


def compare(
    rows: pd.DataFrame, over: str | Mapping[str, Any], by: Sequence[str] = ("method",), *, holm: str = ""
) -> pd.DataFrame:
    """Mean and deviation over seeds, and the gain over a method with the same seeds under the same conditions.

    The mean over the tasks of a seed is taken first, nothing is rounded; the interval is Student's t over seeds, 95 %.

    Args:
        over: a method, or columns and values that select the rows to compare with; in these the two sides may differ.
        by: columns that tell rows apart, `method` among them; equal in both sides but for `method` and those of `over`.
        holm: one of `by`: widen the intervals for the number of contrasts that share its value (Holm 1979: the k-th smallest
            p of m at 5 % / (m - k + 1)).

    Returns:
        Index `by`: mean, sd, seeds (of the pairs where there is a gain), gain, low, high, tasks ("5 of 7" gain).

    Raises:
        ConfigError: see `gains`.
    """
    by, over = list(by), {"method": over} if isinstance(over, str) else dict(over)
    reference, same = _select(rows, over), [name for name in by if name != "method" and name not in over]
    lines, paired = {}, {}
    for key, part in rows.groupby(by, sort=False, dropna=False):
        labels = dict(zip(by, key, strict=True))
        tasks = part.groupby("seed").value.agg(["mean", "size"])
        seeds = tasks["mean"][tasks["size"] == tasks["size"].max()]  # others lack a task
        lines[key] = {"mean": seeds.mean(), "sd": seeds.std(), "seeds": len(seeds) if list(seeds.index) != [""] else 0}
        base = reference
        for name in same:  # an untuned encoder was trained on no sentences: it stands against all
            base = base[(base[name] == labels[name]).fillna(False) | base[name].isin([""]) | base[name].isna()]
        if len(base) and len(_select(part, over)) < len(part):  # not the reference itself
            gained = gains(part, base, free=[name for name in over if name != "method"])
            if gained.size:
                paired[key] = gained
    means, alpha = {key: gained.mean(axis=1) for key, gained in paired.items()}, {}
    for value in rows[holm].unique() if holm else ():
        alpha |= _levels({key: each for key, each in means.items() if key[by.index(holm)] == value})
    for key, gained in paired.items():
        each = means[key]
        low, high = interval(each, level=1 - alpha.get(key, 0.05))
        number = f"{(gained.mean() > 0).sum()} of {gained.shape[1]}" if gained.shape[1] > 1 else ""
        lines[key] |= {"gain": each.mean(), "low": low, "high": high, "tasks": number, "seeds": len(each)}
    keys = pd.DataFrame(list(lines), columns=by).astype(rows[by].dtypes)
    frame = keys.join(pd.DataFrame(list(lines.values()), columns="mean sd seeds gain low high tasks".split()))
    frame = frame.sort_values(by, key=lambda column: pd.factorize(column)[0])  # a source, a backbone, ... together
    return frame.set_index(by).fillna({"tasks": ""}).astype({"seeds": int})


def _levels(paired: Mapping[Any, pd.Series]) -> dict[Any, float]:
    """Holm's error rate of each contrast; his procedure ends at the first p above its rate, which is that of all further ones."""
    known = {key: stats.ttest_1samp(each, 0).pvalue for key, each in paired.items() if len(each) > 1}
    rates, rate, ended = {}, 0.05, False
    for place, key in enumerate(sorted(known, key=known.get)):
        rates[key] = rate = rate if ended else 0.05 / (len(known) - place)
        ended = ended or not known[key] < rate
    return rates


def floors(
    found: pd.DataFrame | None = None, *, task: str | Sequence[str] = STS_TASKS, split: str = "test"
) -> pd.DataFrame:
    """What every method has to beat on the seven STS tasks, or on one: the best untrained reading of each encoder. That of
    the mini-BERT is the word vectors that it was made from, far above its own readings.

    Returns:
        name, backbone, value: one row for each backbone.
    """
    found = rows(task=task, split=split) if found is None else _select(found, {"task": task, "split": split})
    known = found[(found.method == "untuned") & (found.metric == "spearman") & (found.aggregation == "all")]
    readings = known.drop_duplicates(["backbone", "pooling", "task"]).groupby(["backbone", "pooling"])
    known = readings.value.agg(["mean", "size"]).reset_index()
    known = known[known["size"] == (1 if isinstance(task, str) else len(task))]
    known = known.assign(name="untuned, " + known.pooling)
    words = known[known.backbone.isin(MADE_FROM)].assign(name="word vectors, untrained")
    both = pd.concat([known, words.assign(backbone=words.backbone.map(MADE_FROM))]).rename(columns={"mean": "value"})
    best = both.sort_values("value").drop_duplicates("backbone", keep="last")
    return best.sort_values("backbone")[["name", "backbone", "value"]].reset_index(drop=True)


# --- Verdict and table ---


def verdict(compared: pd.DataFrame, *, sign: int = 1, floors: pd.DataFrame | None = None, points: bool = True) -> str:
    """The verdict on one claim, "this gains": one of VERDICTS.

    | verdict | |
    |---|---|
    | holds | on two encoders the interval lies above 0, and the mean above the encoder's floor |
    | holds on one encoder | on one of them |
    | contradicted | on none, and on one the interval lies below 0 |
    | no gain worth having | on two encoders it ends below 0.5 points |
    | open | none of these |
    | one run | one seed on every encoder |
    | not measured | no seed has both sides |

    Args:
        compared: what `compare` gives for this contrast, a row for each encoder, with the column or index level backbone.
        sign: -1 where the claim is that it loses. floors: what `floors` gives, where the claim is a score on STS.
        points: whether a gain is in points, so that one below 0.5 is not worth having.
    """
    compared = compared.reset_index().dropna(subset="gain")
    chosen = compared[compared.backbone.isin(ENCODERS)]
    compared = chosen if len(chosen) else compared
    if not len(compared):
        return NOT_MEASURED
    judged = compared.dropna(subset="low")
    if not len(judged):
        return ONE_RUN
    low, high = (judged.low, judged.high) if sign > 0 else (-judged.high, -judged.low)
    floor = np.nan if floors is None else judged.backbone.map(floors.set_index("backbone").value)
    holds = ((low > 0) & ~(judged["mean"] <= floor)).sum()
    if holds:
        return HOLDS if holds > 1 and holds == len(compared) else ON_ONE
    if (high < 0).any():
        return CONTRADICTED
    return NO_GAIN if points and len(judged) > 1 and (high < WORTH).all() else OPEN


def show(frame: pd.DataFrame, caption: str, digits: int = 2) -> Styler:
    """A table with its caption, missing cells empty; where nothing was found, the caption says what was asked."""
    table = Styler(frame, cell_ids=False).format(precision=digits, na_rep="")
    for axis, names in enumerate((frame.index.names, frame.columns.names)):
        if "sentences" in names:
            table.format_index(na_rep="", precision=0, thousands=",", axis=axis, level="sentences")
    return table.set_caption(caption if len(frame) else f"not measured yet: {caption}")
