"""Where embeddings lie: alignment and uniformity, cosines, spectra, maps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.optimize import linear_sum_assignment

from lib.figures.attention import token_panels
from lib.figures.style import CYCLE, METHODS, OTHERS, OUTSIDE, SCORE, backbone_panels, colour, drawing, panels

_AXES = {"xlabel": "uniformity (lower is better)", "ylabel": "alignment (lower is better)"}


@drawing
def geometry_paths(frame: pd.DataFrame) -> Figure:
    """Alignment against uniformity, one path per method from its first to its last measured step (SimCSE Fig. 2).

    frame: method, step, alignment, uniformity; with a column backbone, each has a panel. The large symbol is the last
    step.
    """
    fig, backbones = backbone_panels(frame, width=5.0, height=4.0)
    others = [name for name in frame.method.unique() if name not in METHODS]
    shades = METHODS | dict(zip(others, OTHERS, strict=False))
    for ax, backbone, rows in backbones:
        for method, path in rows.sort_values("step", kind="stable").groupby("method", sort=False):
            (line,) = ax.plot(path.uniformity, path.alignment, color=shades[method], ls="-", lw=1, ms=3.5)
            look = {"color": line.get_color(), "marker": line.get_marker(), "ms": 9, "ls": "", "label": method}
            ax.plot(path.uniformity.iloc[-1], path.alignment.iloc[-1], **look)
        start = rows.sort_values("step").iloc[0]
        ax.plot(start.uniformity, start.alignment, "o", ms=10, mfc="none", mec="k", label="before training")
        ax.set(**_AXES, title=", ".join(filter(None, (backbone, f"{rows.step.max():.0f} steps"))))
    ax.legend(**OUTSIDE)
    return fig


@drawing
def geometry_scatter(frame: pd.DataFrame) -> Figure:
    """Alignment and uniformity of several encoders, coloured by their STS score (SimCSE Fig. 3).

    frame: encoder, alignment, uniformity, score.
    """
    fig, ax = plt.subplots(figsize=(6, 4))
    points = ax.scatter(frame.uniformity, frame.alignment, c=frame.score, s=60, edgecolors="k", lw=0.5)
    fig.colorbar(points, label=SCORE)
    ax.set(**_AXES, title="Where encoders place sentences")
    ax.margins(0.1)
    _name_points(ax, frame.encoder, frame.uniformity, frame.alignment)
    return fig


@drawing
def geometry_plane(frame: pd.DataFrame) -> Figure:
    """Alignment and uniformity of every encoder, mean and single seeds, a panel for each backbone; the lower left is good.

    frame: backbone, encoder (a name, beginning with the method), seed, alignment, uniformity.
    """
    backbones = list(frame.groupby("backbone"))
    height = max(4.4, 1 + 0.17 * frame.groupby("backbone").encoder.nunique().max())  # for a column of names
    fig, axes = plt.subplots(1, len(backbones), figsize=(1 + 4.9 * len(backbones), height), squeeze=False)
    for ax, (backbone, part) in zip(axes[0], backbones, strict=True):
        means = part.groupby("encoder", sort=False)[["alignment", "uniformity"]].mean()
        for encoder, rows in part.groupby("encoder", sort=False):
            shade = colour(encoder)
            ax.plot(rows.uniformity, rows.alignment, color=shade, marker="o", ms=4, mew=0, ls="", alpha=0.5)
            mean = means.loc[encoder]
            ax.plot(mean.uniformity, mean.alignment, color=shade, marker="s", ms=7, mec="k", mew=0.5, ls="")
        ax.set(**_AXES, title=backbone)
        ax.margins(0.15)
        _name_points(ax, means.index.to_series(), means.uniformity, means.alignment)
    return fig


def _name_points(ax: plt.Axes, names: pd.Series, x: pd.Series, y: pd.Series, *, apart: float = 0.042) -> None:
    """The names in a column right of all points, at least `apart` of the axes' height from each other, each with a line
    to its point; call after the limits, of which the right one makes room for them."""
    width = ax.get_window_extent().width * 72 / ax.figure.dpi  # in points, as fonts are
    share = min(0.7, 0.07 + 5.2 * names.str.len().max() / width)  # of the axes, for the names
    left, right = ax.get_xlim()
    ax.set_xticks([tick for tick in MaxNLocator(3).tick_values(left, right) if left <= tick <= right])  # none at names
    ax.set_xlim(right=right + share / (1 - share) * (right - left))
    order, (low, high), (left, right) = np.argsort(y), ax.get_ylim(), ax.get_xlim()
    apart = min(apart, 1 / len(order))
    steps, heights = apart * np.arange(len(order)), (y.iloc[order].to_numpy() - low) / (high - low)
    heights = np.clip(np.maximum.accumulate(heights - steps), 0, 1 - apart * len(order)) + steps
    column = (x.max() - left) / (right - left) + 0.05
    line = {"arrowstyle": "-", "lw": 0.6, "relpos": (0, 0.45), "shrinkA": 0, "shrinkB": 3}
    for i, height in zip(order, heights, strict=True):
        look = {"arrowprops": line | {"color": colour(names.iloc[i])}, "fontsize": 9, "va": "center"}
        place = {"xytext": (column, height), "textcoords": "axes fraction", "in_layout": False}
        ax.annotate(names.iloc[i], (x.iloc[i], y.iloc[i]), **place, **look)


@drawing
def cosine_density(frame: pd.DataFrame) -> Figure:
    """Distribution of cosines per group of gold scores, one panel per encoder (SimCSE Fig. G.1).

    frame: encoder, group, cosine.
    """
    fig, encoders = panels(frame, width=4.2, height=3.2, sharex=True, sharey=True)
    for ax, encoder, rows in encoders:
        sns.violinplot(
            rows, x="cosine", y="group", hue="group", palette="viridis", dodge=False, cut=0, inner="quart",
            density_norm="width", width=0.9, linewidth=0.8, legend=False, inner_kws={"marker": ""}, ax=ax,
        )  # fmt: skip
        ax.set(title=encoder, xlabel="cosine similarity", ylabel="gold score")
    return fig


@drawing
def token_similarity(frame: pd.DataFrame, tokens: list[str]) -> Figure:
    """Cosine of every two token vectors of one sentence, one panel per encoder on one scale of colours (3R, Figure 3).

    frame: encoder, row, column (positions), value. tokens: the word pieces.
    """
    apart = frame[frame.row != frame.column]
    means = apart.groupby("encoder").value.mean()
    titles = {name: f"{name}: mean cosine {mean:.2f}" for name, mean in means.items()}
    limits = apart.value.min(), apart.value.max()
    return token_panels(frame, tokens, titles=titles, limits=limits, label="cosine of token vectors")


@drawing
def sentence_similarity(cosines: dict[str, np.ndarray], sentences: Sequence[str]) -> Figure:
    """Cosine of every two sentences, with its value; a panel for each encoder. cosines: name -> [n, n]. Of a long sentence
    two lines are shown, so that the panels keep their place."""
    n, names = len(sentences), [f"{i}. {text}" for i, text in enumerate(sentences, start=1)]
    names = ["\n".join(textwrap.wrap(name, 46, max_lines=2, placeholder=" …")) for name in names]
    size = (max(7.8, 2.6 + (0.5 * n + 0.7) * len(cosines)), 0.38 * n + 0.9)
    fig, axes = plt.subplots(1, len(cosines), figsize=size, squeeze=False)
    look = {"annot": True, "fmt": ".2f", "annot_kws": {"size": 9}, "cmap": "viridis", "vmin": 0, "vmax": 1}
    for ax, (name, values) in zip(axes[0], cosines.items(), strict=True):
        sns.heatmap(values, **look, cbar=False, yticklabels=False, xticklabels=range(1, n + 1), ax=ax)
        ax.set_title(name)
    axes[0, 0].set_yticks(np.arange(n) + 0.5, names)  # not by seaborn, which first tries them upright and warns
    return fig


@drawing
def singular_spectrum(frame: pd.DataFrame) -> Figure:
    """Singular values relative to the largest, log scale (SimCSE Fig. F.1). frame: encoder, index, value."""
    fig, ax = plt.subplots(figsize=(5, 3.2), subplot_kw={"prop_cycle": CYCLE})
    for encoder, part in frame.groupby("encoder", sort=False):
        ax.plot(part["index"], part.value, marker="", label=encoder, color=colour(encoder))
    ax.set(xlabel="index of the singular value", ylabel="relative to the largest", yscale="log", ylim=(1e-3, 1.2))
    ax.set_title("Spectrum of the embedding matrix (flatter is more uniform)")
    ax.legend()
    return fig


@drawing
def clusters(frame: pd.DataFrame, *, title: str) -> Figure:
    """A two-dimensional map of texts, one panel per encoder, coloured by label; with a column cluster there is a second
    row coloured by what K-Means found, with the mean place of every cluster (MSSE, Figure 4).

    frame: encoder, x, y, label, perhaps cluster (whole numbers). Clusters and labels are matched one to one, with as
    many common texts in all as possible, and share their colour; clusters beyond the number of labels are grey.
    """
    rows = ["label", "cluster"] if "cluster" in frame else ["label"]
    encoders, labels = frame.encoder.unique(), sorted(frame.label.unique())
    shades = dict(zip(labels, sns.color_palette("husl", len(labels)), strict=True))
    size = (2.1 * len(encoders) + 1.6, 2.3 * len(rows) + 0.6)
    fig, axes = plt.subplots(len(rows), len(encoders), figsize=size, squeeze=False)
    dots = {"ls": "", "marker": "o", "ms": 2.4 if len(frame) < 5_000 * len(encoders) else 0.8, "mew": 0}
    for column, encoder in zip(axes.T, encoders, strict=True):
        part = frame[frame.encoder == encoder]
        for label in labels:
            points = part[part.label == label]
            column[0].plot(points.x, points.y, **dots, color=shades[label], label=label)
        column[0].set_title(encoder)
        if "cluster" in frame:
            match = _matching(part.cluster, part.label)
            for cluster, points in part.groupby("cluster"):
                shade = shades.get(match.get(cluster), "0.6")
                column[1].plot(points.x, points.y, **dots, color=shade)
                column[1].plot(points.x.mean(), points.y.mean(), "X", ms=6, color=shade, mec="k", mew=0.6)
    for ax, kind in zip(axes[:, 0], ("labels", "K-Means\n(X: mean place)"), strict=False):
        ax.set_ylabel(kind)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    legend = fig.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside right center")
    for handle in legend.legend_handles:
        handle.set_markersize(5)
    fig.suptitle(title, fontsize=11)
    return fig


@drawing
def neighbours(frame: pd.DataFrame, *, title: str) -> Figure:
    """A map of texts, one panel per encoder, with the texts nearest to something numbered and named below it.

    frame: encoder, x, y, text; rank from 1, missing for all other texts.
    """
    groups = list(frame.groupby("encoder", sort=False))
    fig, axes = plt.subplots(1, len(groups), figsize=(4.6 * len(groups), 4.6), squeeze=False)
    for ax, (encoder, part) in zip(axes[0], groups, strict=True):
        near = part.dropna(subset="rank").sort_values("rank")
        ax.plot(part.x, part.y, ls="", marker="o", ms=2.4, mew=0, color="0.75")
        ax.plot(near.x, near.y, ls="", marker="o", ms=6, mew=0, color=colour("SimCSE"))
        for one in near.itertuples():
            ax.annotate(f"{one.rank:.0f}", (one.x, one.y), (4, 3), textcoords="offset points", fontsize=9)
        named = [textwrap.shorten(f"{one.rank:.0f}. {one.text}", 60, placeholder=" …") for one in near.itertuples()]
        ax.set_xlabel("\n".join(named), loc="left")
        ax.set(title=encoder, xticks=[], yticks=[])
    fig.suptitle(title, fontsize=11)
    return fig


def _matching(found: pd.Series, labels: pd.Series) -> dict:
    """Cluster -> label, one to one, with as many common texts as possible."""
    common = pd.crosstab(found, labels)
    rows, columns = linear_sum_assignment(-common.to_numpy())
    return dict(zip(common.index[rows], common.columns[columns], strict=True))


@drawing
def pair_scatter(frame: pd.DataFrame, *, x: str, y: str, xlabel: str, ylabel: str, centroids: bool = False) -> Figure:
    """Pairs of sentences in a plane, one panel per encoder on common axes (miCSE, Figures 5 to 7).

    frame: encoder, the columns x and y, and optionally group, which gives colour and symbol; with a column backbone,
    each has a row of panels. The legend has the rank correlation of each group: one over all groups would mostly
    measure how far apart the groups lie. centroids: draw the mean of every group, and a line between them, instead.
    """
    if "group" not in frame:
        frame = frame.assign(group="")
    fig, encoders = panels(frame, width=3.7, height=3.6, sharex=True, sharey=True)
    for ax, encoder, rows in encoders:
        shade = {} if frame.group.nunique() > 1 else {"color": colour(encoder.split(": ")[-1])}
        for group in frame.group.unique():
            points = rows[rows.group == group]
            label = f"{group}: rank correlation {points[x].corr(points[y], method='spearman'):.2f}"
            label = group if centroids else label.removeprefix(": ")
            ax.plot(points[x], points[y], ls="", ms=4, mew=0, alpha=0.5, label=label, **shade)
        if centroids:
            means = rows.groupby("group", sort=False)[[x, y]].mean()
            ax.plot(means[x], means[y], "o-", color="k", ms=7, lw=1, label="mean of each group")
        ax.set(xlabel=xlabel, title=f"{encoder}, {len(rows):,} pairs")
        ax.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.1 + 0.09 * encoder.count("\n")), fontsize=9, handletextpad=0.2
        )
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(ylabel)
    return fig


@drawing
def modulus_surface(frame: pd.DataFrame) -> Figure:
    """The tensor-modulus loss over the ratio of two lengths and the cosine between them (JTCSE, Figure 3).

    frame: k (ratio), t (cosine), loss; a full grid.
    """
    grid = frame.pivot(index="t", columns="k", values="loss")
    fig, ax = plt.subplots(figsize=(5.4, 3.6))
    shades = ax.contourf(grid.columns, grid.index, grid, levels=np.linspace(0, grid.to_numpy().max(), 13))
    lines = ax.contour(grid.columns, grid.index, grid, levels=[0.25, 0.5, 0.75], colors="white", linewidths=0.7)
    ax.clabel(lines, fmt="%.2f", fontsize=9)
    fig.colorbar(shades, label="length term L (lower is better)", ticks=[0, 0.25, 0.5, 0.75, 1])
    labels = {"xlabel": "k, ratio of the two lengths", "ylabel": "t, cosine between the vectors"}
    ax.set(**labels, xscale="log", title="What the constraint on the lengths asks for")
    ax.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    ax.set_xlim(grid.columns.min(), grid.columns.max())
    ax.minorticks_off()
    return fig
