"""lib.batch.report: pages and an index; nothing is loaded from a network, and every link leads somewhere."""

from __future__ import annotations

import functools
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from nbformat import v4

from lib import paths, session
from lib.analysis import claims
from lib.batch import report
from lib.checks import DataError

NOTEBOOKS = sorted((paths.root() / "notebooks").glob("*.ipynb"))


class Page(HTMLParser):
    """What a page links to, loads by itself, and can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        html = path.read_text(encoding="utf-8")
        self.links, self.loaded, self.ids = [], re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", html), {""}
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id", ""))
        for name in {"href", "src", "srcset", "data", "poster"} & set(values):
            (self.links if (tag, name) == ("a", "href") else self.loaded).append(values[name])


page = functools.cache(Page)


def wrong(path: Path) -> list[str]:
    """What a page would load by itself from elsewhere, and its relative links that lead to nothing."""
    found = [url for url in page(path).loaded if urlsplit(url).scheme not in ("", "data") or url.startswith("//")]
    for url in page(path).links + page(path).loaded:
        parts = urlsplit(url)
        target = path.parent / unquote(parts.path) if parts.path else path
        if not parts.scheme and not parts.netloc:
            is_page, fragments = target.suffix == ".html", {parts.fragment, unquote(parts.fragment)}
            there = target.is_file() and (not is_page or fragments & page(target).ids)
            found += [] if there else [url]
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a report on a finished and a failed notebook, and an interrupted one."""
    folder = tmp_path_factory.mktemp("report")
    top = v4.new_markdown_cell("# A `title`\n\nThe authors, [p](https://a.org).\n\n**The claim.** It\nholds: $x_1$.")
    endings = [
        {"batch": {"status": "finished", "reason": ""}, "papermill": {"duration": 61.0}},
        {"batch": {"status": "failed", "reason": "stopped with ValueError: <b>"}, "papermill": {"duration": 3725.0}},
        {},
    ]
    notebooks = [folder / f"{number}_toy-a=b.ipynb" for number in range(3)]
    for path, metadata in zip(notebooks, endings, strict=True):
        cells = [top, v4.new_code_cell("shown = 1")] if metadata else []
        nbformat.write(v4.new_notebook(cells=cells, metadata=metadata), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSE_RUNS", str(folder / "runs"))
        index = report.write("demo", notebooks)
    assert index == folder / "runs" / "report" / "demo" / "index.html"
    return index.parent


def test_the_index(written):
    index = (written / "index.html").read_text()
    assert "Profile demo" in index and "1 of 3 notebooks finished" in index and session.git_commit() in index
    assert "A title" in index and "<strong>The claim.</strong> It\nholds" in index
    assert "0:01:01" in index and "1:02:05" in index and "ValueError: &lt;b&gt;" in index and 'name="viewport"' in index
    assert re.findall(r'<span class="([^"]+)">([^<]+)</span><br>', index) == [
        ("finished", "finished"), ("failed", "failed"), ("not finished", "not finished"),
    ]  # fmt: skip


def test_pages_load_nothing_and_lead_to_the_index(written):
    pages = sorted(written.glob("*.html"))
    assert len(pages) == 4
    assert [wrong(path) for path in pages] == [[]] * 4
    assert not any("<script" in path.read_text() for path in pages)
    assert all("index.html" in page(path).links and 'name="viewport"' in path.read_text() for path in pages[:3])
    assert {"0_toy-a%3Db.html", "1_toy-a%3Db.html", "2_toy-a%3Db.html"} <= set(page(pages[3]).links)
    assert "shown" in pages[0].read_text() and "<msub><mi>x</mi><mn>1</mn></msub>" in pages[0].read_text()


def test_a_notebook_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "0.ipynb").write_text('{"cells": [')
    with pytest.raises(DataError, match="0.ipynb cannot be read: delete it and run the notebook again."):
        report.write("demo", [tmp_path / "0.ipynb"])


def test_the_committed_notebooks(tmp_path):
    copies = [tmp_path / path.name for path in NOTEBOOKS]
    for path, copy in zip(NOTEBOOKS, copies, strict=True):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:  # pictures and styled tables take their time, and link to nothing
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if "text/markdown" in output.get("data", {})]
        notebook.cells = [c for c in notebook.cells if c.cell_type == "markdown" or c.outputs or "figures." in c.source]
        nbformat.write(notebook, copy)
    index = report.write("demo", copies)
    counted = claims.counts(claims.verdicts("small")).loc["micse"]
    assert f"holds on one encoder: {counted['holds on one encoder']}, open: {counted['open']}" in index.read_text()
    written = sorted(index.parent.glob("*.html"))
    assert len(written) == len(NOTEBOOKS) + 1
    assert {path.name: wrong(path) for path in written} == {path.name: [] for path in written}
    links = page(index.with_name("0_start_here.html")).links
    assert "1_simcse.html" in links and not any("README" in url for url in links)


def test_every_formula_of_the_notebooks_becomes_mathml():
    formulas = 0
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            outputs = [output.get("data", {}).get("text/markdown", "") for output in cell.get("outputs", [])]
            for markdown in [cell.source] if cell.cell_type == "markdown" else outputs:
                html = report._html(markdown)
                formulas += html.count("<math")
                plain = re.sub(r"<code>.*?</code>|<pre>.*?</pre>", "", html, flags=re.S)
                assert "math-core-error" not in html and "$" not in plain, f"{path.name}: {html}"
    assert formulas > 80
