"""The papers' claims (lib/assets/papers/claims.yaml), the measured rows that test each, and the verdicts on them, which are
computed by lib.results (`gains`, `interval`, `verdict`) and never typed.

A claim says that `method` minus `over` has a sign. There is a difference for each seed and task; a seed counts where both
sides have all tasks. Of an ordering the gain is the smallest of the differences between neighbours. With one seed a claim
neither holds nor is contradicted. The size of a gain decides nothing: it stands beside the published one.
"""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import yaml
from pydantic import BaseModel, BeforeValidator, TypeAdapter

from lib import results
from lib.analysis import papers

LABELS = ("id", "paper", "claim", "where", "published", "size")
COLUMNS = [*LABELS, "part", "backbone", "mean", "gain", "low", "high", "seeds", "tasks", "verdict"]
Side = Annotated[dict[str, Any], BeforeValidator(lambda side: side if isinstance(side, dict) else {"method": side})]


class Comparison(BaseModel, extra="forbid"):
    """What tests a claim; the head of the register says what stands where."""

    rows: dict[str, Any]
    sign: Literal["+", "-"]
    method: Side = {}
    over: Side = {}
    less: dict[Literal["method", "over"], Side] = {}
    order: list[Side] = []
    shape: Literal["scores", "curves"] = "scores"
    apart: list[str] = []
    total: str = ""


class Claim(BaseModel, extra="forbid"):
    """One entry of the register."""

    id: str
    paper: str
    claim: str
    where: str
    published: str
    size: float = float("nan")
    main: str | None = None
    needs: str = ""
    test: Comparison | None = None


@cache
def load() -> list[Claim]:
    """The register. Raises pydantic's ValidationError, which names the entry, for what no entry has or may be."""
    return TypeAdapter(list[Claim]).validate_python(yaml.safe_load(papers.CLAIMS.read_text(encoding="utf8"))["claims"])


def judged(claim: Claim, profile: str | None = None, untuned: pd.DataFrame | None = None) -> pd.DataFrame:
    """The comparison that tests a claim: a row for every part that is kept apart, and encoder: part, backbone, mean (of the
    method), gain, low, high, seeds, tasks, verdict (of the part); one row "not measured" where there is nothing. untuned: the
    rows that floors come from, where many claims are judged."""
    frames, test = [], claim.test
    for part, rows in _parts(claim, profile) if test else ():
        compared = {backbone: _compared(test, group) for backbone, group in rows.groupby("backbone")}
        if found := [{"backbone": backbone} | one for backbone, one in compared.items() if one]:
            is_sts = test.rows.get("metric") == "spearman" and test.rows.get("split") == "test"
            floors = results.floors(untuned, task=test.rows["task"]) if is_sts else None
            sign, is_score = 1 if test.sign == "+" else -1, test.shape == "scores"
            frame = pd.DataFrame(found)
            word = results.verdict(frame, sign=sign, floors=floors, points=is_score)
            frames.append(frame.assign(part=part, verdict=word))
    return pd.concat(frames or [pd.DataFrame([{"part": "", "verdict": results.NOT_MEASURED}])], ignore_index=True)


def _parts(claim: Claim, profile: str | None) -> Iterator[tuple[str, pd.DataFrame]]:
    """The name of each part, and its rows."""
    test = claim.test
    ends = [name for name in test.rows if name in ("step", "layer")]
    filters = {"paper": claim.paper} | {name: value for name, value in test.rows.items() if name not in ends}
    if "protocol" in filters:
        filters["protocol"] = lambda column: column.str.fullmatch(test.rows["protocol"])
    found = results.comparable(results.rows(profile, shape=test.shape, **filters))
    for name in ends:
        same = ["backbone", "method", *test.apart, "sentences", "settings", "metric", "group", "seed"]
        found = found[found[name] == found.groupby(list(dict.fromkeys(same)), dropna=False)[name].transform("max")]
    if not test.apart:
        yield "", found
        return
    spelt = {"sentences": "{:,} sentences", "pooling": "pooling {}"}
    for values, rows in found[found.method != "untuned"].groupby(test.apart):
        texts = [spelt.get(name, "{}").format(value) for name, value in zip(test.apart, values, strict=True)]
        yield ", ".join(texts), rows


