"""What a method gains: paired differences over seeds, their interval, and the one verdict on a claim. Sees only rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from lib.checks import ConfigError

# Of the two sides of a gain these have to be equal, where both have them.
EQUAL = (
    "backbone pooling sentences settings precision device profile split protocol aggregation metric group step layer"
).split()
ENCODERS = ("mini-bert", "minilm-stripped")  # that every method was trained from
NAMES = {  # what figures and tables call encoders of ours
    "mini-bert": "mini-BERT",
    "minilm-stripped": "stripped MiniLM",
    "minilm-stripped (again)": "stripped MiniLM (again)",
}
WORTH = 0.5  # points below which a gain is not worth having, where papers claim 1.2 to 3.9
HOLDS, ON_ONE, NO_GAIN, OPEN, CONTRADICTED, ONE_RUN, NOT_MEASURED = VERDICTS = (
    "holds", "holds on one encoder", "no gain worth having", "open", "contradicted", "one run", "not measured",
)  # fmt: skip


def select(frame: pd.DataFrame, filters: Mapping[str, Any]) -> pd.DataFrame:
    """Rows with these values: filters as in `results.rows`."""
    kept = np.ones(len(frame), bool)
    for name, wanted in filters.items():
        if callable(wanted):
            found = wanted(frame[name])
        else:
            found = frame[name].isin(wanted if pd.api.types.is_list_like(wanted) else [wanted])
        kept &= found.fillna(False).to_numpy(bool)
    return frame[kept]


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
        values = [value for value in both[name].dropna().unique() if value != ""]
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
        Index `by`: mean, sd, seeds (all three of the pairs, where there is a gain), gain, low, high, tasks ("5 of 7" gain).
    """
    by, over = list(by), {"method": over} if isinstance(over, str) else dict(over)
    reference, same = select(rows, over), [name for name in by if name != "method" and name not in over]
    lines, paired, scores = {}, {}, {}
    for key, part in rows.groupby(by, sort=False, dropna=False):
        labels = dict(zip(by, key, strict=True))
        tasks = part.groupby("seed").value.agg(["mean", "size"])
        seeds = scores[key] = tasks["mean"][tasks["size"] == tasks["size"].max()]  # others lack a task
        lines[key] = {"mean": seeds.mean(), "sd": seeds.std(), "seeds": len(seeds) if list(seeds.index) != [""] else 0}
        base = reference
        for name in same:  # an untuned encoder was trained on no sentences: it stands against all
            base = base[(base[name] == labels[name]).fillna(False) | base[name].isin([""]) | base[name].isna()]
        if len(base) and len(select(part, over)) < len(part):  # not the reference itself
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
        pairs = scores[key].reindex(each.index)
        lines[key] |= {"mean": pairs.mean(), "sd": pairs.std(), "seeds": len(each)}
        lines[key] |= {"gain": each.mean(), "low": low, "high": high, "tasks": number}
    keys = pd.DataFrame(list(lines), columns=by).astype(rows[by].dtypes)
    frame = keys.join(pd.DataFrame(list(lines.values()), columns="mean sd seeds gain low high tasks".split()))
    frame = frame.sort_values(by, key=lambda column: pd.factorize(column)[0])  # a source, a backbone, ... together
    return frame.set_index(by).fillna({"tasks": ""}).astype({"seeds": int})


def _levels(paired: Mapping[Any, pd.Series]) -> dict[Any, float]:
    """Holm's error rate of each contrast; his procedure ends at the first p above its rate, which is that of all further ones."""
    known = {key: stats.ttest_1samp(each, 0).pvalue for key, each in paired.items() if len(each) > 1}
    known = {key: 1.0 if np.isnan(p) else p for key, p in known.items()}  # gains of exactly 0
    rates, rate, ended = {}, 0.05, False
    for place, key in enumerate(sorted(known, key=known.get)):
        rates[key] = rate = rate if ended else 0.05 / (len(known) - place)
        ended = ended or not known[key] < rate
    return rates


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
