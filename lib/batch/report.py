"""The HTML report: executed notebooks as pages, the verdicts on the papers' claims, the figures, and an index. Nothing in it
is loaded from a network, and it can be moved as a folder."""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import jinja2
import nbformat
from markupsafe import Markup
from math_core import LatexToMathML
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from PIL import Image

from lib import paths, results, session
from lib.analysis import claims, papers
from lib.batch.jobs import ending
from lib.batch.parameters import one_line

ASSETS = Path(__file__).parents[1] / "assets"
MATHML = LatexToMathML(continue_on_error=True, fancy_error=False)  # what is no TeX stands there as it is


@dataclass
class Page:
    """An executed notebook, or the reason why it cannot be shown: then there is no notebook."""

    name: str
    title: str
    claim: str = ""  # Markdown
    notebook: Any = None
    status: str = "damaged"
    reason: str = ""
    time: timedelta | str = ""

    @property
    def url(self) -> str:
        return f"{quote(self.name)}.html" if self.notebook else ""


class _Renderer(IPythonRenderer):
    """Markdown as HTML: formulas are MathML, links to notebooks lead to their pages, and what lies elsewhere in the
    repository is not linked, nor is a picture that is not in the notebook."""

    def __init__(self, pages: Sequence[Page], **options: Any) -> None:
        super().__init__(escape=False, **options)
        self.urls = {f"{page.name}.ipynb": page.url for page in pages}

    def inline_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=False)

    def block_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=True)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        inside = url.startswith("data:") or url.removeprefix("attachment:") in self.attachments
        return super().image(text, url, title) if inside else self.link(text, url, title)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc or not parts.path:
            return super().link(text, url, title)
        page = self.urls.get(unquote(parts.path))
        return super().link(text, parts._replace(path=page).geturl(), title) if page else text


def _html(markdown: str, pages: Sequence[Page], **options: Any) -> Markup:
    return Markup(MarkdownWithMath(renderer=_Renderer(pages, **options)).render(markdown))


def write(profile: str, notebooks: Sequence[Path]) -> Path:
    """Write runs/report/<profile>/: a page for each executed notebook, the figures, and index.html, which is returned.

    A notebook that cannot be read has a line of the index and no page. The demo, whose numbers are no results, shows the
    verdicts of profile small.

    Raises:
        DataError, OSError: the report cannot be written, or published rows cannot be judged.
    """
    target = paths.runs() / "report" / profile
    target.mkdir(parents=True, exist_ok=True)
    pages = [_read(path) for path in notebooks]
    _write_pages(pages, target)
    shown = "small" if profile == "demo" else profile
    overview = claims.table(profile=shown, least=3)
    template = jinja2.Environment(autoescape=True).from_string(_asset("report.html.j2"))
    text = template.render(
        profile=profile,
        pages=pages,
        urls={page.name: page.url for page in pages},
        html=lambda markdown: _html(markdown, pages),
        shown=shown,
        counts=claims.counts(claims.verdicts(shown)),
        meaning=f"{claims.__doc__}\n\n{inspect.getdoc(results.verdict).partition('Args:')[0]}",
        papers={name: papers.load(name) for name in overview.index.unique("paper")},
        claims=overview.reset_index().to_dict("records"),
        encoders=[name for name in overview if name not in ("published", "verdict")],
        figures=_figures(profile, target / "figures"),
        versions=session.versions(),
        commit=session.git_commit(),
        made=time.strftime("%Y-%m-%d %H:%M"),
    )
    index = target / "index.html"
    with paths.whole_file(index) as partial:
        partial.write_text(text, encoding="utf-8")
    return index


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _read(path: Path) -> Page:
    """The title is the first heading, the claim the paragraph below it that begins with "The claim", else the first one."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # no JSON, no notebook
        reason = f"{path.name} cannot be read ({one_line(error)[:80]}): delete it and run the notebook again."
        return Page(path.stem, path.stem, reason=reason)
    first = next((c.source for c in notebook.cells if c.cell_type == "markdown" and c.source[:2] == "# "), "")
    title, _, rest = first[2:].partition("\n")
    paragraphs = rest.strip().split("\n\n")
    claim = next((p for p in paragraphs if p.lstrip("*").startswith("The claim")), paragraphs[0])
    how = {"status": "not finished", "reason": "", "seconds": 0} | ending(path)
    clock = timedelta(seconds=int(how["seconds"]))
    return Page(
        path.stem, _html(title, ()).striptags() or path.stem, claim, notebook, how["status"], how["reason"], clock
    )


def _write_pages(pages: Sequence[Page], target: Path) -> None:
    """Write the notebooks that can be shown, each with links to its neighbours."""

    @jinja2.pass_context
    def markdown2html(context: jinja2.runtime.Context, source: str) -> Markup:
        return _html(source, pages, attachments=context.get("cell", {}).get("attachments", {}))

    exporter = HTMLExporter(raw_template=_asset("report_page.html.j2"), filters={"markdown2html": markdown2html})
    shown = [page for page in pages if page.notebook]
    for before, page, after in zip([None, *shown], shown, [*shown[1:], None], strict=False):
        resources = {"metadata": {"name": page.title}, "before": before, "after": after}
        body, _ = exporter.from_notebook_node(page.notebook, resources)
        with paths.whole_file(target / f"{page.name}.html") as partial:
            partial.write_text(body, encoding="utf-8")


def _figures(profile: str, target: Path) -> dict[str, str]:
    """Copy the figures; the name of each, and where its numbers are from, as `save_figure` wrote it."""
    drawn, sources = paths.figures(profile), {}
    for path in sorted(drawn.rglob("*.png")):
        name = path.relative_to(drawn)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
        with Image.open(path) as image:
            sources[name.as_posix()] = image.info.get("Description", "")
    return sources
