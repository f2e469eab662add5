"""The papers' sheets (lib/assets/papers/*.yaml): published tables and their comparison with what was measured, and the
appendix of a paper's notebook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml
from IPython.display import Markdown
from scipy import stats

from lib import paths

FOLDER = paths.root() / "lib" / "assets" / "papers"
CLAIMS = FOLDER / "claims.yaml"  # of all papers, see lib.analysis.claims
WIDER_CHOICE = ", wider choice"


def sheets() -> list[str]:
    """The papers that have a sheet."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path != CLAIMS)


@cache
def load(paper: str) -> dict[str, Any]:
    """The whole sheet of a paper: its notebook, source, conventions, tables, figures, differences, slots.

    Raises:
        KeyError: no such sheet.
    """
    if paper not in sheets():
        raise KeyError(f"no tables of {paper!r}: there are {', '.join(sheets())}.")
    return yaml.safe_load((FOLDER / f"{paper}.yaml").read_text(encoding="utf8"))


def table(paper: str, name: str) -> pd.DataFrame:
    """One published table, tidy: paper, table, method, setting, column, value, std (missing cells are NaN).

    Raises:
        KeyError: no such table.
    """
    tables = {t["id"]: t for t in load(paper)["tables"]}
    if name not in tables:
        raise KeyError(f"{paper} has no {name!r}: there are {', '.join(tables)}.")
    rows = []
    for row in tables[name]["rows"]:
        setting = row.get("setting", row.get("backbone", ""))
        for column, cell in zip(tables[name]["columns"], row["values"], strict=True):
            value, std = (cell["mean"], cell["std"]) if isinstance(cell, dict) else (cell, np.nan)
            rows.append((paper, name, row["method"], setting, column, value, std))
    return pd.DataFrame(rows, columns=["paper", "table", "method", "setting", "column", "value", "std"])


def wide(paper: str, name: str, *, spread: bool = False) -> pd.DataFrame:
    """One published table as printed: a row per method (and setting), a column per column of the paper.

    With `spread` the cells are text, "mean ± deviation" where the paper prints a deviation.
    """
    frame = table(paper, name)
    if spread:
        cells = frame[["value", "std"]].to_numpy(float)
        frame = frame.assign(value=[f"{v:.2f}" + ("" if np.isnan(s) else f" ± {s:.2f}") for v, s in cells])
    index = ["setting", "method"] if frame.setting.any() else ["method"]
    return frame.groupby([*index, "column"], sort=False).value.first().unstack(sort=False)


def slots(paper: str) -> str:
    """Every table and figure of a paper and where it is, as a Markdown table."""
    return _markdown(["table or figure", "section", "measured in", "what to know"], load(paper)["slots"])


def coverage() -> pd.DataFrame:
    """How many slots (tables and figures) each paper has: all, shown by the demo, measured in profile small, neither."""
    lines = {}
    for paper in sheets():
        where = pd.Series([measured for _, _, measured, _ in load(paper)["slots"]])
        demo, small = where.str.contains("demo"), where.str.contains("small(?! declared)")
        lines[paper] = {"all": len(where), "demo": demo.sum(), "small": small.sum(), "neither": (~demo & ~small).sum()}
    return pd.DataFrame(lines).T


def appendix(paper: str) -> Markdown:
    """Where a paper and its authors' code differ and what is done here, and `slots`."""
    differences = _markdown(["topic", "paper", "authors' code", "here"], load(paper)["differences"])
    return Markdown(f"**Paper and code**\n\n{differences}\n\n**Every table and figure**\n\n{slots(paper)}")


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gains(frame: pd.DataFrame, *, over: str, value: str, paired: Sequence[str] = ("seed",)) -> pd.Series:
    """`value` of each row minus that of the method `over` in the row with the same `paired` columns.

    frame: columns method, `paired` and `value`. The result has its index, and NaN where `over` has no such row.
    """
    reference = frame[frame.method == over].set_index(list(paired))[value]
    keys = pd.MultiIndex.from_frame(frame[list(paired)]) if len(paired) > 1 else frame[paired[0]]
    return pd.Series(frame[value].to_numpy() - reference.reindex(keys).to_numpy(), index=frame.index, name="gain")


def by_choice(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of "X, wider choice", which dev chose among more settings, as rows of X in a table of their own."""
    wider = rows.method.astype(str).str.endswith(WIDER_CHOICE)
    table = rows.table.where(~wider, rows.table.astype(str) + WIDER_CHOICE)
    return rows.assign(method=rows.method.astype(str).str.removesuffix(WIDER_CHOICE), table=table)


def gain_table(frame: pd.DataFrame, *, over: str, value: str, by: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Mean and deviation of `value` over seeds, and the paired gain over a method: its mean with the 95 % interval
    (Student's t; NaN for one seed), its smallest and its largest.

    frame: columns method, seed, `value` and those of `by`. Gains pair rows with equal seed and equal other columns.
    """
    paired = [name for name in by if name != "method"] + ["seed"]
    gained = frame.assign(gain=gains(frame, over=over, value=value, paired=paired)).groupby(list(by), sort=False)
    gain, pairs = gained.gain.mean(), gained.gain.count()
    half = stats.t.ppf(0.975, pairs - 1) * gained.gain.std() / np.sqrt(pairs)
    columns = {"mean": gained[value].mean(), "std": gained[value].std(), "gain": gain}
    columns |= {"95 % low": gain - half, "95 % high": gain + half}
    columns |= {"smallest gain": gained.gain.min(), "largest gain": gained.gain.max(), "seeds": gained.size()}
    return pd.DataFrame(columns)
