"""The papers' claims (lib/assets/papers/claims.yaml), the published rows that test each, and the verdicts on them, which are
computed and never typed.

A claim says that `method` minus `over` has a sign. Both sides are measured with the same seeds on the same tasks (a side
without seeds, such as an untuned encoder, stands against every seed), so there is a difference for each seed and task; a
seed counts where both sides have all tasks. The gain is their mean, in the order "method minus over", and its interval
that of `interval`. Of an ordering the gain is the smallest of the differences between neighbours.

| verdict | |
|---|---|
| not run | no seed has both sides, or no published row can test the claim |
| holds | at least two seeds, and the interval lies on the claimed side of 0 |
| contradicted | at least two seeds, and the interval lies on the other side |
| same sign, inside the spread | neither, and the gain has the claimed sign |
| not seen | neither, and the gain is 0 or has the other sign |

An ordering holds where each of its steps holds, and is contradicted where one of them is. With one seed a claim neither
holds nor is contradicted. The size of a gain decides nothing: it stands beside the published one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from lib import paths
from lib.analysis import papers
from lib.checks import DataError, check_choice, check_known

NOT_RUN, HOLDS, INSIDE, NOT_SEEN, CONTRADICTED = VERDICTS = (
    "not run",
    "holds",
    "same sign, inside the spread",
    "not seen",
    "contradicted",
)
LABELS = ("id", "paper", "claim", "where", "published", "size")
COLUMNS = [*LABELS, "profile", "backbone", "part", "verdict", "gain", "low", "high", "seeds", "tasks"]
TEST = ("file", "rows", "method", "over", "less", "order", "sign", "apart", "total")
DRAWS = 10_000
PATTERNS = ("table", "protocol")  # columns whose filters may be regular expressions
NAMES = ("method", "encoder")  # columns with names, each of which has to be known


@dataclass(frozen=True)
class Claim:
    """One entry of the register; the head of the file says what stands where.

    sides: pairs of filters, `method` and `over`, whose differences test the claim: one, or one a step of an ordering.
    less: a pair whose difference is taken away from the first one's.
    """

    id: str
    paper: str
    claim: str
    where: str
    published: str
    size: float = float("nan")
    needs: str = ""
    file: str = ""
    sides: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = ()
    less: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    sign: int = 1
    apart: str = ""
    total: str = ""
    columns: frozenset[str] = field(default=frozenset())  # that its filters read

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Claim:
        """Raises ConfigError or DataError, naming the claim."""
        named = f"claim {entry.get('id', '?')}"
        given = dict(entry)
        test = dict(given.pop("test", {}))
        check_known(given, [*LABELS, "needs"], f"entry of {named}")
        if missing := set(LABELS) - {"size"} - set(given):
            raise DataError(f"{named} has no `{min(missing)}`: give it.")
        if bool(test) == bool(given.get("needs")):
            raise DataError(f"{named} has either a test, or `needs` that says why not: give one of them.")
        if not test:
            return cls(**given)
        check_known(test, TEST, f"part of {named}")
        check_choice(f"{named}: sign", test.get("sign"), ("+", "-"))
        common = test.get("rows", {})

        def side(value: Any) -> Mapping[str, Any]:
            return common | (value if isinstance(value, Mapping) else {"method": value})

        def pair(of: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
            if missing := {"method", "over"} - set(of):
                raise DataError(f"{named} compares two sides: give `{min(missing)}` too, or an `order`.")
            return side(of["method"]), side(of["over"])

        order = test.get("order")
        sides = tuple((side(a), side(b)) for a, b in zip(order, order[1:], strict=False)) if order else (pair(test),)
        less = pair(test["less"]) if "less" in test else None
        parts = {name: test[name] for name in ("file", "apart", "total") if name in test}
        read = {column for both in (*sides, *filter(None, [less])) for one in both for column in one}
        read |= {parts[name] for name in ("apart", "total") if name in parts}
        sign = 1 if test["sign"] == "+" else -1
        return cls(**given, **parts, sides=sides, less=less, sign=sign, columns=frozenset(read))


@cache
def load(path: Path = papers.CLAIMS) -> tuple[Claim, ...]:
    """The register, checked against all published rows.

    Raises:
        ConfigError, DataError: an id twice, a paper, file or column that does not exist, or a name that no row of any
            profile has and that is not announced.
    """
    sheet = yaml.safe_load(path.read_text(encoding="utf8"))
    claims = tuple(map(Claim.read, sheet["claims"]))
    if twice := sorted({claim.id for claim in claims if sum(claim.id == other.id for other in claims) > 1}):
        raise DataError(f"{path.name}: two claims are called {twice[0]}: rename one.")
    folders = [folder for folder in (paths.root() / "results").iterdir() if folder.is_dir()]
    files = {file.stem for folder in folders for file in folder.glob("*.csv")}
    for claim in claims:
        check_choice(f"claim {claim.id}: paper", claim.paper, papers.sheets())
        if not claim.sides:
            continue
        check_known([claim.file], files, f"file of claim {claim.id}")
        rows = pd.concat([published(folder.name, claim.file) for folder in folders])
        check_known(claim.columns, rows.columns, f"column of claim {claim.id}")
        for name in set(NAMES) & claim.columns:
            known = {*rows[name], *sheet.get("announced", {}).get(claim.file, [])}
            both = (*claim.sides, *filter(None, [claim.less]))
            for value in (side.get(name, []) for pair in both for side in pair):
                check_known([value] if isinstance(value, str) else value, known, f"{name} of claim {claim.id}")
    return claims


@cache
def published(profile: str, file: str) -> pd.DataFrame:
    """The rows of results/<profile>/<file>.csv, those of a wider choice in a table of their own (`papers.by_choice`); an
    empty frame where there is no such file."""
    path = paths.root() / "results" / profile / f"{file}.csv"
    if not path.is_file():
        return pd.DataFrame()
    rows = pd.read_csv(path, keep_default_na=False, dtype={"seed": str})
    return papers.by_choice(rows) if {"method", "table"} <= set(rows) else rows


def interval(gains: np.ndarray, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean of paired differences [seeds, tasks], by a bootstrap over seeds and tasks.

    Each draw takes seeds and tasks anew, with replacement, every combination of a drawn seed and a drawn task counts, and
    the interval holds the middle 95 % of the draws' means. A bootstrap of few values is too narrow, so that what seeds
    add to a draw, and what tasks add, are each stretched by sqrt(n / (n - 1)) and by the ratio of Student's quantile to
    the normal one: with one task the interval is about as wide as Student's for that many seeds.

    Returns:
        NaN twice for one seed.
    """
    mean, (seeds, tasks) = gains.mean(), gains.shape
    if seeds < 2:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    of_seed, of_task = gains.mean(1) - mean, gains.mean(0) - mean
    rest = gains - mean - of_seed[:, None] - of_task
    i, j = random.integers(seeds, size=(draws, seeds)), random.integers(tasks, size=(draws, tasks))
    means = mean + _stretch(seeds) * of_seed[i].mean(1) + _stretch(tasks) * of_task[j].mean(1)
    low, high = np.percentile(means + rest[i[:, :, None], j[:, None, :]].mean((1, 2)), [2.5, 97.5])
    return float(low), float(high)


