"""Where sentences and tokens lie: the plane of alignment and uniformity, matrices, pairs, maps of texts."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from lib.figures import style
from lib.figures.style import drawing


@drawing
def plane(frame: pd.DataFrame, *, score: str = "") -> Figure:
    """Alignment against uniformity, the lower left is good, a panel for each backbone: a path for each method from its first
    step to its last, with a dot for each seed and a large symbol for their mean.

    Args:
        frame: method or encoder; metric and value, or columns alignment and uniformity; perhaps step, seed, backbone, ...
        score: a further column, which stands behind the names.
    """
    frame = frame.assign(step=frame.step.fillna(0) if "step" in frame else 0)
    if "metric" in frame:
        keys = ["place", "encoder", "step", "seed"]
        frame = frame.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    if score:
        frame["encoder"] += frame[score].map(", {:.1f}".format)
    frame = frame.dropna(subset=["uniformity", "alignment"]).sort_values("step", kind="stable")
    is_path, look = frame.step.nunique() > 1, style.looks(frame.encoder)
    fig, panels = style.grid(frame, "", "place", 3.6, 3.6, right=0.6 + 0.08 * frame.encoder.str.len().max())
    about = {"x": "uniformity", "y": "alignment", "hue": "encoder", "style": "encoder"} | look
    for ax, _, place, part in panels:
        steps = part.groupby(["encoder", "step"], sort=False)[["uniformity", "alignment"]].mean().reset_index()
        last = part.groupby(["encoder", "seed"]).tail(1)
        for name, path in steps.groupby("encoder"):
            ax.plot(path.uniformity, path.alignment, color=look["palette"][name], marker=".", ms=4, lw=1)
        ends = last.groupby("encoder", sort=False)[["uniformity", "alignment"]].mean().reset_index()
        sns.scatterplot(last, **about, s=16, lw=0, alpha=0.6, legend=False, ax=ax)
        sns.scatterplot(ends, **about, s=50, lw=0.6, edgecolor="k", zorder=3, legend=ax is fig.axes[-1], ax=ax)
        if is_path:
            first = steps.groupby("encoder").head(1)
            ax.plot(first.uniformity, first.alignment, "o", ms=9, mfc="none", mec="k", mew=0.8)
        ax.set(
            xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)" if style.is_first(ax) else ""
        )
        lengths = part.groupby("encoder").step.max()
        taken = " to ".join(f"{number:.0f}" for number in sorted({lengths.min(), lengths.max()}))
        ax.set_title(style.stacked(place, f"{taken} steps; ring: start" if is_path else ""))
        ax.margins(0.08)
        ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.legend(**style.OUTSIDE)
    return fig


def cells(matrices: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """The frame of `heatmaps` (encoder, row, column, value) from a matrix for each name."""
    frames = {name: pd.DataFrame(np.asarray(matrix)).stack() for name, matrix in matrices.items()}
    return pd.concat(frames, names=["encoder", "row", "column"]).rename("value").reset_index()


@drawing
def heatmaps(
    frame: pd.DataFrame, labels: Sequence[str], *, annotate: bool = False, label: str = "", xlabel: str = ""
) -> Figure:
    """A value for every two tokens or sentences, which have a number: a panel for each encoder; with a column layer a row for
    each encoder, a panel for each layer.

    Args:
        frame: encoder or method, row, column (positions from 0), value; perhaps layer, backbone.
        annotate: write the values into the panels, with colours from 0 to 1, in place of a scale beside them, which `label`
            names. That has what lies off the diagonal, but for the largest hundredth.
    """
    is_deep, n = "layer" in frame, len(labels)
    if is_deep:
        frame["place"], frame["encoder"] = frame.place + "\n" + frame.encoder, frame.layer
    apart = frame.value[frame.row != frame.column]
    low, high = (0, 1) if annotate else (apart.min(), apart.quantile(0.99))
    texts = [f"{number} {text}" for number, text in enumerate(labels, start=1)]
    texts = ["\n".join(textwrap.wrap(text, 46, max_lines=2, placeholder=" …")) for text in texts]
    wide, tall = (0.5, 0.38) if annotate else (0.09, 0.16) if is_deep else (0.2, 0.17)
    right = (0.5 if annotate else 1.2) + 0.075 * max(len(line) for text in texts for line in text.split("\n"))
    width, height = max(wide * n, 0.75) + 0.35, max(tall * n, 0.7) + 0.5
    fig, panels = style.grid(frame, "place", "encoder", width, height, right=right)
    look = {"annot": annotate, "fmt": ".2f", "annot_kws": {"size": 9}, "cmap": "viridis", "vmin": low, "vmax": high}
    for ax, line, panel, part in panels:
        first, every = style.is_first(ax), max(1, n // 4) if is_deep else 1
        matrix = part.pivot(index="row", columns="column", values="value")
        sns.heatmap(matrix, **look, cbar=False, xticklabels=False, yticklabels=False, ax=ax)
        ax.set(xlabel="", ylabel=line.strip() * first, title=f"layer {panel}" if is_deep else panel)
        ax.set_xticks(np.arange(0, n, every) + 0.5, range(1, n + 1, every), rotation=0)
        ax.set_yticks(np.arange(n) + 0.5, [text * first for text in texts], rotation=0)
    fig.supxlabel(xlabel, fontsize=10)
    if not annotate:
        extend = "max" if frame.value.max() > high else "neither"
        fig.colorbar(ax.collections[0], ax=fig.axes, shrink=0.8, extend=extend, aspect=25, label=label)
    return fig


@drawing
def scatter(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    group: str = "",
    hue: str = "",
    panel: str = "encoder",
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Dots in a plane, a panel for each encoder and a row of panels for each backbone; above each its rank correlation.

    Args:
        frame: encoder or method, x, y; perhaps group, backbone, ...
        group: column of what has a colour and, in place of a correlation, which would mostly say how far apart the groups
            lie, its mean and a line between the means.
        hue: column of what has a colour alone, such as "method".
        panel: column of what has a panel, in place of encoders, whose panels have the same axes.
    """
    kind, is_shared = group or hue or "encoder", panel == "encoder"
    frame["kind"] = frame[kind].astype(str)
    has_legend = (kind != "encoder" or not is_shared) and frame.kind.nunique() > 1
    look, right = style.looks(frame.kind), 0.6 + 0.08 * frame.kind.str.len().max() if has_legend else 0.4
    fig, panels = style.grid(frame, "place", panel, 3.0, 3.0, right=right, sharex=is_shared, sharey=is_shared)
    about = {"x": x, "y": y, "hue": "kind", "style": "kind", "s": 30, "lw": 0, "alpha": 0.7}
    for ax, place, name, part in panels:
        sns.scatterplot(part, **about, **look, legend=has_legend and ax is fig.axes[-1], ax=ax)
        below = "" if group else f"rank correlation: {part[x].corr(part[y], method='spearman'):.2f}"
        if group:
            means = part.groupby("kind", sort=False)[[x, y]].mean()
            ax.plot(means[x], means[y], "ks-", ms=7, mec="w", label="mean of each group")
        ax.set(xlabel="", ylabel=style.stacked(place, ylabel or y) if style.is_first(ax) else "")
        ax.set_title(style.stacked(name, below))
        ax.locator_params(nbins=4)
    fig.supxlabel(xlabel or x, fontsize=10)
    if has_legend:
        ax.legend(**style.OUTSIDE)
    return fig


