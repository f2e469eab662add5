"""Measurements as rows: each value with its conditions in columns. What `lib.comparison` makes of them is a name here, too.

A table is a filter (`rows`) and a pivot; a gain, its interval and its verdict come from `compare` and `verdict` alone. Rows
that a notebook publishes stand in results/<profile>/<paper>.csv (scores), <paper>_curves.csv and <paper>_points.csv; the
provenance of their runs stands once, in runs.json beside them.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib import paths
from lib.checks import DataError, check_known
from lib.comparison import ENCODERS, NAMES, NOT_MEASURED, ON_ONE, VERDICTS, compare, gains, interval, select, verdict  # noqa: F401
from lib.data.sts import STS_TASKS

# Conditions of a measurement. pooling: how the vector was read. sentences: rows of the corpus that was trained on. settings:
# given (the notebook's), chosen (by dev scores), level (the level field), or what was changed ("dropout 0.2"). precision, device: of training;
# whether bf16 was computed by rounding stands in runs.json alone.
CONDITIONS = "paper table method backbone pooling sentences settings precision device profile".split()
SHAPES = {
    "scores": [*CONDITIONS, *"task split protocol aggregation metric value seed run_id".split()],
    "curves": [*CONDITIONS, *"metric group step layer value seed run_id".split()],
    "points": [*CONDITIONS, *"metric group item label cluster x y seed run_id".split()],
}
ENDINGS = {"scores": "", "curves": "_curves", "points": "_points"}  # of the names of published files
MEASURED = ("value", "x", "y")  # all other columns tell rows apart
WHOLE = ("sentences", "step", "layer", "item", "cluster")  # whole numbers, or missing
MADE_FROM = {"averaging start": "mini-bert"}  # an encoder whose untrained score is the floor of another one, too
_own: list[tuple[str, pd.DataFrame]] = []  # shape and rows of this kernel


# --- Rows ---


def rows(profile: str | None = None, *, shape: str = "scores", **filters: Any) -> pd.DataFrame:
    """Published rows and those of this kernel, each measurement once, this kernel's first. A row without a run (untuned) of
    other values stands beside the published one of its name.

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
    paper = filters["paper"] if isinstance(filters.get("paper"), str) else "*"  # each has files of its own
    files = sorted((paths.root() / "results").glob(f"{profile or '*'}/{paper}{ENDINGS[shape]}.csv"))
    files = [path for path in files if ENDINGS[shape] or not path.stem.endswith(("_curves", "_points"))]
    public = _concat([select(_read(path, shape, path.stat().st_mtime_ns), filters) for path in files], shape)
    own = _concat([select(frame, filters) for kind, frame in _own if kind == shape], shape)
    if profile is None:
        own = own[(own.profile != "demo") | ~own.backbone.isin(public.backbone)]
    else:
        own = own[own.profile == profile]
    keys = [name for name in SHAPES[shape] if name not in MEASURED]
    again = [name for name in keys if name not in ("run_id", "precision", "device")]  # where a cell was run again
    own = own.drop_duplicates(again, keep="last")
    both = pd.concat([own, public], ignore_index=True)
    is_same = both.duplicated([*keys, *(name for name in MEASURED if name in both)], keep=False)
    is_again = both.duplicated(keys, keep=False) & (is_same | (both.seed != ""))  # only a run says which encoder it was
    both["source"] = both.profile.where(is_again | (both.index >= len(own)), "this run, " + both.profile)
    both = both[~(is_again & both.duplicated(keys))]
    own_first = np.argsort(~both.source.str.startswith("this run"), kind="stable")
    return both.iloc[own_first].reset_index(drop=True)


def comparable(found: pd.DataFrame) -> pd.DataFrame:
    """Rows that one table may compare, of what `rows` gives: where this kernel measured a published method of an encoder otherwise
    (on another device, with other sentences, seeds, pooling or tasks), of this encoder only what this kernel measured."""
    known = [name for name in found if name not in (*MEASURED, "source")]
    found = found.drop_duplicates(known)  # an untuned encoder may stand there twice
    free = "run_id device precision sentences pooling task protocol seed".split()
    keys = pd.MultiIndex.from_frame(found[[name for name in known if name not in free]])
    is_own = found.source.str.startswith("this run")
    replaced = ~is_own & keys.isin(keys[is_own & (found.seed != "")])
    where = ["run_id", "device", "precision"]
    here = {run for _, frame in _own for run in frame[where].itertuples(index=False, name=None)}
    is_mine = pd.MultiIndex.from_frame(found[where]).isin(here)
    is_left = ~found.backbone.isin(found.backbone[replaced])
    return found[is_own | is_left | is_mine].reset_index(drop=True)


