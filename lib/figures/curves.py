"""Scores and quantities: a dot for each seed, gains with their intervals, curves over steps or layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.figures.style import (
    OUTSIDE,
    SCORE,
    Panel,
    colour,
    draw_floors,
    drawing,
    grid,
    is_first,
    looks,
    names,
    prepared,
    stacked,
    widen,
)

FEW = 5  # seeds; fewer are drawn one by one: a band of them would say too little
TITLES = {
    "alignment": "Alignment (lower is better)",
    "uniformity": "Uniformity (lower is better)",
    "loss": "Training loss",
    "dev": "Dev score, Spearman x 100",
}
SCORES = ("dev", "spearman")  # metrics in points


@drawing
def points(
    frame: pd.DataFrame,
    *,
    x: str = "method",
    group: str = "group",
    floors: pd.DataFrame | None = None,
    xlabel: str = "",
    ylabel: str = SCORE,
    log: bool = False,
    joined: bool = False,
    least: float = 5,
) -> Figure:
    """Every seed as a dot, and their mean, a panel for each backbone: over names, which stand below each other, or over
    numbers, a colour for each method.

    Args:
        frame: x, value; perhaps method, backbone, source, settings, ...; std where a row is itself a mean (a paper's).
        x: the column of names ("method", "settings") or of numbers ("sentences"); log: these on a logarithmic axis.
        group: the column of bold headings above names; used where the frame has it.
        floors: name, backbone, value; scores to beat, dashed.
        xlabel, ylabel: what numbers and values are.
        joined: a line through the means; not where sizes differ in more than the size.
        least: what the axis of values spans at least.
    """
    is_number = pd.api.types.is_numeric_dtype(frame[x])
    fig, panels = _over_numbers(frame, x, log, joined) if is_number else _over_names(frame, x, group)
    axis, explained = ("y", "") if is_number else ("x", "; a dot is a seed, a stroke the mean")
    for ax, _, place, part in panels:
        ax.set_title(stacked(place, draw_floors(ax, floors, part, axis)))
        widen(ax, least, axis)
    (fig.supylabel if is_number else fig.supxlabel)(ylabel + explained, fontsize=10)
    if is_number:
        fig.supxlabel(xlabel or x, fontsize=10)
    return fig


def _over_numbers(frame: pd.DataFrame, x: str, log: bool, joined: bool) -> tuple[Figure, list[Panel]]:
    """`points` over numbers: a symbol for each mean, with its seeds in small."""
    frame = frame.dropna(subset=x).astype({x: float})
    frame["name"] = names(frame, but=x) if "method" in frame else frame.encoder
    fig, panels = grid(frame, "", "place", 3.3, 3.3, right=0.9 + 0.08 * frame.name.str.len().max())
    look, apart = looks(frame.name), 0.015 * (frame[x].max() - frame[x].min())
    for ax, *_, part in panels:
        several = part.name.nunique()
        for number, (name, values) in enumerate(part.groupby("name", sort=False)):
            shift = number - (several - 1) / 2  # side by side, where several methods have the same number
            at = values[x] * 1.06**shift if log else values[x] + apart * shift
            mean, style = values.value.groupby(at).mean(), look[name] | {"mew": 0}
            ax.plot(at, values.value, **style | {"ls": ""}, ms=3, alpha=0.5)
            ax.plot(mean.index, mean, **style if joined else style | {"ls": ""}, ms=6, label=name)
            if "std" in values and values["std"].notna().any():
                ax.errorbar(at, values.value, values["std"], fmt="none", ecolor=style["color"], capsize=2)
        ax.set_xscale("log" if log else "linear")
        if len(ticks := sorted(part[x].unique())) < 8:
            ax.set_xticks(ticks, [f"{tick:,.7g}" for tick in ticks])
            ax.minorticks_off()
        if len(ticks) == 1:  # otherwise the methods, side by side, would look like different numbers
            ax.set_xlim(ticks[0] / 2, ticks[0] * 2)
    marks = {label: mark for ax in fig.axes for mark, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    ax.legend(marks.values(), marks, title=f"mean{' ± std' if 'std' in frame else ''}; small: seeds", **OUTSIDE)
    return fig, panels


def _over_names(frame: pd.DataFrame, x: str, group: str) -> tuple[Figure, list[Panel]]:
    """`points` over names: a line for each, with a stroke for its mean."""
    fig, panels = _blocks(frame, x, group)
    for ax, *_, part in panels:
        for y, values in part.groupby("y"):
            shade, mean = values.shade.iloc[0], values.value.mean()
            ax.plot(values.value, values.y, ls="", marker="o", color=shade, ms=4, alpha=0.7, mew=0)
            ax.plot([mean, mean], [y - 0.38, y + 0.38], color=shade, lw=2, solid_capstyle="butt")
    return fig, panels


@drawing
def intervals(
    frame: pd.DataFrame,
    *,
    by: str = "method",
    value: str = "gain",
    group: str = "group",
    seeds: pd.DataFrame | None = None,
    line: float | None = 0,
    xlabel: str = "gain, points; bar: 95 % interval",
) -> Figure:
    """Values with their intervals, a row for each name, a panel for each backbone.

    Args:
        frame: by, value, low, high (NaN: no interval), as `compare(...).reset_index()` gives them; perhaps backbone, group.
        by, value: columns of the names and of the values; rows without a value are left out.
        group: the column of bold headings above names; used where the frame has it.
        seeds: a row for each seed, with the same columns but low and high: dots.
        line: a value to compare with; None for none.
    """
    frame = frame.dropna(subset=value).assign(is_seed=False)
    if seeds is not None:
        frame = pd.concat([frame, prepared(seeds).assign(is_seed=True)])
    fig, panels = _blocks(frame, by, group)
    for ax, _, place, part in panels:
        for row in part[~part.is_seed].itertuples():
            ax.plot([row.low, row.high], [row.y, row.y], color=row.shade, marker="|", ms=7, lw=2)
            ax.plot(getattr(row, value), row.y, color=row.shade, marker="s", ms=6, ls="")
        dots = part[part.is_seed]
        ax.scatter(dots[value], dots.y, c=dots.shade, s=14, edgecolors="0.15", linewidths=0.6, zorder=3)
        if line is not None:
            ax.axvline(line, color="0.3", lw=1, zorder=1)
        ax.set_title(place)
    fig.supxlabel(xlabel, fontsize=10)
    return fig


def _blocks(frame: pd.DataFrame, by: str, group: str) -> tuple[Figure, list[Panel]]:
    """Panels as `grid` gives them, one for each backbone, with a line for each name, under headings if there are groups. The
    rows have the height of their line, y, and their colour, shade."""
    frame = frame.assign(name=names(frame, group) if by == "method" else frame[by].astype(str))
    frame["block"] = frame[group].astype(str) if group in frame else ""
    lines, heights = [], {}
    for heading, part in frame.groupby("block", sort=False):
        lines += [heading] if heading else []
        for name in part.name.unique():
            heights[heading, name] = len(lines)
            lines.append(name)
    headings = sorted({*range(len(lines))} - {*heights.values()})
    frame["y"] = [heights[key] for key in zip(frame.block, frame.name, strict=True)]
    whose = frame.method if "method" in frame else frame.name
    frame["shade"] = [colour(name, "") or colour(str(method)) for name, method in zip(frame.name, whose, strict=True)]
    fig, panels = grid(frame, "", "place", 3.3, 1.1 + 0.22 * len(lines), right=2)
    for ax, *_ in panels:
        ax.set_ylim(len(lines) - 0.4, -0.6)
        ax.set_yticks(range(len(lines)), lines if is_first(ax) else [""] * len(lines))
        for y in headings:
            ax.get_yticklabels()[y].set_weight("bold")
            ax.axhline(y - 0.5, color="0.85", lw=0.8)
        ax.grid(axis="y", visible=False)
    return fig, panels


@drawing
def curves(
    frame: pd.DataFrame,
    *,
    x: str = "step",
    hue: str = "encoder",
    panel: str = "metric",
    titles: Mapping[str, str] | None = None,
    log: Collection[str] = (),
    floors: pd.DataFrame | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Values over steps or layers: a panel for each metric, a row of panels for each backbone, a line for each method
    through the mean of its seeds. Five seeds and more have a band from the smallest to the largest, fewer a thin line each.

    Args:
        frame: x, value, method or encoder; perhaps metric, seed, backbone, source, settings, ...
        hue: the column that gives lines; "encoder" is the method, where there is no such column.
        panel: the column that gives panels; but for "metric", panels of a row have the same axis of values.
        titles: value of `panel` -> title with its unit, in the order of the panels; others are left out. None: all.
        log: values of `panel` on a logarithmic axis, with geometric means and a line at 1.
        floors: name, backbone, value; scores to beat, dashed in the first panels.
    """
    frame = frame.assign(panel=frame[panel].astype(str) if panel in frame else "", name=frame[hue].astype(str))
    frame = frame.dropna(subset=["value", x]).astype({x: float, "value": float})
    titles = titles or {one: TITLES.get(one, one) for one in frame.panel.unique()}
    frame = frame[frame.panel.isin(titles)]
    rows, look, earlier = list(frame.groupby("place", sort=False)), looks(frame.name), []
    width, right = {1: 4.6, 2: 3.7, 3: 3.1}.get(len(titles), 2.7), 1.3 + 0.08 * frame.name.str.len().max()
    size = (width * len(titles) + right, 2.7 * len(rows) + 0.3)
    shared = False if panel == "metric" else "row"
    fig, axes = plt.subplots(len(rows), len(titles), figsize=size, squeeze=False, sharey=shared)
    for line, (place, part) in zip(axes, rows, strict=True):
        marks = {}
        for ax, (one, title) in zip(line, titles.items(), strict=True):
            inside = part[part.panel == one]
            for name, values in inside.groupby("name", sort=False):
                marks[name] = _curve(ax, values, x, look[name], one in log)
            if one in log:
                ax.set_yscale("log")
                ax.axhline(1, color="0.3", lw=1, zorder=1)
            else:
                widen(ax, 5 if one in SCORES else 0.02)
            dashed = draw_floors(ax, floors, inside) if ax is line[0] else ""
            ax.set_title(stacked(title if ax in axes[0] else "", dashed))
            ax.set_xlabel((xlabel or x) if ax in axes[-1] else "")
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        line[0].set_ylabel(stacked(place, ylabel))
        seeds = part.groupby(["panel", "name"]).seed.nunique().groupby("name").max()
        legend = [f"{name}, {seeds[name]} seeds" if seeds[name] > 1 else name for name in marks]
        if legend != earlier:  # rows with the same lines have one
            line[-1].legend(marks.values(), legend, **OUTSIDE)
        earlier = legend
    return fig


def _curve(ax: Axes, values: pd.DataFrame, x: str, look: Mapping[str, str], is_log: bool) -> plt.Line2D:
    """The line of one method, and its seeds."""
    values = values.sort_values(x, kind="stable")
    scaled = values.assign(value=np.log(values.value)) if is_log else values
    band = scaled.groupby(x).value.agg(["mean", "min", "max"])
    band = np.exp(band) if is_log else band
    marker = {} if len(band) < 25 else {"marker": ""}  # many would hide the line
    (drawn,) = ax.plot(band.index, band["mean"], ms=4, mew=0, **look | marker)
    if values.seed.nunique() >= FEW:
        ax.fill_between(band.index, band["min"], band["max"], color=look["color"], alpha=0.15, lw=0)
    elif values.seed.nunique() > 1:
        for _, one in values.groupby("seed"):
            ax.plot(one[x], one.value, color=look["color"], marker="", lw=0.6, alpha=0.5)
    return drawn