def _compared(test: Comparison, rows: pd.DataFrame) -> dict[str, Any]:
    """What `results.compare` would say of a claim on one encoder; empty where a side is missing."""

    def of(side: Side) -> pd.DataFrame:
        given = {} if "settings" in (*side, *test.apart) else {"settings": "given"}
        values = {name: value if isinstance(value, list) else [value] for name, value in (given | side).items()}
        found = rows[np.logical_and.reduce([rows[name].isin(wanted) for name, wanted in values.items()])]
        if not test.total:
            return found
        keys = [name for name in found if name not in ("value", test.total)]
        return found.groupby(keys, as_index=False, dropna=False).value.sum()

    def difference(method: Side, over: Side) -> pd.DataFrame:
        a, b = of(method), of(over)
        b = b[b.device.isin([*a.device, ""])]  # rows of two devices are no comparison
        if not len(a) or not len(b):
            return pd.DataFrame()
        size = ["sentences"] if "settings" in method else []
        return results.gains(a, b, free=[*method, *over, "step", "settings", *size])

    sides = test.order or [test.method, test.over]
    steps = [difference(*pair) for pair in pairwise(sides)]
    if test.less:
        steps = [steps[0].sub(difference(**test.less)).dropna()]
    if not all(step.size for step in steps):
        return {}
    sign, first, signed = 1 if test.sign == "+" else -1, steps[0], []
    for each in (sign * step.mean(axis=1) for step in steps):
        signed.append((each.mean(), *results.interval(each)))
    gain, low, high = (float(np.min(values)) for values in zip(*signed, strict=True))
    low, high = (low, high) if sign > 0 else (-high, -low)
    number = f"{(first.mean() > 0).sum()} of {first.shape[1]}" if first.shape[1] > 1 else ""
    own = of(sides[0])
    mean = own[own.seed.isin(first.index)].value.mean()
    return {"mean": mean, "gain": sign * gain, "low": low, "high": high, "seeds": len(first), "tasks": number}


def verdicts(profile: str | None = None, paper: str = "") -> pd.DataFrame:
    """The verdict on every claim of the register, or on those of a paper: COLUMNS, a row for every claim, part and encoder;
    gain, low, high, seeds and tasks are missing where nothing was measured."""
    chosen = [claim for claim in load() if paper in ("", claim.paper)]
    untuned = results.rows(method="untuned")
    frames = [
        judged(claim, profile, untuned).assign(**{name: getattr(claim, name) for name in LABELS}) for claim in chosen
    ]
    return pd.concat(frames or [pd.DataFrame(columns=COLUMNS)], ignore_index=True).reindex(columns=COLUMNS)


def table(paper: str = "", profile: str | None = None, *, least: int = 1, main: bool = False) -> pd.DataFrame:
    """`verdicts` as a table to read: a row for every claim and part (main: for those alone that the register names so), a
    column for every encoder of `least` claims. Index paper (where several are shown), claim; published, the encoders ("+1.31
    [0.69, 1.93], 5 seeds"), verdict."""
    found = verdicts(profile, paper)
    if main:
        chosen = found.id.map({claim.id: claim.main for claim in load()})
        found = found[(found.part == chosen) | (chosen.notna() & (found.verdict == results.NOT_MEASURED))]
    often = found.dropna(subset="gain").groupby("backbone").id.nunique()
    shown = [name for name in dict.fromkeys((*results.ENCODERS, *often.index)) if often.get(name, 0) >= least]
    lines = []
    for (_, part), rows in found.groupby(["id", "part"], sort=False):
        first, cells = rows.iloc[0], {row.backbone: cell(row) for row in rows.itertuples()}
        line = {"paper": first.paper, "claim": f"{first.claim} ({part})" if part else first.claim}
        line["published"] = f"{first['where']}: {first.published}"
        lines.append(line | {name: cells.get(name, "") for name in shown} | {"verdict": first.verdict})
    columns = ["paper", "claim", "published", *shown, "verdict"]
    frame = pd.DataFrame(lines, columns=columns).set_index(["paper", "claim"])
    return frame.droplevel("paper") if paper else frame


def cell(row: Any) -> str:
    """A gain as text: "+1.31 [0.69, 1.93], 5 seeds"."""
    if np.isnan(row.gain):
        return ""
    digits = 2 if abs(row.mean) >= 1 else 4  # of what is no score x 100
    spread = f" [{row.low:.{digits}f}, {row.high:.{digits}f}]" if np.isfinite(row.low) else ""
    return f"{row.gain:+.{digits}f}{spread}, {row.seeds:.0f} seed{'s' * (row.seeds > 1)}"


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """How many claims of each paper have each verdict; one that is judged in parts counts for each of its verdicts."""
    each = found.drop_duplicates(["id", "verdict"])
    return pd.crosstab(each.paper, each.verdict).reindex(columns=results.VERDICTS, fill_value=0)
