"""Curves over training steps, hyper-parameters, amounts of data and seeds."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.figures.style import COLOURS, CYCLE, OTHERS, OUTSIDE, SCORE, backbone_panels, colour, drawing, widen

FEW = 5  # seeds; fewer are drawn one by one: a range or a band of them would say too little
_MARKERS = {"SimCSE": "s", "SimCSE + AMI": "^", "SimCSE + MoCo": "D"}  # the same in all pictures of few sentences


@drawing
def training_curves(history: pd.DataFrame, *, smooth: int = 5) -> Figure:
    """Loss per step, dev score, and uniformity and alignment over the steps of one run.

    history: step, loss, dev, alignment, uniformity (`Trained.history`). smooth: steps of the running mean of the loss.
    """
    fig, axes = plt.subplots(1, 3, figsize=(9.5, 2.9))
    loss, measured = (history.dropna(subset=column).set_index("step") for column in ("loss", "dev"))
    running = loss.loss.rolling(smooth, center=True, min_periods=1).mean()
    losses = pd.DataFrame({"each batch": loss.loss, f"mean of {smooth}": running})
    losses.plot(ax=axes[0], color=["0.75", colour("SimCSE")], logy=True, title="Training loss")
    measured.dev.plot(ax=axes[1], style="o-", color=colour("SimCSE"), ms=4, title="Dev score")
    geometry = measured[["alignment", "uniformity"]]
    geometry.plot(ax=axes[2], style=["o-", "s--"], ms=4, title="Geometry of the dev sentences")
    for ax, label in zip(axes, ("loss (lower is better)", SCORE, "value (lower is better)"), strict=True):
        ax.set_ylabel(label)
    widen(axes[1])
    return fig


@drawing
def pretraining_curves(frame: pd.DataFrame, *, smooth: int = 25) -> Figure:
    """Masked-language-modelling loss over the steps of several runs, and the dev score of the untuned [CLS] vector.

    frame: run, step, mlm, dev (missing where not measured). smooth: steps of the running mean of the loss, 1 for none.
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.1), subplot_kw={"prop_cycle": CYCLE})
    for run, part in frame.groupby("run", sort=False):
        loss, measured = part.dropna(subset="mlm"), part.dropna(subset="dev")
        axes[0].plot(loss.step, loss.mlm.rolling(smooth, min_periods=1).mean(), marker="", label=run)
        axes[1].plot(measured.step, measured.dev, ms=4)
    title = "Masked words" + (f", mean of {smooth} steps" if smooth > 1 else "")
    axes[0].set(xlabel="step", ylabel="cross-entropy (lower is better)", title=title)
    axes[0].legend()
    axes[1].set(xlabel="step", ylabel=SCORE, title="Untuned [CLS] on the dev pairs")
    widen(axes[1])
    return fig


@drawing
def loss_terms(frame: pd.DataFrame, terms: dict[str, str]) -> Figure:
    """Terms of the loss over the steps, a panel per term and a line per method that has it.

    frame: method, step, a column per term. terms: column -> label of its axis.
    """
    size = (min(4.2 * len(terms), 10), 3)
    fig, axes = plt.subplots(1, len(terms), figsize=size, squeeze=False, gridspec_kw={"wspace": 0.08})
    looks = dict(zip(frame.method.unique(), CYCLE(), strict=False))
    for ax, (term, label) in zip(axes[0], terms.items(), strict=True):
        for method, part in frame.dropna(subset=term).groupby("method", sort=False):
            look = looks[method]
            ax.plot(part.step, part[term], color=colour(method, look["color"]), ls=look["linestyle"], label=method)
        ax.set(xlabel="step", ylabel=label)
        ax.legend()
    return fig


@drawing
def few_shot(
    frame: pd.DataFrame,
    *,
    floors: pd.DataFrame | None = None,
    ylabel: str = SCORE,
    title: str = "",
    joined: bool = True,
) -> Figure:
    """Score over the number of training sentences, log scale, mean and range over subsets.

    frame: sentences, value (one row per subset). With a column method there is a line per method, and several methods
    have their ranges as bars side by side instead of a band; with fewer than FEW subsets each is a dot instead. With a
    column std (published values, one row per size) the range is mean ± std. With a column backbone there is a panel for
    each. floors: name, value and perhaps backbone, drawn as lines with their names. joined: by a line; False where runs
    of different sizes differ in more than the size.
    """
    backbones, spreads = list(frame.backbone.unique()) if "backbone" in frame else [""], []
    fig, axes = plt.subplots(1, len(backbones), figsize=(2.0 + 3.4 * len(backbones), 3.4), squeeze=False)
    for ax, backbone in zip(axes[0], backbones, strict=True):
        part = frame[frame.backbone == backbone].dropna(axis=1, how="all") if "backbone" in frame else frame
        spreads.append(_few_shot_panel(ax, part, joined))
        _draw_floors(ax, floors, backbone)
        widen(ax)
        ax.set_title(", ".join(filter(None, (title, backbone))))
    axes[0, 0].set_ylabel(ylabel)
    marks = {label: mark for one in axes[0] for mark, label in zip(*one.get_legend_handles_labels(), strict=True)}
    ax.legend(marks.values(), marks, title="\n".join(dict.fromkeys(spreads)), title_fontsize=9, **OUTSIDE)
    return fig


