"""COVERAGE.md: every table and figure of every paper and where it is, from the papers' sheets."""

from __future__ import annotations

import re

from lib import paths
from lib.analysis import papers

HEAD = """# Every table and figure, and where it is

Made from `slots` in `lib/assets/papers/` by `make coverage`; change it there. *demo*: it runs and shows the mechanism. *small*: measured on real data with a small encoder, rows in
`results/small/`. Nothing here was run at the size of the papers. The section is that of the paper's notebook; where it is empty, nothing there shows this table or figure.
"""


def text() -> str:
    """The page, with a section for each paper."""
    sections = [HEAD]
    sheets = {papers.load(paper)["notebook"]: paper for paper in papers.sheets()}
    for notebook, paper in sorted(sheets.items()):
        rows = re.sub(r"\]\((\w+\.ipynb)", r"](notebooks/\1", papers.slots(paper))  # links start at the repository here
        sections.append(f"## [{notebook}](notebooks/{notebook}.ipynb): {papers.load(paper)['paper']}\n\n{rows}\n")
    return "\n".join(sections)


if __name__ == "__main__":
    (paths.root() / "COVERAGE.md").write_text(text(), encoding="utf8")
