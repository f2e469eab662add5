"""The HTML report: executed notebooks as pages, the figures, and an index that needs no network."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert import HTMLExporter

from lib import paths, session
from lib.batch.jobs import ending
from lib.batch.parameters import one_line

TEMPLATE = Path(__file__).parents[1] / "assets" / "report.html.j2"

# nbconvert's page without require.js, mermaid and the widget manager, which it would load from the network.
# MathJax still comes from there; without a network the formulas show their TeX.
PAGE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
"""


def write(profile: str, notebooks: Sequence[Path]) -> Path:
    """Write runs/report/<profile>/: a page for each executed notebook, the figures, and index.html, which is returned.

    A notebook that cannot be read has a line of the index and no page.

    Raises:
        DataError, OSError: the report cannot be written.
    """
    target = paths.runs() / "report" / profile
    (target / "figures").mkdir(parents=True, exist_ok=True)
    drawn = paths.figures(profile)
    figures = {path.relative_to(drawn).as_posix(): path for path in sorted(drawn.rglob("*.png"))}
    for name, figure in figures.items():
        (target / "figures" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(figure, target / "figures" / name)
    template = jinja2.Environment(autoescape=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        title=f"Contrastive sentence embeddings: the {profile} profile",
        pages=[_page(path, target) for path in notebooks],
        figures=list(figures),
        versions=", ".join(f"{name} {version}" for name, version in session.versions().items()),
        commit=session.git_commit(),
        made=time.strftime("%Y-%m-%d %H:%M"),
    )
    index = target / "index.html"
    with paths.whole_file(index) as partial:
        partial.write_text(text, encoding="utf-8")
    return index


def _page(path: Path, target: Path) -> dict[str, Any]:
    """Convert one executed notebook, return its line of the index."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        title, claim = _title_and_claim(notebook)
        exporter = HTMLExporter(raw_template=PAGE)
        body, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title or path.stem}})
    except Exception as error:  # no JSON, no notebook, outputs that no page can show
        (target / f"{path.stem}.html").unlink(missing_ok=True)
        reason = f"{path} cannot be read ({one_line(error)[:80]}): delete it and run the notebook again."
        return {"name": path.stem, "title": path.stem, "claim": "", "time": "", "status": "damaged", "reason": reason}
    with paths.whole_file(target / f"{path.stem}.html") as partial:
        partial.write_text(body, encoding="utf-8")
    how = ending(path) or {"status": "not finished", "reason": "", "seconds": 0}
    time = timedelta(seconds=int(how["seconds"]))
    return {"name": path.stem, "title": title or path.stem, "claim": claim, **how, "time": time}


def _title_and_claim(notebook: nbformat.NotebookNode) -> tuple[str, str]:
    """The first heading, and the paragraph below it that begins with "The claim", else the first one."""
    first = next((c.source for c in notebook.cells if c.cell_type == "markdown" and c.source[:2] == "# "), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)|[*`]", r"\1", first)  # links and emphasis as plain text
    title, _, rest = plain.partition("\n")
    paragraphs = [" ".join(block.split()) for block in rest.strip().split("\n\n")]
    return title[2:], next((p for p in paragraphs if p.startswith("The claim")), paragraphs[0])