def _few_shot_panel(ax: Axes, frame: pd.DataFrame, joined: bool) -> str:
    """One panel of `few_shot`; what it shows beside the means."""
    if "method" not in frame:
        frame = frame.assign(method="SimCSE")
    is_few = "std" not in frame and frame.groupby(["method", "sentences"]).size().min() < FEW
    if "std" in frame:
        ends = (frame.value + sign * frame["std"].fillna(0) for sign in (-1, 1))
        frame = pd.concat(frame.assign(value=end) for end in ends)
    methods = frame.method.nunique()
    for i, (method, part) in enumerate(frame.groupby("method", sort=False)):
        groups = part.groupby("sentences").value.agg(["mean", "min", "max"])
        places = groups.index * 1.06 ** (i - (methods - 1) / 2)
        label, marker = method if methods > 1 else "mean over subsets", _MARKERS.get(method, "o")
        line = {} if joined else {"ls": ""}
        ax.plot(places, groups["mean"], color=colour(method), marker=marker, ms=5, label=label, **line)
        if is_few:
            dots = part.sentences * 1.06 ** (i - (methods - 1) / 2)
            ax.plot(dots, part.value, ls="", marker=marker, ms=3, color=colour(method), alpha=0.5, mew=0)
        elif methods > 1:
            ax.vlines(places, groups["min"], groups["max"], color=colour(method), lw=1.5)
        else:
            ax.fill_between(places, groups["min"], groups["max"], color=colour(method), alpha=0.15, lw=0)
    ax.set(xlabel="training sentences", xscale="log")
    sizes = sorted(frame.sentences.unique())
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    if len(sizes) == 1:  # otherwise the methods, side by side, would look like different sizes
        ax.set_xlim(sizes[0] / 2, sizes[0] * 2)
    ax.minorticks_off()
    spread = "± std" if "std" in frame else "range over the subsets"
    return "small dots: each subset" if is_few else f"{'bars' if methods > 1 else 'band'}: {spread}"


@drawing
def seed_spread(frame: pd.DataFrame, *, ylabel: str, floors: pd.DataFrame | None = None) -> Figure:
    """Score of every seed, and mean and deviation beside it, per method (JTCSE, Figure 6).

    frame: method, seed, value; with a column backbone, each has a panel. Of two methods, equal seeds are joined.
    floors: name, value and perhaps backbone: scores that a method has to beat, drawn as lines.
    """
    methods = list(frame.method.unique())
    many = len(methods) > 6  # beside each other their names would be too small to read
    width = 2.2 + (0.6 if many else 0.75) * len(methods)
    fig, backbones = backbone_panels(frame, width=width, height=3.2 if many else 3.6, stacked=many)
    for ax, backbone, rows in backbones:
        shown = [name for name in methods if name in set(rows.method)]
        if len(shown) == 2:
            for values in rows.pivot(index="seed", columns="method", values="value")[shown].to_numpy():
                ax.plot([0, 1], values, color="0.75", marker="", ls="-", lw=1, zorder=1)
        for place, method in enumerate(shown):
            values, shade = rows.value[rows.method == method], colour(method, COLOURS[0])
            ax.plot([place] * len(values), values, "o", color=shade, ms=4, alpha=0.6, mew=0)
            ax.errorbar(
                place + 0.2,
                values.mean(),
                yerr=values.std() if len(values) > 1 else 0,
                color=shade,
                fmt="s",
                ms=5,
                capsize=3,
            )
        _draw_floors(ax, floors, backbone)
        ax.set_xticks(range(len(shown)), shown, rotation=40 if len(shown) > 3 else 0)
        if len(shown) > 3:
            plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(shown) - 0.5)
        counts = rows.groupby("method").size().tolist()
        seeds = f"{min(counts)} to {max(counts)}" if len({*counts}) > 1 else f"{max(counts)}"
        ax.set_title(f"{backbone}, {seeds} seed{'s' * (max(counts) > 1)}".removeprefix(", "))
        widen(ax)
    for ax, *_ in backbones[: len(backbones) if many else 1]:
        ax.set_ylabel(ylabel)
    dot, square = ({"color": "0.3", "marker": mark, "ls": ""} for mark in "os")
    handles = [plt.Line2D([], [], **dot, ms=4, label="one seed"), plt.Line2D([], [], **square, label="mean ± std")]
    ax.legend(handles=handles, **OUTSIDE)
    return fig