def forget() -> None:
    """Leave out what this kernel has measured so far: with other settings it would stand in the same means."""
    _own.clear()


def _concat(frames: Sequence[pd.DataFrame], shape: str) -> pd.DataFrame:
    return pd.concat([frame for frame in frames if len(frame)] or [_typed(pd.DataFrame(columns=SHAPES[shape]))])


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
        DataError: two rows differ in measured values alone, or one mean over seeds would mix runs of different settings or
            texts.
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
        frame = derive(run.history)
        known = [name for name in quantities if name in frame]  # a term that is switched off has no column
        return frame.dropna(subset=known).melt("step", known, "metric")

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
        both = both.groupby(same, sort=False, as_index=False, dropna=False).last(skipna=False)[SHAPES[shape]]
        _check_settings(both, frame, runs)
        with paths.whole_file(path) as new:
            both.to_csv(new, index=False, lineterminator="\n")
        with paths.whole_file(beside) as new:
            parts = {name: json.dumps(runs[name], ensure_ascii=False, sort_keys=True) for name in sorted(runs)}
            text = ",\n".join(f"{json.dumps(name)}: {part}" for name, part in parts.items())
            new.write_text(f"{{\n{text}\n}}\n", encoding="utf8", newline="\n")


def _check_settings(both: pd.DataFrame, new: pd.DataFrame, runs: Mapping[str, Any]) -> None:
    """Raise DataError where rows that differ in their seed alone come from runs of different settings, or of other texts."""
    for who, part in both.merge(new[CONDITIONS].drop_duplicates()).groupby(CONDITIONS, dropna=False):
        found = [runs[name] for name in {*part.run_id} if runs.get(name, {}).get("settings")]
        known = [one["settings"] | {"corpus": re.sub(r" with seed \d+", "", one["corpus"])} for one in found]
        for name in sorted(set().union(*known)):
            values = {json.dumps(one[name], sort_keys=True) for one in known if name in one}
            if len(values) > 1:
                raise DataError(
                    f"the rows {', '.join(filter(None, map(str, who[:4])))} would come from runs with different {name} ("
                    f"{' and '.join(sorted(values))}): measure every seed with the same, or delete these rows."
                )


# --- Means and floors ---


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


def floors(
    found: pd.DataFrame | None = None, *, task: str | Sequence[str] = STS_TASKS, split: str = "test"
) -> pd.DataFrame:
    """What every method has to beat on the seven STS tasks, or on one: the best untrained reading of each encoder. That of
    the mini-BERT is the word vectors that it was made from, far above its own readings.

    Returns:
        name, backbone, value: one row for each backbone.
    """
    found = rows(task=task, split=split) if found is None else select(found, {"task": task, "split": split})
    known = found[(found.method == "untuned") & (found.metric == "spearman") & (found.aggregation == "all")]
    readings = known.drop_duplicates(["backbone", "pooling", "task"]).groupby(["backbone", "pooling"])
    known = readings.value.agg(["mean", "size"]).reset_index()
    known = known[known["size"] == (1 if isinstance(task, str) else len(task))]
    known = known.assign(name="untuned, " + known.pooling)
    words = known[known.backbone.isin(MADE_FROM)].assign(name="word vectors")
    both = pd.concat([known, words.assign(backbone=words.backbone.map(MADE_FROM))]).rename(columns={"mean": "value"})
    best = both.sort_values("value").drop_duplicates("backbone", keep="last")
    return best.sort_values("backbone")[["name", "backbone", "value"]].reset_index(drop=True)


def show(frame: pd.DataFrame, caption: str, digits: int = 2) -> Styler:
    """A table with its caption, missing cells empty, encoders of ours called as in the text; where nothing was found, the
    caption says what was asked."""
    named = frame.replace(NAMES).rename(index=NAMES, columns=NAMES)
    table = Styler(named, cell_ids=False).format(precision=digits, na_rep="")
    for axis, names in enumerate((frame.index.names, frame.columns.names)):
        if "sentences" in names:
            table.format_index(na_rep="", precision=0, thousands=",", axis=axis, level="sentences")
    return table.set_caption(caption if len(frame) else f"not measured yet: {caption}")
