"""What all pictures share: style sheet, colours, axes, and the files of a picture."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib import paths, session

COLOURS = sns.color_palette("colorblind").as_hex()  # those of the style sheet
# A method has the same colour in every notebook.
METHODS = {
    "untuned": COLOURS[7], "SimCSE": COLOURS[0], "SimCSE + AMI": "#8c2d04", "SimCSE + MoCo": COLOURS[9],
    "miCSE": COLOURS[2], "InfoCSE": COLOURS[3], "DiffCSE": "#33691e", "InfoCSE + RTD": "#7a0177", "MSSE": COLOURS[4], "sum of stage 1": "#00695c", "NCE": "#8a6d00", "TNCSE": COLOURS[1], "JTCSE": "#59338c",
    "SimCSE + 3R": COLOURS[5], "MSSE w/o DCM and ICM": "#6d3b5e", "InforMin-CL": "#b15928", "SSCL": "#1b4f72",
}  # fmt: skip
OTHERS = ("#2b2b2b", "#a3a300", "#e7298a", COLOURS[6], COLOURS[8])  # no method's: for what is none
# For `set_prop_cycle`: the looks of the first, second, ... curve. A plot call overrides what it names.
CYCLE = plt.cycler(color=COLOURS, linestyle=(["-", "--", ":", "-."] * 3)[:10], marker="osD^vP*X<>")
OUTSIDE = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5), "fontsize": 9}  # a legend to the right of its axes
SCORE = "Spearman x 100 (higher is better)"


def colour(method: str, other: str = "0.45") -> str:
    """The fixed colour of a method, also with words behind it ("JTCSE D", "SimCSE + 3R, SimCSE's settings"); `other` (grey) for
    names that are no method."""
    method = method.split("\n")[0]  # what stands below is no part of the name
    name = method.split(",")[0].split(" (")[0]
    return METHODS.get(method) or METHODS.get(name) or METHODS.get(name.split(" ")[0], other)


def drawing(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """A function that draws a figure from a frame, and with `save="name"` keeps both by `save_figure`, to which `note` and
    `source` go. The texts are texts: `$` in a sentence or in the name of an encoder begins no formula."""

    @functools.wraps(draw)
    def drawn(data: object, *arguments: object, save: str = "", note: str = "", source: str = "", **options: object):
        if save and not isinstance(data, pd.DataFrame):
            raise TypeError(f"{draw.__name__} draws from no data frame: save its figure with `save_figure`.")
        with matplotlib.rc_context({"text.parse_math": False}):
            fig = draw(data, *arguments, **options)
        for axis in [axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) if axis.get_scale() == "log"]:
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):  # powers of ten are formulas
                tick.label1.set_parse_math(True)
        if save:
            save_figure(fig, save, data, note=note, source=source)
        return fig

    known = inspect.signature(draw)
    kept = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="") for name in ("save", "note", "source")]
    drawn.__signature__ = known.replace(parameters=[*known.parameters.values(), *kept])  # what Jupyter shows
    return drawn


def panels(frame: pd.DataFrame, *, width: float, height: float, **shared: bool) -> tuple[Figure, list[tuple]]:
    """Panels of that size in inches, one per encoder: the figure, and (axes, encoder, its rows) of each.

    They stand in one row; with a column backbone, each has its own row.
    """
    parts = [part for _, part in frame.groupby("backbone", sort=False)] if "backbone" in frame else [frame]
    most = max(part.encoder.nunique() for part in parts)
    options = {"figsize": (width * most, height * len(parts)), "squeeze": False, "subplot_kw": {"prop_cycle": CYCLE}}
    fig, axes = plt.subplots(len(parts), most, **options, **shared)
    filled = []
    for row, part in zip(axes, parts, strict=True):
        groups = part.groupby("encoder", sort=False)
        start = f"{part.backbone.iloc[0]}: " if len(parts) > 1 else ""
        filled += [(ax, f"{start}{encoder}", rows) for ax, (encoder, rows) in zip(row, groups, strict=False)]
        for ax in row[len(groups) :]:
            ax.set_visible(False)
    return fig, filled


def backbone_panels(
    frame: pd.DataFrame, *, width: float, height: float, stacked: bool = False
) -> tuple[Figure, list[tuple]]:
    """A row of panels (stacked: a column) of that size in inches, one per value of the column backbone, or one where there
    is no such column: the figure, and (axes, backbone, its rows) of each."""
    groups = list(frame.groupby("backbone", sort=False)) if "backbone" in frame else [("", frame)]
    shape = (len(groups), 1) if stacked else (1, len(groups))
    options = {"figsize": (width * shape[1], height * shape[0]), "squeeze": False, "subplot_kw": {"prop_cycle": CYCLE}}
    fig, axes = plt.subplots(*shape, **options)
    return fig, [(ax, backbone, rows) for ax, (backbone, rows) in zip(axes.flat, groups, strict=True)]


def widen(ax: plt.Axes, least: float = 5) -> None:
    """Give the axis of scores at least `least` points: a narrower one would make noise look like an effect."""
    low, high = ax.get_ylim()
    if high - low < least:
        ax.set_ylim((low + high - least) / 2, (low + high + least) / 2)


def save_figure(fig: Figure, name: str, data: pd.DataFrame, *, note: str = "", source: str = "") -> Path:
    """Write <name>.png, <name>.svg and <name>.csv (the plotted numbers) to the profile's folder of figures (that of
    `lib.setup`), return the first; the same run gives the same bytes.

    Args:
        data: the plotted numbers; floats are written with six significant digits.
        note: protocol, split, seeds; stands with the source under the picture and in the description of the files.
        source: where the numbers come from, when that is not this run of the profile.

    Raises:
        DataError: the folder cannot be written.
    """
    folder = paths.figures(session.profile)
    description = (source or f"profile {session.profile}") + (f"; {note}" if note else "")
    fig.text(0, -0.015, description, va="top", fontsize=9, color="0.4", parse_math=False)
    png, svg = (
        {"Software": None, "Description": description},
        {"Date": None, "Creator": None, "Description": description},
    )
    with paths.whole_file(folder / f"{name}.png") as new:
        fig.savefig(new, format="png", metadata=png)
    with paths.whole_file(folder / f"{name}.svg") as new, matplotlib.rc_context({"svg.hashsalt": name}):
        fig.savefig(new, format="svg", metadata=svg)
    with paths.whole_file(folder / f"{name}.csv") as new:
        data.to_csv(new, index=False, float_format="%.6g", lineterminator="\n")
    return folder / f"{name}.png"