@drawing
def intervals(
    frame: pd.DataFrame,
    *,
    xlabel: str,
    points: pd.DataFrame | None = None,
    line: float | None = None,
) -> Figure:
    """A value with its interval for each method, one below the other, a panel for each group; in place of bold numbers.

    frame: group, method, value, low, high (NaN: no interval). points: group, method, value of single seeds, drawn too. line:
    a value to compare with.
    """
    groups = list(frame.groupby("group", sort=False))
    heights = [part.method.nunique() + 0.5 for _, part in groups]
    size = (7.2, 0.27 * sum(heights) + 0.42 * len(groups) + 0.4)
    shape = {"squeeze": False, "sharex": True, "height_ratios": heights}
    fig, axes = plt.subplots(len(groups), 1, figsize=size, **shape)
    for ax, (group, part) in zip(axes[:, 0], groups, strict=True):
        for place, row in enumerate(part.itertuples()):
            shade = colour(row.method)
            ax.plot([row.low, row.high], [place, place], color=shade, marker="|", ms=7, ls="-", lw=2)
            ax.plot(row.value, place, color=shade, marker="s", ms=6, ls="")
            if points is not None:
                of = points[(points.group == group) & (points.method == row.method)].value
                ax.plot(of, [place] * len(of), color=shade, marker="o", ms=4, mec="0.15", mew=0.6, ls="")
        if line is not None:
            ax.axvline(line, color="0.3", lw=1)
        ax.set_yticks(range(len(part)), part.method)
        ax.set_ylim(len(part) - 0.5, -0.5)
        ax.set_title(group, loc="left", fontsize=10)
    ax.set_xlabel(xlabel)
    return fig


def _draw_floors(ax: Axes, floors: pd.DataFrame | None, backbone: str) -> None:
    """A line for each score that has to be beaten, those of this backbone. floors: name, value, perhaps backbone."""
    if floors is None:
        return
    ax.autoscale(axis="y")  # the lines belong into the picture
    for floor in (floors[floors.backbone == backbone] if "backbone" in floors else floors).itertuples():
        ax.axhline(floor.value, color="0.3", ls="--", lw=1)
        place = {"transform": ax.get_yaxis_transform(), "va": "bottom", "fontsize": 9}
        ax.text(0.01, floor.value, f"{floor.name}: {floor.value:.2f}" if floor.value else floor.name, **place)


ALIGNMENT_UNIFORMITY = {"alignment": "Alignment (lower is better)", "uniformity": "Uniformity (lower is better)"}


@drawing
def seed_bands(
    frame: pd.DataFrame,
    quantities: dict[str, str],
    *,
    logarithmic: Sequence[str] = (),
    xlabel: str = "step",
    floors: pd.DataFrame | None = None,
) -> Figure:
    """Quantities over the steps: a panel for each, a line through the mean of the seeds and a band from the smallest to
    the largest for every method (with fewer than FEW seeds a thin line for each); with a column backbone, a row of
    panels for each.

    frame: method, seed, step, a column per quantity. quantities: column -> title of its panels, with the unit.
    logarithmic: columns on a logarithmic axis, with geometric means and a line at 1. xlabel: what a step is. floors: name,
    value and perhaps backbone: scores to beat, lines in the panels of the first quantity.
    """
    parts = list(frame.groupby("backbone", sort=False)) if "backbone" in frame else [("", frame)]
    width = 3.9 if len(quantities) < 3 else 3.1
    shape, size = (len(parts), len(quantities)), (width * len(quantities), 3.1 * len(parts))
    fig, axes = plt.subplots(*shape, figsize=size, squeeze=False)
    for row, (backbone, part) in zip(axes, parts, strict=True):
        looks = dict(zip(part.method.unique(), CYCLE(), strict=False))
        shades, rest = {}, itertools.cycle(OTHERS)
        for name in looks:  # the first variant of a method has the method's colour
            own = colour(name, "")
            shades[name] = own if own and own not in shades.values() else next(rest)
        for ax, (quantity, title) in zip(row, quantities.items(), strict=True):
            for method, values in part.dropna(subset=quantity).groupby("method", sort=False):
                look, is_log = looks[method], quantity in logarithmic
                groups = (np.log(values[quantity]) if is_log else values[quantity]).groupby(values.step)
                band = groups.agg(["mean", "min", "max"])
                band = np.exp(band) if is_log else band
                shade = shades[method]
                style = {"color": shade, "ls": look["linestyle"], "marker": look["marker"], "ms": 3}
                ax.plot(band.index, band["mean"], **style, label=method)
                if values.seed.nunique() >= FEW:
                    ax.fill_between(band.index, band["min"], band["max"], color=shade, alpha=0.15, lw=0)
                else:
                    for _, one in values.groupby("seed"):
                        ax.plot(one.step, one[quantity], color=shade, marker="", lw=0.7, alpha=0.6)
            if quantity in logarithmic:
                ax.set_yscale("log")
                ax.axhline(1, color="0.3", lw=1)
            else:
                widen(ax, least=0.1)
            if ax is row[0]:
                _draw_floors(ax, floors, backbone)
            lines = textwrap.wrap(title, 24 if len(quantities) > 2 else 34)
            ax.set(xlabel=xlabel, title="\n".join(filter(None, [*lines, backbone])))
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        seeds, (marks, names) = part.groupby("method").seed.nunique(), row[-1].get_legend_handles_labels()
        drawn = "mean, range of seeds" if seeds.max() >= FEW else "mean; thin: seeds"
        names = [f"{name} ({seeds[name]})" for name in names]
        row[-1].legend(marks, names, title=f"{drawn} (number)" if seeds.max() > 1 else "(number of seeds)", **OUTSIDE)
    return fig


