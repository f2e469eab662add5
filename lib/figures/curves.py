"""Scores and quantities: a dot for each seed, gains with their intervals, curves over steps or layers."""

from collections.abc import Collection, Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from lib.comparison import WORTH
from lib.figures import style
from lib.figures.style import drawing

TITLES = {
    "alignment": "Alignment (lower is better)",
    "uniformity": "Uniformity (lower is better)",
    "loss": "Training loss",
    "dev": "Dev score, Spearman x 100",
}


@drawing
def points(
    frame: pd.DataFrame,
    *,
    x: str = "method",
    floors: pd.DataFrame | None = None,
    xlabel: str = "",
    ylabel: str = style.SCORE,
    log: bool = False,
    joined: bool = False,
) -> Figure:
    """Every seed as a dot, and their mean, a panel for each backbone: over names, which stand below each other, or over
    numbers, a colour for each method.

    Args:
        frame: x, value; perhaps group (bold headings above names), method, backbone, source, settings, ...; std where a row
            is itself a mean (a paper's).
        x: the column of names ("method", "settings") or of numbers ("sentences"); log: these on a logarithmic axis.
        floors: name, backbone, value; scores to beat, dashed.
        joined: a line through the means; not where sizes differ in more than the size.
    """
    if pd.api.types.is_numeric_dtype(frame[x]):
        fig, panels = _over_numbers(frame, x, log, joined)
        xlabel, axis = xlabel or x, "y"
    else:
        fig, panels = _blocks(frame, x)
        xlabel, axis = f"{ylabel}; a dot is a seed, a stroke the mean", "x"
        for ax, *_, part in panels:
            ax.scatter(part.value, part.y, c=part.shade, s=16, alpha=0.7, lw=0)
            means = part.groupby(["y", "shade"]).value.mean().reset_index()
            ax.vlines(means.value, means.y - 0.38, means.y + 0.38, means["shade"], lw=2)
    fig.supxlabel(xlabel, fontsize=10)
    if axis == "y":
        fig.supylabel(ylabel, fontsize=10)
    for ax, _, place, part in panels:
        ax.set_title(style.stacked(place, style.draw_floors(ax, floors, part, axis)))
        style.widen(ax, 5, axis)
    return fig


def _over_numbers(frame: pd.DataFrame, x: str, log: bool, joined: bool) -> tuple[Figure, list[style.Panel]]:
    """`points` over numbers: a symbol for each mean, with its seeds in small."""
    frame = frame.dropna(subset=x).astype({x: float})
    frame["name"] = style.names(frame, but=x) if "method" in frame else frame.encoder
    fig, panels = style.grid(frame, "", "place", 3.3, 3.3, right=0.9 + 0.08 * frame.name.str.len().max())
    about, look = {"x": "at", "y": "value", "hue": "name", "style": "name"}, style.looks(frame.name)
    lines = style.looks(frame.name, dashed=True) if joined else look | {"dashes": False, "ls": ""}
    for ax, *_, part in panels:
        own = pd.Series(pd.factorize(part.name)[0], part.index)
        shift = own - own.max() / 2  # side by side, where several methods have the same number
        step = 0.015 * (frame[x].max() - frame[x].min())
        part = part.assign(at=part[x] * 1.06**shift if log else part[x] + step * shift)
        sns.scatterplot(part, **about, **look, s=9, alpha=0.5, lw=0, legend=False, ax=ax)
        sns.lineplot(part, **about, **lines, errorbar=None, ms=6, mew=0, legend=ax is fig.axes[-1], ax=ax)
        for name, rows in part.dropna(subset="std").groupby("name") if "std" in part else ():
            ax.errorbar(rows["at"], rows.value, rows["std"], fmt="none", ecolor=look["palette"][name], capsize=2)
        ax.set(xscale="log" if log else "linear", xlabel="", ylabel="")
        if len(ticks := sorted(part[x].unique())) < 8:
            ax.set_xticks(ticks, [f"{tick:,.7g}" for tick in ticks])
            ax.minorticks_off()
        if len(ticks) == 1:  # otherwise the methods, side by side, would look like different numbers
            ax.set_xlim(ticks[0] / 2, ticks[0] * 2)
    sns.move_legend(ax, **style.OUTSIDE, title=f"mean{' ± std' if 'std' in frame else ''}; small: seeds")
    return fig, panels


@drawing
def intervals(
    frame: pd.DataFrame,
    *,
    by: str = "method",
    seeds: pd.DataFrame | None = None,
    xlabel: str = "gain, points; bar: 95 % interval",
) -> Figure:
    """Gains with their intervals, a row for each name, a panel for each backbone.

    Args:
        frame: the names (column `by`), gain, low, high (NaN: no interval), as `compare(...).reset_index()` gives them;
            perhaps backbone, group (bold headings above names). Rows without a gain are left out.
        seeds: a row for each seed, with the same columns but low and high: dots.
    """
    frame = frame.dropna(subset="gain").assign(is_seed=False)
    if seeds is not None:
        frame = pd.concat([frame, style.prepared(seeds).assign(is_seed=True)])
    fig, panels = _blocks(frame, by, sharex=True)
    for ax, _, place, part in panels:
        dots, means = part[part.is_seed], part[~part.is_seed]
        ax.hlines(means.y, means.low, means.high, means["shade"], lw=2)
        ax.scatter(means.gain, means.y, c=means["shade"], marker="s", s=36, lw=0)
        ax.scatter(dots.gain, dots.y, c=dots["shade"], s=14, edgecolors="0.15", linewidths=0.6, zorder=3)
        ax.axvline(0, color="0.3", lw=1, zorder=1)
        ax.set_title(place)
    fig.supxlabel(xlabel, fontsize=10)
    return fig