def _stretch(n: int) -> float:
    return 1.0 if n < 2 else float(stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975) * np.sqrt(n / (n - 1)))


def judge(gains: Sequence[np.ndarray], sign: int) -> dict[str, Any]:
    """The verdict on differences [seeds, tasks]: of one comparison, or of each step of an ordering.

    Returns:
        verdict, gain, low, high, seeds, tasks; of the smallest step.
    """
    steps = [(g.mean(), *interval(g), *g.shape) for g in gains]
    signed = [(sign * mean, *sorted((sign * low, sign * high))) for mean, low, high, *_ in steps]
    if all(low > 0 for _, low, _ in signed):
        verdict = HOLDS
    elif any(high < 0 for _, _, high in signed):
        verdict = CONTRADICTED
    else:
        verdict = INSIDE if all(mean > 0 for mean, *_ in signed) else NOT_SEEN
    smallest = steps[int(np.argmin([mean for mean, *_ in signed]))]
    return {"verdict": verdict} | dict(zip(("gain", "low", "high", "seeds", "tasks"), smallest, strict=True))


def verdict(claim: Claim, rows: pd.DataFrame) -> pd.DataFrame:
    """The verdict on a claim for every backbone, and for every `part` of a column that it keeps apart.

    Args:
        rows: of its file, as `published` gives them.

    Returns:
        backbone, part and what `judge` gives; one row "not run" where there is nothing.

    Raises:
        DataError: a side has two values for one seed and task, so that its filters would mix measurements.
    """
    judged = []
    for (backbone, part), group in _parts(claim, rows):
        gains = [_difference(claim, group, *pair) for pair in claim.sides]
        if claim.less:
            gains = [_complete(gains[0].sub(_difference(claim, group, *claim.less)))]
        if all(gain.size for gain in gains):
            labels = {"backbone": backbone, "part": part}
            judged.append(labels | judge([gain.to_numpy(float) for gain in gains], claim.sign))
    return pd.DataFrame(judged or [{"backbone": "", "part": "", "verdict": NOT_RUN}])


def _parts(claim: Claim, rows: pd.DataFrame) -> Iterable[tuple[tuple[str, str], pd.DataFrame]]:
    """(backbone, value of the column that is kept apart) and their rows."""
    if not claim.sides or not len(rows):
        return []
    if claim.apart:
        wanted = claim.sides[0][0].get(claim.apart)
        rows = rows[_matches(rows, {claim.apart: wanted})] if wanted else rows
    return rows.assign(part=rows[claim.apart] if claim.apart else "").groupby(["backbone", "part"])