@drawing
def lines(
    frame: pd.DataFrame, *, x: str, xlabel: str, ylabel: str, title: str = "", floors: pd.DataFrame | None = None
) -> Figure:
    """A score over whole numbers, a line per method (JTCSE, Figure 8). frame: method, x, value; one row per point.
    floors: backbone, name and value, drawn as lines where the name of a method ends with the backbone."""
    fig, ax = plt.subplots(figsize=(5.6, 3.4), subplot_kw={"prop_cycle": CYCLE})
    for (method, part), look in zip(frame.groupby("method", sort=False), CYCLE(), strict=False):
        part = part.sort_values(x)
        ax.plot(part[x], part.value, color=colour(method, look["color"]), label=method)
    for backbone in floors.backbone.unique() if floors is not None else ():
        if frame.method.str.endswith(backbone).any():
            _draw_floors(ax, floors, backbone)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title, xticks=sorted(frame[x].unique()))
    widen(ax)
    ax.legend(**OUTSIDE if frame.method.nunique() > 5 else {})  # many names would hide the lines
    return fig


@drawing
def averages(frame: pd.DataFrame, *, floors: pd.DataFrame) -> Figure:
    """Scores of many methods below each other, in groups that were trained alike; each backbone has a panel.

    frame: group, method, backbone, seed, value; every seed is a dot, the mean a vertical stroke. The first method of a
    group is the one that the others are compared with. floors: name, backbone, value, drawn as dashed lines.
    """
    backbones = list(frame.backbone.unique())
    rows = frame[["group", "method"]].drop_duplicates()
    rows = rows.sort_values("group", key=lambda group: group.map(list(dict.fromkeys(frame.group)).index), kind="stable")
    places, names, at = {}, {}, 0
    for group, part in rows.groupby("group", sort=False):
        names[at], at = group, at + 1
        for method in part.method:
            places[group, method], at = at, at + 1
    fig, axes = plt.subplots(1, len(backbones), figsize=(2.2 + 3.6 * len(backbones), 1.1 + 0.19 * at), squeeze=False)
    for ax, backbone in zip(axes[0], backbones, strict=True):
        part = frame[frame.backbone == backbone]
        for (group, method), values in part.groupby(["group", "method"], sort=False).value:
            y, shade = places[group, method], colour(method)
            ax.plot(values, [y] * len(values), "o", color=shade, ms=4, alpha=0.7, mew=0)
            ax.plot([values.mean()] * 2, [y - 0.4, y + 0.4], color=shade, lw=2, marker="", ls="-")
        for floor in floors[floors.backbone == backbone].itertuples():
            ax.axvline(floor.value, color="0.3", ls="--", lw=1)
            ax.text(floor.value, -0.9, f"{floor.name}: {floor.value:.2f}", fontsize=9, ha="center", va="bottom")
        for y in names:
            ax.axhline(y - 0.1, color="0.85", lw=0.8)
        ax.set(ylim=(at - 0.4, -0.8), xlabel=SCORE, yticks=[])
        ax.set_title(backbone, pad=18)
        ax.grid(axis="y", visible=False)
    left = axes[0, 0]
    left.set_yticks([*names, *places.values()], [*names.values(), *(f"  {method}" for _, method in places)])
    for label, y in zip(left.get_yticklabels(), [*names, *places.values()], strict=True):
        label.set(fontsize=9, weight="bold" if y in names else "normal")
    return fig
