"""The HTML report: executed notebooks as pages, the verdicts on the papers' claims, the figures, and an index. Nothing in it
is loaded from a network, and it can be moved as a folder."""

from __future__ import annotations

import inspect
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
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
from lib.runs import leaderboard

ASSETS = Path(__file__).parents[1] / "assets"
MATHML = LatexToMathML(continue_on_error=True, fancy_error=False)  # what is no TeX stands there as it is
PROFILES = {
    "demo": "data and a small encoder that come with the project, minutes on any CPU. It shows how the methods work, and that "
    "everything runs; its numbers are no results",
    "small": "small encoders on real data",
    "paper": "the models, data and hyper-parameters of the papers",
}
KINDS = {
    "profile demo": "demo",
    "profile ": "measured",
    "paper": "published",
}  # of figures, by where their numbers are from


@dataclass
class Page:
    """An executed notebook, or a line that says why it cannot be shown: then there are no cells."""

    name: str
    title: str
    claim: str = ""  # Markdown
    notebook: Any = None
    status: str = "damaged"
    reason: str = ""
    time: timedelta | str = ""

    @property
    def cells(self) -> Sequence[Any]:
        return self.notebook.cells if self.notebook else ()

    @property
    def url(self) -> str:
        return f"{quote(self.name)}.html" if self.notebook else ""


class _Renderer(IPythonRenderer):
    """Markdown as HTML: formulas are MathML, links to notebooks lead to their pages, other files of the repository are
    named and not linked, and so are pictures that are not in the notebook.

    Args:
        urls: of the pages, by the names of the notebooks.
    """

    def __init__(self, urls: Mapping[str, str], **options: Any) -> None:
        super().__init__(escape=False, **options)
        self.urls = urls

    def inline_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=False)

    def block_math(self, body: str) -> str:
        return MATHML.convert_with_local_state(body, displaystyle=True)

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    def image(self, text: str, url: str, title: str | None = None) -> str:
        inside = url.startswith("data:") or url.removeprefix("attachment:") in self.attachments
        return super().image(text, url, title) if inside else self.link(text, url, title)

    def link(self, text: str, url: str, title: str | None = None) -> str:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc or not parts.path:
            return super().link(text, url, title)
        path = PurePosixPath(unquote(parts.path))
        if path.suffix != ".ipynb":
            return f"{text} (<code>{self.escape_html(path.as_posix().removeprefix('../'))}</code>)"
        page = self.urls.get(path.stem)
        return super().link(text, parts._replace(path=page).geturl(), title) if page else text


def _html(markdown: str, pages: Sequence[Page], **options: Any) -> Markup:
    urls = {page.name: page.url for page in pages if page.url}
    return Markup(MarkdownWithMath(renderer=_Renderer(urls, **options)).render(markdown))


