"""The first calls of every notebook: its parameters, checked where it runs (in a browser, with lib.batch, or with plain
papermill), quiet libraries, one plot style, outputs that repeat; and knobs that turn where somebody can turn them."""

from __future__ import annotations

import ast
import copy
import hashlib
import html
import inspect
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from lib import paths, session
from lib.checks import ConfigError, Parameters, check_known, fit, kind_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def parameters(namespace: Mapping[str, Any], further: str = "") -> Parameters:
    """Names and values of a notebook's parameters: those it declares as `name: type = value`, and further settings.

    Args:
        namespace: the notebook's `globals()`.
        further: a file of params/ with the settings that the notebook does not show; what papermill sets replaces one.

    Raises:
        ConfigError: a value has another type, or papermill or the parameters cell sets a name that nobody declares.
    """
    declared = namespace.get("__annotations__")
    if not declared:
        raise ConfigError("the notebook has no parameters yet: run its parameters cell first.")
    defaults = yaml.safe_load((paths.root() / further).read_text(encoding="utf8")) if further else {}
    check_known(declared, defaults or declared, "parameter")
    kinds = {name: kind_of(value) for name, value in defaults.items()} | declared
    cells, first = namespace.get("In", []), re.compile(f"^{next(iter(declared))} *:", re.MULTILINE)
    set_in = [source for source in cells if source.startswith("# Parameters\n")][-1:]  # by papermill
    set_in += [source for source in cells if first.search(source)][-1:]  # by its own cell, also without a type
    given = [name for source in set_in for name in _assigned(source)]
    check_known(given, kinds, "parameter")
    values = defaults | {name: namespace[name] for name in (*declared, *given) if name in namespace}
    return Parameters({name: fit(name, kinds[name], value) for name, value in values.items()})


def _assigned(source: str) -> list[str]:
    """Names that a cell sets at its top level; none of a cell that Python could not read."""
    try:
        lines = ast.parse(source).body
    except SyntaxError:
        return []
    targets = [node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None) for node in lines]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _palette_png(figure: Any) -> bytes:
    """The figure as a PNG of at most 128 colours: a third of the size in a notebook, the same to the eye."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.canvas.print_figure(whole, format="png", bbox_inches="tight", dpi=figure.dpi)
    Image.open(whole).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def _table_html(table: Any) -> str:
    """A styled table, its ids made from what it shows (those of pandas are random, and no output would ever repeat), its
    texts as text: a sentence of a corpus may hold HTML, which pandas would let through. Where no style needs them, ids
    and classes are left out: half of the bytes."""
    table = copy.copy(table.set_uuid(hashlib.sha256(table.to_string().encode()).hexdigest()[:5]))

    def as_text(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(as_text, value))
        return html.escape(value, quote=False) if isinstance(value, str) else value

    table.index, table.columns = table.index.map(as_text), table.columns.map(as_text)
    table.data = table.data.map(as_text).set_axis(table.index).set_axis(table.columns, axis=1)
    table.caption = as_text(table.caption)
    page = table.to_html()
    return page if "{" in page.partition("<table")[0] else table.to_html(exclude_styles=True)


def _repeatable_outputs() -> None:
    """In a notebook, show figures by `_palette_png` and styled tables by `_table_html`, with their text beside it."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

    shell.run_line_magic("matplotlib", "inline")  # its own formatter is set now, and not later over this one
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type(Figure, _palette_png)
    formatters["text/html"].for_type(Styler, _table_html)
    formatters["text/plain"].for_type(Styler, lambda table, out, _: out.text(table.to_string(sparse_index=True)))


def setup(*, profile: str) -> None:
    """Quiet libraries, one plot style, figures filed under the profile, and a line each for profile, device and versions."""
    session.profile = profile
    session.quiet()
    _repeatable_outputs()
    import matplotlib.pyplot as plt

    plt.style.use(paths.root() / "lib" / "figures" / "style.mplstyle")
    print(f"profile  {profile}")
    print(f"device   {session.device_name()}")
    print("versions " + ", ".join(f"{name} {version}" for name, version in session.versions().items()))
    print(f"commit   {session.git_commit()}", flush=True)