@drawing
def forest(frame: pd.DataFrame, *, floors: pd.DataFrame) -> Figure:
    """Gains with their intervals, a panel for each backbone, a row for each method, the highest gain first. Right of it the
    method's mean, on how many tasks it gains, and its work. Bold: the interval lies above 0, the mean above the floor.

    Args:
        frame: method, backbone, mean, gain, low, high, tasks ("5 of 7"), work, as `level.standings` gives them; a row without
            a gain is what the others are compared with.
        floors: name, backbone, value.
    """
    ends = pd.concat([frame.low, frame.high, frame.gain, pd.Series([-WORTH, 2 * WORTH])]).agg(["min", "max"])
    parts = [(place, part.sort_values("gain", ascending=False)) for place, part in frame.groupby("place", sort=False)]
    heights = [1.2 + 0.27 * part.gain.count() for _, part in parts]
    shape = {"figsize": (7.6, sum(heights)), "height_ratios": heights, "squeeze": False}
    fig, axes = plt.subplots(len(parts), 1, **shape)
    for ax, (place, part) in zip(axes.flat, parts, strict=True):
        floor = floors[floors.backbone.isin(part.backbone)]
        known = [f"{row.method} {row.mean:.2f}" for row in part[part.gain.isna()][["method", "mean"]].itertuples()]
        known += [f"floor {value:.2f} ({name})" for name, value in zip(floor.name, floor.value, strict=True)]
        ax.set_title("; ".join([place, *known]), loc="left")
        part = part.dropna(subset="gain")
        rows, shades = range(len(part)), part.method.map(style.colour)
        ax.axvspan(-999, WORTH, color="0.93", lw=0, zorder=0)
        ax.axvline(0, color="0.3", lw=1, zorder=1)
        ax.hlines(rows, part.low, part.high, shades, lw=2.5)
        ax.scatter(part.gain, rows, c=shades, marker="s", s=42, lw=0, zorder=3)
        ax.set(xlim=ends + np.array([-0.05, 0.05]) * (ends["max"] - ends["min"]), ylim=(len(part) - 0.4, -0.6))
        ax.set_yticks(rows, part.method)
        for label, is_above in zip(
            ax.get_yticklabels(), (part.low > 0) & ~(part["mean"] <= floor.value.max()), strict=True
        ):
            label.set_weight("bold" if is_above else "normal")
        work = part.work.map("{:.1f} ×".format, na_action="ignore").fillna("")
        columns = {"mean": part["mean"].map("{:.2f}".format), "tasks\nthat gain": part.tasks, "work": work}
        for at, (name, values) in zip((1.09, 1.23, 1.36), columns.items(), strict=True):
            about = {"xycoords": ax.get_yaxis_transform(), "ha": "center", "fontsize": 9, "annotation_clip": False}
            ax.annotate(name, (at, -0.6), (0, 4), textcoords="offset points", va="bottom", color="0.4", **about)
            for row, value in zip(rows, values, strict=True):
                ax.annotate(value, (at, row), va="center", **about)
        ax.grid(axis="y", visible=False)
    below = f"gain, points (bar: 95 % interval; grey: gains below {WORTH:g})"
    fig.supxlabel(below, fontsize=10)
    return fig


@drawing
def waterfall(frame: pd.DataFrame, *, xlabel: str = "Spearman x 100") -> Figure:
    """From one number to another: the first row is where it starts, the last where it ends, those between are steps.

    frame: name, value (of a step: what it adds).
    """
    values = frame.value.to_numpy(float)
    starts = np.array([0.0, *values[:-2].cumsum(), 0.0])
    ends = starts + values
    is_step = np.arange(len(values)) % (len(values) - 1) > 0
    shades = np.where(values < 0, style.colour("MSSE"), style.colour("SimCSE"))
    fig, ax = plt.subplots(figsize=(7, 0.8 + 0.4 * len(frame)))
    ax.barh(range(len(frame)), values, left=starts, color=np.where(is_step, shades, "0.6"), height=0.6)
    for y, value in enumerate(values):
        text, place = (f"{value:+.2f}" if is_step[y] else f"{value:.2f}"), (max(starts[y], ends[y]), y)
        ax.annotate(text, place, (4, 0), textcoords="offset points", va="center")
    low, high = np.minimum(ends, np.where(is_step, starts, ends)).min(), ends.max()
    ax.set_xlim(low - 0.3 * (high - low) - 0.5, high + 0.15 * (high - low) + 0.5)
    ax.set_yticks(range(len(frame)), frame.name)
    ax.invert_yaxis()
    ax.set_xlabel(xlabel)
    ax.grid(axis="y", visible=False)
    return fig


