"""RESULTS.md: the committed page is what the published rows give."""

import pytest

from lib import paths, results
from lib.batch import measured


def test_a_section_says_what_the_rows_say():
    page = measured.section("jtcse")
    scores = results.sts(
        results.rows("small", paper="jtcse", table="Table I", backbone="mini-bert", method=["SimCSE", "NCE"])
    )
    table = results.compare(scores, "SimCSE")
    nce = table.loc["NCE"]
    cell = f"{nce['mean']:.2f} ± {nce.sd:.2f} ({nce.seeds})<br>{nce.gain:+.2f} [{nce.low:.2f}, {nce.high:.2f}]"
    assert cell in next(
        line for line in page.splitlines() if line.startswith("| Table I | 10,000 | cls | given | NCE |")
    )
    assert "| verdict |" in page and "holds on one encoder" in page


@pytest.mark.parametrize("paper", ["simcse", "micse"])  # all of them take twenty seconds
def test_the_committed_page_is_current(paper):
    page = (paths.root() / "RESULTS.md").read_text(encoding="utf8")
    assert measured.section(paper) in page, "run `make results`"