def _live() -> bool:
    """Whether somebody looks at this notebook: a Jupyter server tells its kernels which notebook they belong to."""
    return "JPY_SESSION_NAME" in os.environ


def knob(**choices: Sequence[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that shows the figure or table that a function returns (or None, where it shows something itself), in
    JupyterLab with a control for each of its arguments. Headless the same cell shows it once, for their defaults.

    choices: argument -> the values to choose from, its default among them; an argument without choices is a text.
    """

    def shown(draw: Callable[..., Any]) -> Callable[..., Any]:
        starts = {name: argument.default for name, argument in inspect.signature(draw).parameters.items()}
        check_known(choices, starts, f"argument of {draw.__name__}")

        def show(**values: Any) -> None:
            _display(draw(**values))

        if not _live():
            show(**starts)
            return draw
        import ipywidgets

        look = {"style": {"description_width": "initial"}}  # names are not cut off
        controls = {}
        for name, start in starts.items():
            if name not in choices:
                controls[name] = ipywidgets.Text(start, layout={"width": "90%"}, continuous_update=False, **look)
            elif isinstance(start, str):
                width = {"width": "max-content", "max_width": "90%"}
                controls[name] = ipywidgets.Dropdown(options=list(choices[name]), value=start, layout=width, **look)
            else:
                slider = {"options": list(choices[name]), "value": start, "continuous_update": False}
                controls[name] = ipywidgets.SelectionSlider(**slider, **look)
        ipywidgets.interact(show, **controls)
        return draw

    return shown


def _display(shown: Any) -> None:
    import matplotlib.pyplot as plt
    from IPython.display import display
    from matplotlib.figure import Figure

    if isinstance(shown, Figure):
        plt.close(shown)  # shown here, and not a second time at the end of the cell
    if shown is not None:
        display(shown)


def hover_map(figure: Figure, points: pd.DataFrame) -> None:
    """Show a map of texts, in JupyterLab (which brings Vega-Lite) as one that names the text under the pointer and zooms.

    Args:
        figure: what is shown headless, see `knob`.
        points: encoder (a panel each), x, y, label, text; perhaps rank, from 1: dots that have one are large and numbered.
    """
    if not _live():
        return _display(figure)
    import matplotlib.pyplot as plt
    from IPython.display import display

    plt.close(figure)
    encoders = points.encoder.unique().tolist()
    encoding = {name: {"field": name, "type": "quantitative", "axis": None} for name in ("x", "y")}
    encoding["tooltip"] = [{"field": name} for name in ("text", "label")]
    label = {"field": "label", "scale": {"scheme": "tableau20"}}
    zoom = {"name": "zoom", "select": "interval", "bind": "scales"}
    if "rank" not in points:
        layers = [{"mark": "circle", "params": [zoom], "encoding": encoding | {"color": label, "size": {"value": 25}}}]
    else:  # as in the figure: grey, but for the nearest, which have a number
        near = {"transform": [{"filter": "isValid(datum.rank)"}]}
        number = {"mark": {"type": "text", "dx": 9, "dy": -7}, "encoding": encoding | {"text": {"field": "rank"}}}
        layers = [{"mark": {"type": "circle", "color": "#bbb"}, "params": [zoom], "encoding": encoding}]
        layers += [near | {"mark": "circle", "encoding": encoding | {"color": label, "size": {"value": 90}}}]
        layers += [near | number]
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": json.loads(points.to_json(orient="records"))},
        "facet": {"column": {"field": "encoder", "title": None, "sort": encoders}},
        "spec": {"width": 700 // len(encoders), "height": 700 // len(encoders), "layer": layers},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
    }
    display({"application/vnd.vegalite.v5+json": chart, "text/plain": "a map of texts"}, raw=True)
