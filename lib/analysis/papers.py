"""The papers' sheets (lib/assets/papers/*.yaml): published tables, and the appendix of a paper's notebook."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml
from IPython.display import Markdown

from lib import paths

FOLDER = paths.root() / "lib" / "assets" / "papers"
CLAIMS = FOLDER / "claims.yaml"  # of all papers, see lib.analysis.claims


def sheets() -> list[str]:
    """The papers that have a sheet."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path != CLAIMS)


@cache
def load(paper: str) -> dict[str, Any]:
    """The whole sheet of a paper: its notebook, source, conventions, tables, figures, differences, slots."""
    return yaml.safe_load((FOLDER / f"{paper}.yaml").read_text(encoding="utf8"))


def table(paper: str, name: str) -> pd.DataFrame:
    """One published table, tidy: paper, table, method, setting, column, value, std (missing cells are NaN). Raises KeyError."""
    printed, lines = {one["id"]: one for one in load(paper)["tables"]}[name], []
    for row in printed["rows"]:
        about = {"paper": paper, "table": name, "method": row["method"]}
        about["setting"] = row.get("setting", row.get("backbone", ""))
        for column, cell in zip(printed["columns"], row["values"], strict=True):
            value, std = (cell["mean"], cell["std"]) if isinstance(cell, dict) else (cell, np.nan)
            lines.append(about | {"column": column, "value": value, "std": std})
    return pd.DataFrame(lines)


def wide(paper: str, name: str) -> pd.DataFrame:
    """One published table as printed: a row per method (and setting), a column per column of the paper."""
    frame = table(paper, name)
    index = ["setting", "method"] if frame.setting.any() else ["method"]
    return frame.groupby([*index, "column"], sort=False).value.first().unstack(sort=False)


def slots(paper: str) -> str:
    """Every table and figure of a paper and where it is, as a Markdown table."""
    return _markdown(["table or figure", "section", "measured in", "notes"], load(paper)["slots"])


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
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])
