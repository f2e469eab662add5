"""lib.batch.report: pages and an index; nothing is loaded from a network, and every link leads somewhere."""

import functools
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

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


@pytest.fixture(autouse=True)
def computed_once(monkeypatch, verdicts):
    monkeypatch.setattr(claims, "verdicts", {"small": verdicts}.get)


def test_a_notebook_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "0.ipynb").write_text('{"cells": [')
    with pytest.raises(DataError, match="0.ipynb cannot be read: delete it and run the notebook again."):
        report.write("demo", [tmp_path / "0.ipynb"])


def test_the_committed_notebooks(tmp_path):
    """One of them failed and one was interrupted; no page loads anything by itself, and every link leads somewhere."""
    copies = [tmp_path / path.name for path in NOTEBOOKS]
    endings = [("failed", "stopped with ValueError: <b>", 3725.0), *[("finished", "", 61.0)] * (len(copies) - 2)]
    for number, (path, copy) in enumerate(zip(NOTEBOOKS, copies, strict=True)):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:  # pictures and styled tables take their time, and link to nothing
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if "text/markdown" in output.get("data", {})]
        notebook.cells = [c for c in notebook.cells if c.cell_type == "markdown" or c.outputs or "figures." in c.source]
        if number < len(endings):
            status, reason, seconds = endings[number]
            notebook.metadata |= {"batch": {"status": status, "reason": reason}, "papermill": {"duration": seconds}}
        nbformat.write(notebook, copy)
    index = report.write("demo", copies)
    text, counted = index.read_text(), claims.counts(claims.verdicts("small")).loc["micse"]
    assert f"holds on one encoder: {counted['holds on one encoder']}, open: {counted['open']}" in text
    assert f"{len(copies) - 2} of {len(copies)} notebooks finished" in text and session.git_commit() in text
    assert "0:01:01" in text and "1:02:05" in text and "ValueError: &lt;b&gt;" in text
    shown = [status for status, _ in re.findall(r'<span class="([^"]+)">([^<]+)</span><br>', text)]
    assert shown == [*(status for status, *_ in endings), "not finished"]
    written = sorted(index.parent.glob("*.html"))
    assert len(written) == len(NOTEBOOKS) + 1 and not any("<script" in path.read_text() for path in written)
    assert {path.name: wrong(path) for path in written} == {path.name: [] for path in written}
    links = page(index.with_name("0_start_here.html")).links
    assert {"1_simcse.html", "index.html"} <= set(links) and not any("README" in url for url in links)


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
