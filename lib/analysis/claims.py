"""The papers' claims (lib/assets/papers/claims.yaml), the measured rows that test each, and the verdicts on them, which are
computed by lib.results (`gains`, `interval`, `verdict`) and never typed.

A claim says that `method` minus `over` has a sign. There is a difference for each seed and task; a seed counts where both
sides have all tasks. Of an ordering the gain is the smallest of the differences between neighbours. With one seed a claim
neither holds nor is contradicted. The size of a gain decides nothing: it stands beside the published one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import yaml

from lib import results
from lib.analysis import papers
from lib.checks import check_choice, check_known

LABELS = ("id", "paper", "claim", "where", "published", "size")
COLUMNS = [*LABELS, "part", "backbone", "mean", "gain", "low", "high", "seeds", "tasks", "verdict"]
TEST = ("shape", "rows", "method", "over", "less", "order", "sign", "apart", "total")
Side = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One entry of the register; the head of the file says what stands where.

    steps: pairs of sides whose differences test the claim: one, or one a step of an ordering. less: a pair whose difference
    is taken away from the first one's.
    """

    id: str
    paper: str
    claim: str
    where: str
    published: str
    size: float = float("nan")
    needs: str = ""
    shape: str = "scores"
    filters: Side = field(default_factory=dict)
    steps: tuple[tuple[Side, Side], ...] = ()
    less: tuple[Side, Side] | None = None
    sign: int = 1
    apart: tuple[str, ...] = ()
    total: str = ""

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Claim:
        """Raises ConfigError, naming the claim, for a name or a column that does not exist."""
        named, labels, test = f"claim {entry['id']}", dict(entry), dict(entry.get("test", {}))
        labels.pop("test", None)
        check_known(labels, [*LABELS, "needs"], f"entry of {named}")
        check_known(test, TEST, f"part of {named}")
        if not test:
            return cls(**labels)
        check_choice(f"{named}: sign", test.get("sign"), ("+", "-"))
        sides = [_side(one) for one in test.get("order") or (test["method"], test["over"])]
        less = tuple(_side(test["less"][name]) for name in ("method", "over")) if "less" in test else None
        shape, apart = test.get("shape", "scores"), tuple(test.get("apart", ()))
        columns = {*test["rows"], *apart, *(name for side in (*sides, *(less or ())) for name in side)}
        check_known(columns, results.SHAPES[shape], f"column of {named}")
        filters, sign = test["rows"] | {"paper": entry["paper"]}, 1 if test["sign"] == "+" else -1
        parts = {"shape": shape, "filters": filters, "less": less, "sign": sign, "apart": apart}
        return cls(**labels, **parts, steps=tuple(pairwise(sides)), total=test.get("total", ""))


def _side(value: Any) -> Side:
    return value if isinstance(value, Mapping) else {"method": value}


@cache
def load() -> tuple[Claim, ...]:
    """The register. Raises ConfigError, see `Claim.read`."""
    return tuple(map(Claim.read, yaml.safe_load(papers.CLAIMS.read_text(encoding="utf8"))["claims"]))


def judged(claim: Claim, profile: str | None = None) -> pd.DataFrame:
    """The comparison that tests a claim: a row for every part that is kept apart, and encoder, with the part's verdict.

    Returns:
        part, backbone, mean (of the method), gain, low, high, seeds, tasks, verdict; one row "not measured" where there is
        nothing.
    """
    lines = []
    is_sts = claim.filters.get("metric") == "spearman" and claim.filters.get("split") == "test"
    floors = results.floors(task=claim.filters["task"]) if is_sts else None
    for part, groups in _parts(claim, profile):
        tested = [{"backbone": backbone} | found for backbone, group in groups if (found := _tested(claim, group))]
        if tested:
            frame = pd.DataFrame(tested)
            word = results.verdict(frame, sign=claim.sign, floors=floors, points=claim.shape == "scores")
            lines.append(frame.assign(part=part, verdict=word))
    return (
        pd.concat(lines, ignore_index=True) if lines else pd.DataFrame([{"part": "", "verdict": results.NOT_MEASURED}])
    )