@drawing
def text_map(frame: pd.DataFrame) -> Figure:
    """A map of texts, a panel for each encoder.

    With labels, each has a colour. With clusters too, a second row has what K-Means found, in the colours of the labels with
    which they share most texts (one to one; clusters beyond the number of labels are grey), and the mean place of each. With
    ranks in place of both, the nearest texts are numbered, and named below the map.

    frame: encoder or method, x, y; label and perhaps cluster, or text and rank (from 1, else missing).
    """
    if frame.place.nunique() > 1:
        frame["encoder"] = frame.place + "\n" + frame.encoder
    if "rank" in frame:
        return _nearest(frame)
    labels = sorted(frame.label.unique(), key=lambda one: (int(one) if str(one).isdigit() else 0, str(one)))
    shades = dict(zip(labels, sns.color_palette("husl", len(labels)).as_hex(), strict=True))
    parts = [frame.assign(line="labels", shade=frame.label.map(shades))]
    if "cluster" in frame and frame.cluster.notna().all():
        for _, part in frame.groupby("encoder", sort=False):
            shade = part.cluster.map(_matches(part)).map(shades).fillna("0.6")
            parts.append(part.assign(line="K-Means (X: mean place)", shade=shade))
    columns = 1 + (len(labels) > 12)
    right = (0.5 + 0.08 * max(len(str(one)) for one in labels)) * columns
    fig, panels = style.grid(pd.concat(parts), "line", "encoder", 2.4, 2.4, right=right)
    for ax, line, name, part in panels:
        ax.scatter(part.x, part.y, c=part.shade, s=6 if len(part) < 5000 else 1, linewidths=0)
        for _, points in part.groupby("cluster") if line != "labels" else ():
            ax.plot(points.x.mean(), points.y.mean(), "X", ms=7, color=points.shade.iloc[0], mec="k", mew=0.7)
        ax.set(xticks=[], yticks=[], title=name if line == "labels" else "", ylabel=line if style.is_first(ax) else "")
    dots = [plt.Line2D([], [], ls="", marker="o", ms=5, mew=0, color=shades[one]) for one in labels]
    fig.legend(dots, labels, loc="outside right center", ncols=columns)
    return fig


