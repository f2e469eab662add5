"""The papers' sheets list every table and figure, the sections they name exist, and COVERAGE.md, RESULTS.md and README.md
are what they, the published rows and the verdicts say."""

import re

import nbformat
import pytest

from lib import paths
from lib.analysis import claims, papers
from lib.batch import measured

SHEETS = papers.sheets()


def sections(notebook):
    """Heading -> whether a code cell stands below it, before the next one of its level."""
    found, heading = {}, ""
    for cell in nbformat.read(paths.root() / "notebooks" / f"{notebook}.ipynb", 4).cells:
        for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
            if line.startswith("## "):
                heading = line.removeprefix("## ")
                assert heading not in found, "a link needs headings of different names"
                found[heading] = False
        if cell.cell_type == "code" and heading:
            found[heading] = True
    return found


def identities(text):
    """Tables I, II (cost) -> {Table I, Table II}."""
    kinds = re.findall(r"(Table|Figure)s? ([\w.]+(?:, (?!Table|Figure)[\w.]+)*)", text.split(" (")[0])
    return {f"{kind} {number}" for kind, numbers in kinds for number in numbers.split(", ")}


def test_the_page_is_what_the_sheets_say():
    page = (paths.root() / "COVERAGE.md").read_text(encoding="utf8")
    assert page == measured.coverage(), "run `make coverage`"
    links = re.findall(r"\]\((?!http)([^)#]+)", page)
    assert len(links) >= 6 and all((paths.root() / link).exists() for link in links)


@pytest.mark.parametrize("paper", SHEETS)
def test_every_table_and_figure_has_a_slot_that_names_one_section_of_the_notebook(paper):
    sheet = papers.load(paper)
    listed = set().union(*(identities(slot[0]) for slot in sheet["slots"]))
    printed = [identities(entry["id"]) for entry in [*sheet["tables"], *sheet["figures"]]]
    assert set().union(*printed) <= listed
    there = sections(sheet["notebook"])
    wrong = [s[:2] for s in sheet["slots"] if s[1] and sum(h.startswith(s[1]) for h in there) != 1]
    assert not wrong
    assert all(measured or note for _, _, measured, note in sheet["slots"]), "a slot says how it was run, or why not"
    living = {s[1] for s in sheet["slots"] if re.match("demo|small(?! declared)", s[2])}
    silent = [head for head, has_code in there.items() if head.startswith((*living,)) and not has_code]
    assert not silent, "a section that shows nothing"
    cells = nbformat.read(paths.root() / "notebooks" / f"{sheet['notebook']}.ipynb", 4).cells
    assert sum(f'papers.appendix("{paper}")' in cell.source for cell in cells) == 1


def test_the_status_table_counts_the_verdicts_that_are_computed(verdicts):
    page = (paths.root() / "README.md").read_text(encoding="utf8")
    head, *rows = re.findall(r"^\| (?:claims with[^|]*|[^|]+(?= \| \d+ \| \d)) \| (.*) \|$", page, flags=re.M)
    counts = claims.counts(verdicts).loc[sorted(SHEETS, key=lambda paper: papers.load(paper)["notebook"])]
    assert head.split(" | ") == list(counts)
    assert [[*map(int, row.split(" | "))] for row in rows] == counts.to_numpy().tolist()


@pytest.mark.parametrize("paper", ["simcse", "msse"])  # all of them take twenty seconds
def test_the_committed_page_is_current_and_scores_of_two_protocols_stand_in_rows_of_their_own(
    paper, verdicts, monkeypatch
):
    monkeypatch.setattr(claims, "verdicts", lambda profile, paper: verdicts[verdicts.paper == paper])
    page = (paths.root() / "RESULTS.md").read_text(encoding="utf8")
    assert measured.section(paper) in page, "run `make results`"
    rows = [line for line in page.splitlines() if "| Figure 4 |" in line and "| v_measure |" in line]
    assert rows and all(("K-Means, k 20," in row) != ("K-Means, k 30," in row) for row in rows)