def _blocks(frame: pd.DataFrame, by: str, **shared: object) -> tuple[Figure, list[style.Panel]]:
    """Panels as `grid` gives them, one for each backbone, with a line for each name, under headings if there is a column
    group. The rows have the height of their line, y, and their colour, shade."""
    frame = frame.assign(name=style.names(frame, "group") if by == "method" else frame[by].astype(str))
    frame["block"] = frame["group"].astype(str) if "group" in frame else ""
    lines = []  # block and name; without a name a heading
    for block, part in frame.groupby("block", sort=False):
        lines += [(block, "")] * bool(block) + [(block, name) for name in part.name.unique()]
    frame["y"] = [lines.index(line) for line in zip(frame.block, frame.name, strict=True)]
    both = zip(frame.name, frame.method if "method" in frame else frame.name, strict=True)
    frame["shade"] = [style.colour(name, "") or style.colour(str(method)) for name, method in both]
    fig, panels = style.grid(frame, "", "place", 3.3, 1.1 + 0.22 * len(lines), right=2, **shared)
    for ax, *_ in panels:
        ax.set_ylim(len(lines) - 0.4, -0.6)
        ax.set_yticks(range(len(lines)), [(name or block) * style.is_first(ax) for block, name in lines])
        for y in (y for y, (_, name) in enumerate(lines) if not name):
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
    limits: Mapping[str, tuple[float, float]] | None = None,
    floors: pd.DataFrame | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Values over steps or layers: a panel for each metric, a row of panels for each backbone, a line for each method
    through the mean of its seeds, in a band from the smallest to the largest.

    Args:
        frame: x, value, method or encoder; perhaps metric, seed, backbone, source, settings, ...
        hue: the column that gives lines; "encoder" is the method, where there is no such column.
        panel: the column that gives panels; but for "metric", panels of a row have the same axis of values.
        titles: value of `panel` -> title with its unit, in the order of the panels; others are left out. None: all.
        log: values of `panel` on a logarithmic axis, with geometric means; a line at 1, where values lie on both sides.
        limits: value of `panel` -> both ends of its axis, such as 0 and 1 of a share.
        floors: name, backbone, value; scores to beat, dashed in the first panels.
    """
    frame = frame.assign(panel=frame[panel].astype(str) if panel in frame else "", name=frame[hue].astype(str))
    frame = frame.dropna(subset=["value", x]).astype({x: float, "value": float})
    titles = titles or {one: TITLES.get(one, one) for one in frame.panel.unique()}
    frame = frame[frame.panel.isin(titles)]
    titles = {one: title for one, title in titles.items() if one in set(frame.panel)}
    rows, looks, earlier = list(frame.groupby("place", sort=False)), style.looks(frame.name, dashed=True), []
    looks |= {"errorbar": ("pi", 100), "err_kws": {"alpha": 0.15, "lw": 0}, "ms": 4, "mew": 0}
    width, right = {1: 4.6, 2: 3.7, 3: 3.1}.get(len(titles), 2.7), 1.3 + 0.08 * frame.name.str.len().max()
    size, shared = (width * len(titles) + right, 2.7 * len(rows) + 0.3), False if panel == "metric" else "row"
    fig, axes = plt.subplots(len(rows), len(titles), figsize=size, squeeze=False, sharey=shared)
    for line, (place, part) in zip(axes, rows, strict=True):
        for ax, (one, title) in zip(line, titles.items(), strict=True):
            inside = part[part.panel == one]
            if one in log:  # seaborn takes means on the scale of the axis
                low, high = inside.value.min(), inside.value.max()
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
                ax.yaxis.set_major_formatter("{x:g}")
                if low < 1 < high:
                    ax.axhline(1, color="0.3", lw=1, zorder=1)
            look = looks if inside[x].nunique() < 25 else looks | {"markers": False}  # many would hide the line
            sns.lineplot(inside, x=x, y="value", hue="name", style="name", **look, legend=ax is line[-1], ax=ax)
            if one not in log:
                style.widen(ax, 5 if one in ("dev", "spearman") else 0.02)  # these are in points
            if limits and one in limits:
                ax.set_ylim(limits[one])
            dashed = style.draw_floors(ax, floors, inside) if ax is line[0] else ""
            ax.set_title(style.stacked(title if ax in axes[0] else "", dashed))
            ax.set(xlabel=(xlabel or x) if ax in axes[-1] else "", ylabel="")
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=(inside[x] % 1 == 0).all()))
        line[0].set_ylabel(style.stacked(place, ylabel))
        handles, every = line[-1].get_legend_handles_labels()
        marks = {name: mark for name, mark in zip(every, handles, strict=True) if name in set(part.name)}
        seeds = part.groupby(["panel", "name"]).seed.nunique().groupby("name").max()
        legend = [f"{name}, {seeds[name]} seeds" if seeds[name] > 1 else name for name in marks]
        line[-1].legend(marks.values(), legend, **style.OUTSIDE).set_visible(legend != earlier)
        earlier = legend  # rows with the same lines have one
    return fig
