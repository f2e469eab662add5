"""Two pages: RESULTS.md, every measured table with the conditions of its rows, from the published rows; COVERAGE.md, every
table and figure of every paper and where it is, from the papers' sheets."""

import re
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype

from lib import paths, results
from lib.analysis import claims, papers
from lib.runs import level

HEAD = """# What was measured

Made from `results/` by `make results`; nothing is written here by hand. Profile small: real data, small encoders; *mean ± deviation (seeds)*. Scores of STS are Spearman x 100 on the test
pairs, aggregation all, averaged over the seven tasks; below them, the gain over SimCSE of the same paper under the same conditions, with the same seeds, and its 95 % interval (Student's t over
seeds; those of the level field are wider, by Holm, and its columns are explained in notebooks/10_level_field.ipynb). *settings*: given, chosen (by dev scores), or what was changed. *whitening*: what BERT-whitening adds to the first seed. Floors, the best untrained reading of each encoder: FLOORS.
"""
COVERED = """# Every table and figure, and where it is

Made from `slots` in `lib/assets/papers/` by `make coverage`; change it there. *demo*: it runs and shows the mechanism. *small*: measured on real data with a small encoder, rows in
`results/small/`. Nothing here was run at the size of the papers. The section is that of the paper's notebook; where it is empty, nothing there shows this table or figure.
"""
PROFILE = "small"
KEYS = ["table", "sentences", "pooling", "settings", "method"]


def text() -> str:
    """RESULTS.md, with a section for each paper."""
    floors = results.floors().replace(results.NAMES)
    low = ", ".join(f"{row.backbone} {row.value:.2f} ({row.name})" for row in floors.itertuples(index=False))
    return "\n".join([HEAD.replace("FLOORS", low), field(), *(section(paper) for paper in papers.sheets())])


def field() -> str:
    """The level field: every method over SimCSE and over its controls, and what its trials chose."""
    table = level.read(level.TABLE)
    found = results.sts(results.rows(PROFILE, paper="level", table="level", settings="level"))
    read = results.sts(results.rows(PROFILE, paper="level", table="whitening"))
    parts = {
        "## The level field": level.published(PROFILE).assign(whitening=level.whitening(found, read)),
        "### Over controls": level.controls(found, table, level.works(table)),
        "### What dev chose": level.choices(results.rows(PROFILE, paper="level", table="trials")),
    }
    return "\n".join(f"{heading}\n\n{_markdown(_written(frame))}" for heading, frame in parts.items())


def _written(frame: pd.DataFrame) -> pd.DataFrame:
    """With its index as columns, and two decimals."""
    frame = frame.reset_index()
    floats = {
        name: frame[name].map("{:.2f}".format, na_action="ignore") for name in frame if is_float_dtype(frame[name])
    }
    return frame.assign(**floats)


def section(paper: str) -> str:
    """The verdicts on a paper's claims, its scores of STS, and all other scores."""
    found = results.rows(PROFILE, paper=paper)
    is_sts = results.sts(found).index
    others = found.drop(index=is_sts).query("aggregation not in ['mean', 'wmean']")
    others = others[(others.metric != "accuracy") | (others.split != "dev")]
    parts = {
        f"## {papers.load(paper)['paper']}": claims.table(paper, PROFILE).reset_index(),
        "### STS, average of seven tasks": _sts(found.loc[is_sts]),
        "### Everything else": _means(others, [*KEYS, "task", "split", "protocol", "metric"]),
    }
    return "\n".join(f"{heading}\n\n{_markdown(frame)}" for heading, frame in parts.items())


def _sts(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each table, number of sentences, settings and method, a column for each encoder."""
    gained: dict[Any, str] = {}
    for over in ({"method": "SimCSE"}, {"method": "SimCSE", "settings": "given"}):
        found = results.compare(rows, over, ["backbone", *KEYS]).dropna(subset="gain")
        for row in found.itertuples():
            gained.setdefault(row.Index, f"<br>{claims.cell(row).rpartition(', ')[0]}")
    return _means(results.averages(rows), KEYS, gained)


def _means(rows: pd.DataFrame, keys: list[str], below: dict[Any, str] | None = None) -> pd.DataFrame:
    cells = {}
    for key, part in rows.groupby(["backbone", *keys], sort=False, dropna=False):
        number, spread = part.value, f" ± {part.value.std():.2f}" if len(part) > 1 else ""
        cells[key] = f"{number.mean():.2f}{spread} ({len(part)})" + (below or {}).get(key, "")
    frame = pd.Series(cells, dtype=object).rename_axis(["backbone", *keys]).unstack("backbone", sort=False)
    frame = frame.sort_index(level=["table", "sentences"], sort_remaining=False).reset_index()
    return frame.assign(sentences=frame.sentences.map(lambda number: "" if pd.isna(number) else f"{number:,.0f}"))


def _markdown(frame: pd.DataFrame) -> str:
    """As a Markdown table, missing cells empty, encoders called as in the notebooks."""
    frame = frame.astype(object).where(frame.notna(), "").replace(results.NAMES).rename(columns=results.NAMES)
    rows = [frame.columns, ["---"] * frame.shape[1], *frame.itertuples(index=False)]
    cells = [[str(cell).replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def coverage() -> str:
    """COVERAGE.md, with a section for each paper."""
    sections = [COVERED]
    sheets = {papers.load(paper)["notebook"]: paper for paper in papers.sheets()}
    for notebook, paper in sorted(sheets.items()):
        rows = re.sub(r"\]\((\w+\.ipynb)", r"](notebooks/\1", papers.slots(paper))  # links start at the repository here
        sections.append(f"## [{notebook}](notebooks/{notebook}.ipynb): {papers.load(paper)['paper']}\n\n{rows}\n")
    return "\n".join(sections)


if __name__ == "__main__":
    (paths.root() / "RESULTS.md").write_text(text(), encoding="utf8")
    (paths.root() / "COVERAGE.md").write_text(coverage(), encoding="utf8")
