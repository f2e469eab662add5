"""Numbers that are written by hand: a mean with its deviation is one that the rows of results/small/ or a paper's sheet give."""

import re
from pathlib import Path

import nbformat

from lib import results
from lib.analysis import papers
from lib.data.sts import STS_TASKS

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(\d+\.\d+) ?(?:±|\+-) ?(\d+\.\d+)")
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("params/*/*.yaml"))]


def spelt(mean, deviation):
    return {(f"{mean:.{digits}f}", f"{deviation:.{digits}f}") for digits in (1, 2)}


def measured():
    """Mean and deviation over all seeds, and over the first three, of everything that profile small published: values, averages
    over tasks, and shares as percentages."""
    found = set()
    scores = results.rows("small")
    averaged = results.averages(scores[scores.task.isin(STS_TASKS)])
    curves = results.rows("small", shape="curves")
    for rows, units in ((scores, (1, 100)), (averaged, (1,)), (curves, (1, 100))):
        rows = rows[rows.seed != ""].sort_values("seed")
        names = [name for name in rows if name not in ("value", "seed", "run_id")]
        for seeds in (rows, rows.groupby(names, dropna=False).head(3)):
            each = seeds.groupby(names, dropna=False).value.agg(["mean", "std"]).dropna()
            for unit in units:
                found |= set().union(*map(spelt, unit * each["mean"], unit * each["std"]))
    return found


def printed():
    """The means and deviations of the papers and of replications."""
    found = set()
    for paper in papers.sheets():
        for name in (table["id"] for table in papers.load(paper)["tables"]):
            cells = papers.table(paper, name)
            for cell in cells.dropna(subset="std").itertuples():
                found |= spelt(cell.value, cell.std)
            rows = cells.pivot_table(index="method", columns="column", values="value", aggfunc="first")
            for method in rows.index[rows.index.str.endswith(" mean")]:
                deviations = method.removesuffix("mean") + "std"
                if deviations in rows.index:
                    found |= set().union(*map(spelt, rows.loc[method], rows.loc[deviations]))
    return found


def prose(path):
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf8")
    return "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")


def test_every_mean_with_a_deviation_comes_from_rows():
    known = measured() | printed()
    wrong = {path.name: numbers for path in DOCUMENTS if (numbers := set(NUMBER.findall(prose(path))) - known)}
    assert not wrong, "these are in no rows: measure them, or take over what the rows say"