def _matches(part: pd.DataFrame) -> dict[object, str]:
    """Cluster -> the label that it stands for: one to one, with as many common texts as possible."""
    common = pd.crosstab(part.cluster, part.label)
    rows, columns = linear_sum_assignment(-common.to_numpy())
    return {common.index[i]: common.columns[j] for i, j in zip(rows, columns, strict=True)}


def _nearest(frame: pd.DataFrame) -> Figure:
    """`text_map` with ranks."""
    fig, panels = style.grid(frame, "", "encoder", 4.2, 3.9)
    for ax, _, name, part in panels:
        near = part.dropna(subset="rank").sort_values("rank")
        ax.plot(part.x, part.y, ls="", marker="o", ms=2.4, mew=0, color="0.75")
        ax.plot(near.x, near.y, ls="", marker="o", ms=6, mew=0, color=style.colour("SimCSE"))
        texts, right, up = [], near.x - near.x.mean(), near.y - near.y.mean()
        far = np.hypot(right, up).replace(0, 1) / 10  # a number stands ten points outwards of its dot
        for rank, text, x, y, *beside in zip(
            near["rank"], near.text, near.x, near.y, right / far, up / far, strict=True
        ):
            about = {"textcoords": "offset points", "fontsize": 9, "ha": "center", "va": "center"}
            ax.annotate(f"{rank:.0f}", (x, y), beside, **about)
            texts.append(textwrap.shorten(f"{rank:.0f}. {text}", 56, placeholder=" …"))
        ax.set(title=name, xticks=[], yticks=[])
        ax.set_xlabel("\n".join(texts), loc="left", fontsize=9)
    return fig


@drawing
def named_map(frame: pd.DataFrame, *, under: Mapping[str, str] | None = None) -> Figure:
    """A map of labelled texts, a panel for each encoder: a dot in the colour of its label, or a dark cross where K-Means puts
    the text into a cluster that stands for another label (as in `text_map`). A label is written where its texts lie densest.

    Args:
        frame: encoder or method, x, y, label, cluster.
        under: encoder -> what stands below its name, such as a score.
    """
    labels = sorted(frame.label.unique())
    shades = dict(zip(labels, sns.husl_palette(len(labels), l=0.6).as_hex(), strict=True))
    fig, panels = style.grid(frame, "", "encoder", 4.1, 4.5)
    for ax, _, name, part in panels:
        is_wrong, size = part.cluster.map(_matches(part)) != part.label, 5 if len(part) > 2000 else 12
        right, wrong = part[~is_wrong], part[is_wrong]
        ax.set_rasterization_zorder(1.5)  # thousands of dots are one picture, the names stay text
        ax.scatter(right.x, right.y, c=right.label.map(shades), s=size, lw=0)
        ax.scatter(wrong.x, wrong.y, c="0.15", marker="x", s=1.6 * size, lw=0.55)
        ax.set_title(
            style.stacked(name, (under or {}).get(name, ""), f"{100 * is_wrong.mean():.0f} % in a wrong cluster (×)")
        )
        ax.set(xticks=[], yticks=[])
        ax.margins(0.03)
        _write_labels(ax, part, shades)
    return fig


def _write_labels(ax: Axes, part: pd.DataFrame, shades: Mapping[str, str]) -> None:
    """Each label where its texts lie densest, further up where another one is written; call after the limits are set."""
    places, written = {}, []
    for label, texts in part.groupby("label"):
        at = texts[["x", "y"]].to_numpy()
        near, _ = cKDTree(at).query(at, k=[1 + len(at) // 4])  # how far its own nearest quarter reaches
        places[label] = at[near[:, 0].argmin()]
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    wide, tall = 0.021 * (right - left), 0.043 * (high - low)  # of a letter, in a panel of `named_map`
    for label, (x, y) in sorted(places.items(), key=lambda one: one[1][1]):
        half = wide * len(label) / 2
        x = min(max(x, left + half), right - half)
        while any(abs(x - other) < half + room and abs(y - below) < tall for other, below, room in written):
            y += tall / 4
        written.append((x, y, half))
        dark = sns.dark_palette(shades[label], 4).as_hex()[2]
        text = ax.text(x, y, label, size=10, weight="bold", ha="center", va="center", color=dark)
        text.set_path_effects([patheffects.withStroke(linewidth=2.5, foreground="w")])
