"""COVERAGE.md: every table and figure of every paper and where it is, from the lists that the notebooks end with."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from lib import paths

HEADING = "## Every table and figure of the paper, and where it is\n"
HEAD = """# Every table and figure, and where it is

Made from the lists at the end of the notebooks by `make coverage`; change it there. *demo*: it runs and shows the mechanism. *small*: measured on real data with a small encoder, rows in
`results/small/`. Nothing here was run at the size of the papers.
"""


def text() -> str:
    """The page, with a section for each notebook that has such a list.

    Raises:
        ValueError: a list without a table.
    """
    sections = [HEAD]
    for path in sorted((paths.root() / "notebooks").glob("*.ipynb")):
        cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
        parts = [source.split(HEADING)[1] for source in cells if HEADING in source]
        if not parts:
            continue
        table = [line for line in parts[0].splitlines() if line.startswith("|")]
        if len(table) < 3:
            raise ValueError(f"{path.name}: no table below {HEADING.strip()!r}.")
        title = next(source for source in cells if source.startswith("# ")).splitlines()[0].removeprefix("# ")
        rows = re.sub(r"\]\((\w+\.ipynb)", r"](notebooks/\1", "\n".join(table))  # links start at the repository here
        sections.append(f"## [{path.stem}](notebooks/{path.name}): {title}\n\n{rows}\n")
    return "\n".join(sections)


def write() -> Path:
    """Write the page to the repository."""
    path = paths.root() / "COVERAGE.md"
    path.write_text(text(), encoding="utf8")
    return path


if __name__ == "__main__":
    print(write())
