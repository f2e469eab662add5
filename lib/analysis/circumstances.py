"""Why a score differs when the evaluation does not explain it: the seed, the settings of the training, another model; and what
people write of their scores, read into numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from lib import results
from lib.analysis import papers
from lib.analysis.diagnose import AVERAGE
from lib.checks import ConfigError

# parameter of a training -> what settings of published ablations are called
ABLATIONS = {
    "augmentation": "augmentation {}",
    "batch_size": "batch {}",
    "dropout": "dropout {}",
    "learning_rate": "rate {}",
    "mlm_weight": "MLM weight {}",
    "projection": "projection {}",
    "temperature": "temperature {}",
}


def seeds_needed(deviation: float, difference: float, power: float = 0.8) -> int:
    """Seeds of each side with which a two-sided t-test (5 %) finds a difference of means with this power, when both sides
    have this deviation over seeds."""
    for seeds in range(2, 10_000):
        freedom, shift = 2 * seeds - 2, difference / deviation * (seeds / 2) ** 0.5
        if stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, shift) >= power:
            return seeds
    raise ConfigError(f"a difference of {difference} with a deviation of {deviation} needs more than 10,000 seeds.")


def among_seeds(score: float, table: Mapping[str, float]) -> str:
    """Where a score lies among seeds that were published as mean, std, min and max."""
    away = (score - table["mean"]) / table["std"]
    share = 100 * stats.norm.cdf(away)
    where = "inside" if table["min"] <= score <= table["max"] else "outside"
    return f"{score:.2f} is {away:+.1f} deviations from the mean, {where} the range of the seeds; {share:.0f} % of seeds are lower"


def nearest_published(mine: Mapping[str, float], most: int = 5) -> pd.DataFrame:
    """The rows of the papers' tables that are nearest to a row of scores, by the root mean square over the tasks that both have.

    Returns:
        paper, table, method, setting, tasks (how many are compared), distance; the nearest first. Rows that share fewer than
        three tasks with `mine` are left out.
    """
    lines = []
    for paper in papers.sheets():
        for one in papers.load(paper)["tables"]:
            table = papers.table(paper, one["id"])
            table = table[table.column.isin([name for name in mine if name != AVERAGE])].dropna(subset="value")
            for key, row in table.groupby(["paper", "table", "method", "setting"], sort=False):
                apart = row.value.astype(float) - row.column.map(mine)
                lines.append((*key, len(row), float(np.sqrt((apart**2).mean()))))
    frame = pd.DataFrame(lines, columns=["paper", "table", "method", "setting", "tasks", "distance"])
    return frame[frame.tasks >= 3].sort_values("distance", kind="stable").head(most).reset_index(drop=True)


def training_differences(settings: Mapping[str, Any], reference: Mapping[str, Any]) -> pd.DataFrame:
    """Settings of a training that are not the reference's, with what each was measured to change (ablations of SimCSE, STS-B
    dev, mean of encoders and seeds).

    Returns:
        setting, yours, reference, effect (points on STS-B dev; NaN: not measured); the largest effect first.

    Raises:
        ConfigError: a setting that the reference does not have.
    """
    if unknown := sorted(set(settings) - set(reference)):
        raise ConfigError(f"settings {unknown} are unknown: choose from {', '.join(sorted(reference))}.")
    rows = results.rows("small", paper="simcse", split="dev", metric="spearman", task="STS-B")
    equal = ["backbone", "table", "sentences", "pooling", "seed"]  # a difference is one under equal conditions
    scores = rows.pivot_table("value", equal, "settings")
    lines = []
    for name, value in settings.items():
        if value != reference[name]:
            labels = [ABLATIONS.get(name, "").format(one) for one in (value, reference[name])]
            effect = np.nan
            if all(label in scores for label in labels):
                effect = (scores[labels[0]] - scores[labels[1]]).groupby("backbone").mean().mean()
            lines.append((name, str(value), str(reference[name]), effect))
    frame = pd.DataFrame(lines, columns=["setting", "yours", "reference", "effect"])
    return frame.sort_values("effect", key=lambda one: -one.abs(), kind="stable", na_position="last")


def named(pairs: Sequence[str], what: str) -> dict[str, Any]:
    """["STS12: 68.4", "learning_rate=3e-5"] -> {"STS12": 68.4, "learning_rate": 3e-05}; numbers are numbers.

    Raises:
        ConfigError: a text that is not name: value; `what` names the parameter.
    """
    parts = [re.split("[:=]", pair, maxsplit=1) for pair in pairs]
    if wrong := [pair for pair, part in zip(pairs, parts, strict=True) if len(part) < 2 or not part[1].strip()]:
        raise ConfigError(f"{what} has {wrong[0]!r}: write each as name: value.")
    return {name.strip(): _value(text.strip()) for name, text in parts}


def _value(text: str) -> Any:
    """As YAML reads it, but that 3e-5 is a number too."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def claim(text: str) -> dict[str, float]:
    """What is claimed, column -> score: of a published row ("simcse, Table 5, SimCSE-BERT-base"), of a number (the average), or
    nothing of an empty text.

    Raises:
        ConfigError: neither a number nor a known paper, table and method; the known ones are listed.
    """
    if not text or isinstance(_value(text), int | float):
        return {AVERAGE: float(text)} if text else {}
    known: Sequence[str] = papers.sheets()
    paper, _, rest = text.partition(", ")
    if paper in known:
        known = [one["id"] for one in papers.load(paper)["tables"]]
        name = next((one for one in sorted(known, key=len, reverse=True) if rest.startswith(f"{one}, ")), "")
        if name:
            table = papers.table(paper, name).dropna(subset="value")
            known = list(dict.fromkeys(table.method))
            found = table[table.method == rest.removeprefix(f"{name}, ")].drop_duplicates("column")
            if len(found):
                return {column: float(value) for column, value in zip(found.column, found.value, strict=True)}
    raise ConfigError(
        f"claimed {text!r} is no number and no published row (paper, table, method). Known there: {', '.join(known)}."
    )