def _parts(claim: Claim, profile: str | None) -> Iterator[tuple[str, Any]]:
    """The name of each part, and its rows by encoder."""
    if not claim.steps:
        return
    ends = [name for name in claim.filters if name in ("step", "layer")]
    filters = {name: value for name, value in claim.filters.items() if name not in ends}
    if "protocol" in filters:
        filters["protocol"] = lambda column: column.str.fullmatch(claim.filters["protocol"])
    found = results.rows(profile, shape=claim.shape, **filters)
    for name in ends:
        same = ["backbone", "method", *claim.apart, "sentences", "settings", "metric", "group", "seed"]
        found = found[found[name] == found.groupby(list(dict.fromkeys(same)), dropna=False)[name].transform("max")]
    if not claim.apart:
        yield "", found.groupby("backbone")
        return
    for values, rows in found[found.method != "untuned"].groupby(list(claim.apart)):
        named = {"sentences": "{:,} sentences", "pooling": "pooling {}"}
        texts = [named.get(name, "{}").format(value) for name, value in zip(claim.apart, values, strict=True)]
        yield ", ".join(texts), rows.groupby("backbone")


def _tested(claim: Claim, rows: pd.DataFrame) -> dict[str, Any]:
    """What `results.compare` would say of a claim on one encoder; empty where a side is missing."""
    steps = [_difference(claim, rows, *pair) for pair in claim.steps]
    if claim.less:
        steps = [steps[0].sub(_difference(claim, rows, *claim.less)).dropna()]
    if not all(step.size for step in steps):
        return {}
    signed = []
    for step in steps:
        each = claim.sign * step.mean(axis=1)
        signed.append((each.mean(), *results.interval(each)))
    gain, low, high = (float(np.min(values)) for values in zip(*signed, strict=True))
    low, high = (low, high) if claim.sign > 0 else (-high, -low)
    first = steps[0]
    number = f"{(first.mean() > 0).sum()} of {first.shape[1]}" if first.shape[1] > 1 else ""
    mean = _rows_of(claim, rows, claim.steps[0][0]).value.mean()
    return {"mean": mean, "gain": claim.sign * gain, "low": low, "high": high, "seeds": len(first), "tasks": number}


def _rows_of(claim: Claim, rows: pd.DataFrame, side: Side) -> pd.DataFrame:
    if "settings" not in (*side, *claim.apart):
        side = {"settings": "given"} | side
    for name, value in side.items():
        rows = rows[rows[name].isin(value if isinstance(value, list) else [value])]
    if claim.total:
        keys = [name for name in rows if name not in ("value", claim.total)]
        rows = rows.groupby(keys, as_index=False, dropna=False).value.sum()
    return rows


def _difference(claim: Claim, rows: pd.DataFrame, method: Side, over: Side) -> pd.DataFrame:
    a, b = _rows_of(claim, rows, method), _rows_of(claim, rows, over)
    b = b[b.device.isin([*a.device, ""])]  # rows of two devices are no comparison
    if not len(a) or not len(b):
        return pd.DataFrame()
    return results.gains(
        a, b, free=[*method, *over, "step", "settings", *(["sentences"] if "settings" in method else [])]
    )


def verdicts(profile: str | None = None, paper: str = "") -> pd.DataFrame:
    """The verdict on every claim of the register, or on those of a paper.

    Returns:
        COLUMNS: a row for every claim, part and encoder; gain, low, high, seeds and tasks are missing where nothing was
        measured.
    """
    chosen = [claim for claim in load() if paper in ("", claim.paper)]
    frames = [judged(claim, profile).assign(**{name: getattr(claim, name) for name in LABELS}) for claim in chosen]
    return pd.concat(frames, ignore_index=True).reindex(columns=COLUMNS)


def table(paper: str = "", profile: str | None = None, *, least: int = 1) -> pd.DataFrame:
    """`verdicts` as a table to read: a row for every claim and part, a column for every encoder of `least` claims.

    Returns:
        Index paper (where several are shown), claim; published, the encoders ("+1.31 [0.69, 1.93], 5 seeds"), verdict.
    """
    found = verdicts(profile, paper)
    often = found.dropna(subset="gain").groupby("backbone").id.nunique()
    shown = [name for name in dict.fromkeys((*results.ENCODERS, *often.index)) if often.get(name, 0) >= least]
    lines = []
    for (_, part), rows in found.groupby(["id", "part"], sort=False):
        first, cells = rows.iloc[0], {row.backbone: cell(row) for row in rows.itertuples()}
        line = {"paper": first.paper, "claim": f"{first.claim} ({part})" if part else first.claim}
        line["published"] = f"{first['where']}: {first.published}"
        lines.append(line | {name: cells.get(name, "") for name in shown} | {"verdict": first.verdict})
    frame = pd.DataFrame(lines).set_index(["paper", "claim"])
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