def _matches(rows: pd.DataFrame, filters: Mapping[str, Any]) -> pd.Series:
    """Which rows a side's filters keep; `first` and `last` are for `_values`."""
    kept = pd.Series(True, index=rows.index)
    for name, wanted in filters.items():
        if name in ("step", "layer") and wanted in ("first", "last"):
            continue
        values = rows[name].astype(str)
        here = values.isin([str(one) for one in (wanted if isinstance(wanted, list) else [wanted])])
        if name in PATTERNS and isinstance(wanted, str):
            here |= values.str.fullmatch(wanted)
        kept &= here
    return kept


def _values(claim: Claim, rows: pd.DataFrame, filters: Mapping[str, Any]) -> pd.DataFrame:
    """One side: seeds in rows, tasks in columns."""
    rows = rows[_matches(rows, filters)]
    for name in {"step", "layer"} & set(filters):
        if filters[name] in ("first", "last"):
            end = rows.groupby("seed")[name].transform("max" if filters[name] == "last" else "min")
            rows = rows[rows[name] == end]
    rows = rows.assign(unit=rows.task if "task" in rows else "")  # a file without tasks has one value a seed
    if claim.total:
        rows = rows.groupby(["seed", "unit"], as_index=False).value.sum()
    if len(again := rows[rows.duplicated(["seed", "unit"])]):
        raise DataError(
            f"claim {claim.id}: {filters} has two values for seed {again.seed.iloc[0] or 'none'} "
            f"{again.unit.iloc[0]}: filter further, rows of different settings are never averaged."
        )
    return rows.pivot(index="seed", columns="unit", values="value").astype(float)


def _difference(claim: Claim, rows: pd.DataFrame, method: Mapping[str, Any], over: Mapping[str, Any]) -> pd.DataFrame:
    """`method` minus `over`, seeds in rows, tasks in columns; only seeds for which all is there."""
    a, b = _values(claim, rows, method), _values(claim, rows, over)
    if list(a.index) != [""] and list(b.index) == [""]:
        b = b.loc[[""] * len(a)].set_axis(a.index)
    return _complete(a.sub(b))


def _complete(gains: pd.DataFrame) -> pd.DataFrame:
    return gains.dropna(axis=1, how="all").dropna().sort_index().sort_index(axis=1)


def verdicts(profile: str) -> pd.DataFrame:
    """The verdict on every claim of the register, from the published rows of a profile.

    Returns:
        COLUMNS: a row for every claim, backbone and part; gain, low, high, seeds and tasks are missing where the verdict
        is "not run".
    """
    frames = []
    for claim in load():
        labels = {name: getattr(claim, name) for name in LABELS}
        frames.append(verdict(claim, published(profile, claim.file)).assign(**labels, profile=profile))
    return pd.concat(frames, ignore_index=True).reindex(columns=COLUMNS)


def overview(judged: pd.DataFrame, *, least: int = 3) -> pd.DataFrame:
    """`verdicts` as a table to read: a row for every claim, a column for every backbone with verdicts on `least` claims.

    A cell says the verdict, the gain with its interval, and the number of seeds, of each part by itself.
    """
    needs = {claim.id: claim.needs for claim in load()}

    def cell(row: Any) -> str:
        if row.verdict == NOT_RUN:
            return NOT_RUN
        spread = f" [{row.low:.2f}, {row.high:.2f}]" if np.isfinite(row.low) else ""
        several = f"{row.seeds:.0f} seed{'s' * (row.seeds > 1)}"
        part = f" ({re.sub('^.*, ', '', row.part)})" if row.part else ""
        return f"{row.verdict}: {row.gain:+.2f}{spread}, {several}{part}"

    texts = judged.assign(text=[cell(row) for row in judged.itertuples()])
    keys = ["paper", "claim", "where", "published"]
    often = texts[texts.backbone != ""].groupby("backbone").id.nunique()
    ran = texts[texts.backbone.isin(often.index[often >= least])]
    wide = ran.groupby([*keys, "backbone"], sort=False).text.agg("; ".join).unstack("backbone")
    order = texts.drop_duplicates("id").set_index(keys)
    wide = wide.reindex(order.index).fillna(NOT_RUN)
    wide["needs"] = order.id.map(needs)
    return wide.reset_index()


def counts(judged: pd.DataFrame) -> pd.DataFrame:
    """How many claims have each verdict, by backbone; one that is judged in parts counts for each of its verdicts."""
    ran = judged[judged.verdict != NOT_RUN].drop_duplicates(["id", "backbone", "verdict"])
    return pd.crosstab(ran.backbone, ran.verdict).reindex(columns=VERDICTS[1:], fill_value=0)
