"""The HTML report: executed notebooks as pages, and an index of how they ended. Nothing in it is loaded from a network."""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import pandas as pd
from markupsafe import Markup
from math_core import LatexToMathML
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from lib import paths, session
from lib.analysis import claims
from lib.checks import DataError

ASSETS = Path(__file__).parents[1] / "assets"
MATHML = LatexToMathML(continue_on_error=True, fancy_error=False)  # what is no TeX stands there as it is


class _Renderer(IPythonRenderer):
    """Markdown as HTML: formulas are MathML, links to notebooks lead to their pages, other files are not linked."""

    def inline_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=False)

    def block_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=True)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        if url.startswith(("http", "#")):
            return super().link(text, url, title)
        return super().link(text, url.replace(".ipynb", ".html"), title) if ".ipynb" in url else text


def _html(markdown: str) -> Markup:
    return Markup(MarkdownWithMath(renderer=_Renderer(escape=False)).render(markdown))


def write(profile: str, notebooks: Sequence[Path]) -> Path:
    """Write runs/report/<profile>/: a page for each executed notebook, and index.html, which is returned.

    Raises:
        DataError: a notebook cannot be read, or the report cannot be written.
    """
    target = paths.runs() / "report" / profile
    judged = claims.counts(claims.verdicts("small" if profile == "demo" else profile))
    pages = [_write_page(path, target) | {"verdicts": _verdicts(judged, path.stem)} for path in notebooks]
    template = jinja2.Environment(autoescape=True).from_string((ASSETS / "report.html.j2").read_text(encoding="utf8"))
    about = {"versions": session.versions(), "commit": session.git_commit(), "made": time.strftime("%Y-%m-%d %H:%M")}
    with paths.whole_file(target / "index.html") as partial:
        partial.write_text(template.render(profile=profile, pages=pages, html=_html, **about), encoding="utf8")
    return target / "index.html"


def _verdicts(judged: pd.DataFrame, name: str) -> str:
    """How many of the claims of the notebook's paper have which verdict; empty for a notebook without a paper."""
    paper = name.partition("-")[0].partition("_")[2]  # 1_simcse-seed=43
    if paper not in judged.index:
        return ""
    return ", ".join(f"{verdict}: {count}" for verdict, count in judged.loc[paper].items() if count)


def _write_page(path: Path, target: Path) -> dict[str, Any]:
    """Write the page of a notebook; returns its line of the index. The title is the first heading, the claim the
    paragraph below it that begins with "The claim", else the first one."""
    try:
        notebook = nbformat.read(path, as_version=4)
    except ValueError as error:  # no JSON, no notebook
        raise DataError(f"{path} cannot be read: delete it and run the notebook again.") from error
    first = next((c.source for c in notebook.cells if c.cell_type == "markdown" and c.source[:2] == "# "), "# ")
    title, _, rest = first[2:].partition("\n")
    paragraphs = rest.strip().split("\n\n")
    line = {
        "name": path.stem,
        "title": _html(title).striptags() or path.stem,
        "claim": next((p for p in paragraphs if p.lstrip("*").startswith("The claim")), paragraphs[0]),
        "time": timedelta(seconds=int(notebook.metadata.get("papermill", {}).get("duration") or 0)),
    }
    page = (ASSETS / "report_page.html.j2").read_text(encoding="utf8")
    exporter = HTMLExporter(raw_template=page, filters={"markdown2html": _html})
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": line["title"]}})
    with paths.whole_file(target / f"{path.stem}.html") as partial:
        partial.write_text(body, encoding="utf-8")
    return line | {"status": "not finished", "reason": ""} | notebook.metadata.get("batch", {})