def write(profile: str, notebooks: Sequence[Path]) -> Path:
    """Write runs/report/<profile>/: a page for each executed notebook, the figures, and index.html, which is returned.

    A notebook that cannot be read has a line of the index and no page. The verdicts are those of `leaderboard.source`.

    Raises:
        DataError, OSError: the report cannot be written, or published rows cannot be judged.
    """
    target = paths.runs() / "report" / profile
    target.mkdir(parents=True, exist_ok=True)
    pages = [_read(path) for path in notebooks]
    bodies = _bodies(pages)
    for page in pages:
        if page.name not in bodies:
            (target / f"{page.name}.html").unlink(missing_ok=True)
            continue
        with paths.whole_file(target / f"{page.name}.html") as partial:
            partial.write_text(bodies[page.name], encoding="utf-8")
    shown = leaderboard.source(profile)
    judged = claims.verdicts(shown)
    overview = claims.table(profile=shown, least=3)
    template = jinja2.Environment(autoescape=True).from_string(_asset("report.html.j2"))
    text = template.render(
        profile=profile,
        about=PROFILES[profile],
        pages=pages,
        urls={page.name: page.url for page in pages},
        html=lambda markdown: _html(markdown, pages),
        shown=shown,
        counts=claims.counts(judged),
        meaning=f"{claims.__doc__}\n\n{inspect.getdoc(results.verdict).partition('Args:')[0]}",
        papers=[
            (papers.load(name), rows.reset_index().to_dict("records"))
            for name, rows in overview.groupby("paper", sort=False)
        ],
        encoders=[name for name in overview if name not in ("published", "verdict")],
        figures=_figures(profile, pages, target / "figures"),
        versions=", ".join(f"{name} {version}" for name, version in session.versions().items()),
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
        return Page(path.stem, path.stem, reason=_damage(path.name, error))
    first = next((c.source for c in notebook.cells if c.cell_type == "markdown" and c.source[:2] == "# "), "")
    title, _, rest = first[2:].partition("\n")
    paragraphs = rest.strip().split("\n\n")
    claim = next((p for p in paragraphs if p.lstrip("*").startswith("The claim")), paragraphs[0])
    how = ending(path) or {"status": "not finished", "reason": "", "seconds": 0}
    clock = timedelta(seconds=int(how["seconds"]))
    return Page(
        path.stem, _html(title, ()).striptags() or path.stem, claim, notebook, how["status"], how["reason"], clock
    )


def _damage(name: str, error: Exception) -> str:
    return f"{name} cannot be read ({one_line(error)[:80]}): delete it and run the notebook again."


def _bodies(pages: Sequence[Page]) -> dict[str, str]:
    """The HTML of every page that can be shown, by its name."""

    @jinja2.pass_context
    def markdown2html(context: jinja2.runtime.Context, source: str) -> Markup:
        return _html(source, pages, attachments=context.get("cell", {}).get("attachments", {}))

    exporter = HTMLExporter(raw_template=_asset("report_page.html.j2"), filters={"markdown2html": markdown2html})
    shown = [page for page in pages if page.notebook]
    bodies = {}
    for before, page, after in zip([None, *shown], shown, [*shown[1:], None], strict=False):
        resources = {"metadata": {"name": page.title}, "before": before, "after": after}
        try:
            bodies[page.name], _ = exporter.from_notebook_node(page.notebook, resources)
        except Exception as error:  # outputs that no page can show
            page.notebook, page.status, page.reason = None, "damaged", _damage(f"{page.name}.ipynb", error)
            return _bodies(pages)  # again, since the others link to it
    return bodies


def _figures(profile: str, pages: Sequence[Page], target: Path) -> list[tuple[Page | None, list[dict[str, Any]]]]:
    """Copy the figures; they stand with the notebook that drew each, in the order of its cells, and the rest at the end."""
    drawn, figures = paths.figures(profile), []
    for path in sorted(drawn.rglob("*.png")):
        name = path.relative_to(drawn)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
        try:
            with Image.open(path) as image:
                source = image.info.get("Description", "")  # as `save_figure` wrote it
        except OSError:
            source = ""
        kind = next((kind for start, kind in KINDS.items() if source.startswith(start)), "")
        page, place = _drawn_by(name, pages)
        figures.append(
            (page, place, {"name": name.as_posix(), "source": source, "kind": kind, **_caption(page, place)})
        )
    figures.sort(key=lambda figure: figure[1])
    groups = [(page, [figure for other, _, figure in figures if other is page]) for page in [*pages, None]]
    return [group for group in groups if group[1]]


def _drawn_by(figure: Path, pages: Sequence[Page]) -> tuple[Page | None, int]:
    """The page, and the place of the cell, whose code has a figure's name, or the beginning of one that is put together."""
    words, folder = figure.stem.split("_"), figure.parent.as_posix()
    begun = ["_".join(words[:count]) for count in range(len(words) - 1, 1, -1)]
    for literal in (f'"{figure.stem}"', *(f'"{beginning}_{{' for beginning in begun)):
        for page in pages:
            for place, cell in enumerate(page.cells if folder in (".", page.name) else ()):
                if cell.cell_type == "code" and "figures." in cell.source and literal in cell.source:
                    return page, place
    return None, 0


def _caption(page: Page | None, place: int) -> dict[str, str]:
    """The section of a figure, the last paragraph above it (both Markdown), and the link to its cell."""
    if page is None:
        return {"heading": "", "text": "", "url": ""}
    above = [cell.source for cell in page.cells[:place] if cell.cell_type == "markdown"]
    headings = [line.lstrip("# ") for source in above for line in source.split("\n") if line.startswith("#")]
    text = above[-1].split("\n\n")[-1] if above else ""
    return {
        "heading": headings[-1] if headings else page.title,
        "text": "" if text.startswith(("#", "|")) else text,
        "url": f"{page.url}#cell-id={quote(page.cells[place].get('id', ''))}",
    }
