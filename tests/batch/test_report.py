"""lib.batch.report: pages, figures, and an index that works without a network."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbformat import v4

from lib import session
from lib.batch import report


def external(page: str) -> set[str]:
    """The hosts from which a page would load something by itself."""
    loaded = r"""(?:<(?:script|img|link|iframe)[^>]*?(?:src|href)\s*=\s*["']?|url\(["']?|@import\s*["']?)"""
    return set(re.findall(loaded + r"https?://([^/\"'>)]+)", page))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The folder of a report on a finished and a failed notebook, and one that was cut off."""
    monkeypatch.setattr(session, "git_commit", lambda: "abc1234")
    top = v4.new_markdown_cell("# A `title`\n\nThe authors, [paper](https://a.org).\n\n**The claim.** It\nholds.")
    endings = [
        {"status": "finished", "reason": "", "seconds": 61.0},
        {"status": "failed", "reason": "cell [2] stopped with ValueError: <b>", "seconds": 3725.0},
        None,
    ]
    notebooks = [tmp_path / f"{number}_toy-a=b.ipynb" for number in range(3)]
    for path, batch in zip(notebooks, endings, strict=True):
        cells = [v4.new_code_cell("shown = 1")] if batch is None else [top, v4.new_code_cell("shown = 1")]
        nbformat.write(v4.new_notebook(cells=cells, metadata={"batch": batch} if batch else {}), path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.png").write_bytes(b"png")
    index = report.write("demo", notebooks)
    assert index == tmp_path / "runs" / "report" / "demo" / "index.html"
    return index.parent


def test_the_index(written):
    index = (written / "index.html").read_text()
    assert "http:" not in index and "https:" not in index
    targets = {target.replace("%3D", "=") for target in re.findall(r'(?:href|src)="([^"]+)"', index)}
    assert targets == {*(f"{number}_toy-a=b.html" for number in range(3)), "figures/curve.png"}
    assert all((written / target).is_file() for target in targets)
    for text in ("A title", "The claim. It holds.", "0:01:01", "1:02:05", "ValueError: &lt;b&gt;", "abc1234"):
        assert text in index
    assert re.findall(r'<span class="[^"]+">([^<]+)', index) == ["finished", "failed", "not finished"]


def test_a_page_loads_nothing_but_mathjax(written):
    page = (written / "0_toy-a=b.html").read_text()
    assert "shown" in page and "holds." in page
    assert external(page) == {"cdnjs.cloudflare.com"}


@pytest.mark.parametrize("content", ["", '{"cells": [', "[]", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}'])
def test_a_notebook_that_was_cut_has_its_line_and_no_page(written, tmp_path, content):
    (tmp_path / "0_toy-a=b.ipynb").write_text(content)
    index = report.write("demo", [tmp_path / f"{number}_toy-a=b.ipynb" for number in (0, 1)]).read_text()
    assert re.findall(r'<span class="[^"]+">([^<]+)', index) == ["damaged", "failed"]
    assert "cannot be read" in index and "delete it and run the notebook again" in index
    assert not (written / "0_toy-a=b.html").exists() and "0_toy-a%3Db.html" not in index
