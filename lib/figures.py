"""One function per kind of picture, from tidy data frames; `save_figure` writes picture and numbers together."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib import paths

SIZE = (6, 3.6)
# The same colour for the same method in every notebook.
METHODS = ("untuned", "SimCSE", "miCSE", "InfoCSE", "MSSE", "TNCSE", "JTCSE", "3R")
_COLOURS = dict(zip(METHODS, sns.color_palette("colorblind", len(METHODS)), strict=True))


def set_style() -> None:
    """The collection's one plot style: white grid, colour-blind palette, text kept as text in SVG."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind")
    plt.rcParams.update(
        {
            "figure.figsize": SIZE,
            "figure.dpi": 90,  # inline: keeps a notebook of a dozen figures under 500 KB
            "savefig.dpi": 150,
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.labelsize": 10,
            "legend.fontsize": 9,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "svg.fonttype": "none",
            "svg.hashsalt": "figures",
            "pdf.fonttype": 42,
        }
    )


def colour(method: str) -> tuple[float, float, float]:
    """The fixed colour of a method, also with a word behind it ("JTCSE D"); grey for names that are no method."""
    return _COLOURS.get(method, _COLOURS.get(method.split(" ")[0], (0.45, 0.45, 0.45)))


def save_figure(fig: Figure, name: str, data: pd.DataFrame, *, profile: str, note: str = "", source: str = "") -> Path:
    """Write <name>.png, <name>.svg and <name>.csv (the plotted numbers); the same run gives the same bytes.

    Args:
        data: the plotted numbers; floats are written with six significant digits.
        profile: whose folder of figures.
        note: protocol, split, seeds; stands with the source under the picture and in the files' description.
        source: where the numbers come from, when that is not this run of the profile.
    """
    folder = paths.figures(profile)
    folder.mkdir(parents=True, exist_ok=True)
    description = (source or f"profile {profile}") + (f"; {note}" if note else "")
    fig.text(0, -0.015, description, va="top", fontsize=7, color="0.4")
    fig.savefig(folder / f"{name}.png", metadata={"Software": None, "Description": description})
    with matplotlib.rc_context({"svg.hashsalt": name}):
        fig.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None, "Description": description})
    data.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    return folder / f"{name}.png"


def training_curves(history: pd.DataFrame, *, smooth: int = 5) -> Figure:
    """Loss per step, dev score, and uniformity against alignment over the steps of one run.

    history: step, loss, dev, alignment, uniformity (lib.training.Trained.history).
    """
    fig, axes = plt.subplots(1, 3, figsize=(9.5, 2.9))
    loss = history.dropna(subset="loss")
    running = loss.loss.rolling(smooth, center=True, min_periods=1).mean()
    axes[0].plot(loss.step, loss.loss, color="0.75", lw=1, label="each batch")
    axes[0].plot(loss.step, running, color=colour("SimCSE"), label=f"mean of {smooth}")
    axes[0].legend()
    axes[0].set(xlabel="step", ylabel="loss (lower is better)", title="Training loss", yscale="log")
    measured = history.dropna(subset="dev")
    axes[1].plot(measured.step, measured.dev, color=colour("SimCSE"), marker="o", ms=4)
    axes[1].set(xlabel="step", ylabel="Spearman x 100 (higher is better)", title="Dev score")
    _widen(axes[1])
    for column, label in (("alignment", "alignment"), ("uniformity", "uniformity")):
        axes[2].plot(measured.step, measured[column], marker="o" if column == "alignment" else "s", ms=4, label=label)
    axes[2].set(xlabel="step", ylabel="value (lower is better)", title="Geometry of the dev sentences")
    axes[2].legend()
    return fig


def pretraining_curves(frame: pd.DataFrame, *, smooth: int = 25) -> Figure:
    """Masked-language-modelling loss over the steps of several runs, and the dev score of the untuned [CLS] vector.

    frame: run, step, mlm, dev (missing where not measured). smooth: steps of the running mean of the loss, 1 for none.
    """
    fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.1))
    for i, (run, part) in enumerate(frame.groupby("run", sort=False)):
        shade, style = sns.color_palette("colorblind")[i], ["-", "--", ":", "-."][i % 4]
        loss, measured = part.dropna(subset="mlm"), part.dropna(subset="dev")
        axes[0].plot(loss.step, loss.mlm.rolling(smooth, min_periods=1).mean(), color=shade, ls=style, label=run)
        axes[1].plot(measured.step, measured.dev, color=shade, ls=style, marker="osD^"[i % 4], ms=4, label=run)
    title = "Masked words" + (f", mean of {smooth} steps" if smooth > 1 else "")
    axes[0].set(xlabel="step", ylabel="cross-entropy (lower is better)", title=title)
    axes[0].legend()
    axes[1].set(xlabel="step", ylabel="Spearman x 100 (higher is better)", title="Untuned [CLS] on the dev pairs")
    _widen(axes[1])
    return fig


def attention_maps(frame: pd.DataFrame, tokens: list[str]) -> Figure:
    """Attention of every layer over one sentence, mean over heads, one row of maps per encoder.

    frame: encoder, layer, query, key (positions), value. tokens: the word pieces of the sentence.
    """
    encoders, layers = list(frame.encoder.unique()), frame.groupby("encoder").layer.nunique().max()
    size = 7 if len(tokens) < 15 else 5
    top = np.ceil(10 * frame.value.quantile(0.99)) / 10  # of the colours: a few larger values would hide the rest
    fig, axes = plt.subplots(
        len(encoders), layers, figsize=(1.7 * layers + 1, 2.0 * len(encoders) + 0.5), squeeze=False
    )
    for row, encoder in zip(axes, encoders, strict=True):
        part = frame[frame.encoder == encoder]
        for ax in row:
            ax.set_visible(False)
        for ax, (layer, maps) in zip(row, part.groupby("layer"), strict=False):
            ax.set_visible(True)
            values = maps.pivot(index="query", columns="key", values="value")
            image = ax.imshow(values, cmap="viridis", vmin=0, vmax=top)
            ax.set_title(f"{encoder}, layer {layer}" if ax is row[0] else f"layer {layer}", fontsize=8)
            ax.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=size)
            ax.set_yticks(range(len(tokens)), tokens if ax is row[0] else [""] * len(tokens), fontsize=size)
            ax.grid(False)
    fig.supxlabel("looks at", fontsize=8)
    fig.supylabel("looks from", fontsize=8)
    bar = fig.colorbar(image, ax=axes, shrink=0.8, extend="max")
    bar.set_label(f"attention (uniform is {1 / len(tokens):.2f})", size=8)
    bar.ax.tick_params(labelsize=8)
    return fig


def loss_terms(frame: pd.DataFrame, terms: dict[str, str]) -> Figure:
    """Terms of the loss over the steps, a panel per term and a line per method that has it.

    frame: method, step, a column per term. terms: column -> what it is called.
    """
    fig, axes = plt.subplots(1, len(terms), figsize=(4.2 * len(terms), 3), squeeze=False, gridspec_kw={"wspace": 0.08})
    styles = {method: ["-", "--", ":", "-."][i % 4] for i, method in enumerate(frame.method.unique())}
    for ax, (term, label) in zip(axes[0], terms.items(), strict=True):
        for method, part in frame.dropna(subset=term).groupby("method", sort=False):
            ax.plot(part.step, part[term], color=_line_colour(method), ls=styles[method], label=method)
        ax.set(xlabel="step", ylabel=label)
        ax.legend()
    return fig


def _widen(ax: plt.Axes, least: float = 5) -> None:
    """At least five points of score on the axis: a narrower one would make noise look like an effect."""
    low, high = ax.get_ylim()
    if high - low < least:
        ax.set_ylim((low + high - least) / 2, (low + high + least) / 2)


def geometry_paths(frame: pd.DataFrame) -> Figure:
    """Alignment against uniformity, one path per variant from its first to its last measured step (SimCSE Fig. 2).

    frame: variant, step, alignment, uniformity. The large symbol is the last step.
    """
    fig, ax = plt.subplots(figsize=(6, 4))
    others = iter(c for c in sns.color_palette("colorblind") if c != colour("SimCSE"))
    for i, (variant, path) in enumerate(frame.groupby("variant", sort=False)):
        path = path.sort_values("step")
        shade = colour(variant) if variant in METHODS else next(others)
        ax.plot(path.uniformity, path.alignment, color=shade, lw=1, marker="osD^vP"[i % 6], ms=3.5)
        last = path.iloc[-1]
        ax.plot(last.uniformity, last.alignment, color=shade, marker="osD^vP"[i % 6], ms=9, ls="none", label=variant)
    start, end = frame.sort_values("step").iloc[0], frame.step.max()
    ax.plot(start.uniformity, start.alignment, "o", ms=10, mfc="none", mec="k", label="before training")
    ax.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    ax.set_title(f"Where {end:.0f} steps of training move the embeddings")
    ax.legend()
    return fig


def geometry_scatter(frame: pd.DataFrame) -> Figure:
    """Alignment and uniformity of several encoders, coloured by their STS score (SimCSE Fig. 3).

    frame: encoder, alignment, uniformity, score.
    """
    fig, ax = plt.subplots(figsize=(6, 4))
    points = ax.scatter(frame.uniformity, frame.alignment, c=frame.score, cmap="viridis", s=60, edgecolors="k", lw=0.5)
    fig.colorbar(points, label="Spearman x 100 (higher is better)")
    ax.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    ax.margins(0.22)
    _name_points(ax, frame.encoder, frame.uniformity, frame.alignment)
    return fig


def _name_points(ax: plt.Axes, names: pd.Series, x: pd.Series, y: pd.Series, *, apart: float = 10) -> None:
    """A name beside every point, at least `apart` points of height from the names near it; call after the limits."""
    places = ax.transData.transform(np.column_stack([x, y])) * 72 / ax.figure.dpi
    taken: list[tuple[float, float, float]] = []  # left, right and height of the names so far
    for i in np.argsort(places[:, 1]):
        left, height = places[i]
        right = left + 12 + 5 * len(names.iloc[i])
        for other_left, other_right, other_height in taken:  # from the lowest to the highest
            if left < other_right and other_left < right and height < other_height + apart:
                height = other_height + apart
        taken.append((left, right, height))
        lift = height - places[i, 1]
        line = {"arrowstyle": "-", "lw": 0.5, "color": "0.6"} if lift > apart / 2 else None
        ax.annotate(
            names.iloc[i], (x.iloc[i], y.iloc[i]), textcoords="offset points", xytext=(8, lift - 2), fontsize=8,
            arrowprops=line,
        )  # fmt: skip


def sweep(frame: pd.DataFrame, x: str, *, label: str, title: str, reference: pd.DataFrame | None = None) -> Figure:
    """A score over the values of one hyper-parameter: mean over seeds with the range of the seeds as bars.

    frame: x, seed, value. reference: x, value of the paper, in a panel of its own (other model, other data).
    """
    panels = 1 if reference is None else 2
    fig, axes = plt.subplots(1, panels, figsize=(1 + 3.6 * panels, 2.9), squeeze=False)
    groups = frame.groupby(x, sort=False).value.agg(["mean", "min", "max"])
    bars = np.stack([groups["mean"] - groups["min"], groups["max"] - groups["mean"]])
    axes[0, 0].errorbar(range(len(groups)), groups["mean"], yerr=bars, color=colour("SimCSE"), marker="s", capsize=3)
    seeds = frame.seed.nunique()
    axes[0, 0].set(title=f"{title}, measured, {seeds} seed{'s' * (seeds > 1)}")
    axes[0, 0].set_xticks(range(len(groups)), [f"{v:g}" if isinstance(v, float) else str(v) for v in groups.index])
    if reference is not None:
        axes[0, 1].plot(range(len(reference)), reference.value, color="0.4", marker="o", ls="--")
        axes[0, 1].set(title=f"{title}, paper, BERT-base")
        axes[0, 1].set_xticks(range(len(reference)), [str(v) for v in reference[x]])
    for ax in axes[0]:
        ax.set(xlabel=label, ylabel="dev, Spearman x 100")
        _widen(ax)
    return fig


def cosine_density(frame: pd.DataFrame) -> Figure:
    """Distribution of cosines per group of gold scores, one panel per encoder (SimCSE Fig. G.1).

    frame: encoder, group, cosine.
    """
    encoders = list(frame.encoder.unique())
    fig, axes = plt.subplots(
        1, len(encoders), figsize=(4.2 * len(encoders), 3.2), sharex=True, sharey=True, squeeze=False
    )
    for ax, encoder in zip(axes[0], encoders, strict=True):
        part = frame[frame.encoder == encoder]
        sns.violinplot(
            part, x="cosine", y="group", hue="group", palette="viridis", dodge=False, cut=0, inner="quart",
            density_norm="width", width=0.9, linewidth=0.8, legend=False, ax=ax,
        )  # fmt: skip
        ax.set(title=encoder, xlabel="cosine similarity", ylabel="gold score")
    return fig


def singular_spectrum(frame: pd.DataFrame) -> Figure:
    """Singular values relative to the largest, log scale (SimCSE Fig. F.1). frame: encoder, index, value."""
    fig, ax = plt.subplots(figsize=(5, 3.2))
    for i, (encoder, part) in enumerate(frame.groupby("encoder", sort=False)):
        ax.plot(part["index"], part.value, ls=["-", "--", ":", "-."][i % 4], label=encoder)
    ax.set(xlabel="index of the singular value", ylabel="relative to the largest", yscale="log", ylim=(1e-3, 1.2))
    ax.set_title("Spectrum of the embedding matrix (flatter is more uniform)")
    ax.legend()
    return fig


def clusters(frame: pd.DataFrame, *, title: str) -> Figure:
    """A two-dimensional map of texts, coloured by topic, one panel per encoder. frame: encoder, x, y, label."""
    encoders = list(frame.encoder.unique())
    fig, axes = plt.subplots(1, len(encoders), figsize=(4.6 * len(encoders), 4.2), squeeze=False)
    labels = sorted(frame.label.unique())
    colours = dict(zip(labels, sns.color_palette("husl", len(labels)), strict=True))
    for ax, encoder in zip(axes[0], encoders, strict=True):
        for i, (label, group) in enumerate(frame[frame.encoder == encoder].groupby("label")):
            ax.scatter(group.x, group.y, s=12, color=colours[label], marker="os^Dv*"[i % 6], lw=0, label=label)
        ax.set(title=encoder, xticks=[], yticks=[])
    axes[0, -1].legend(fontsize=8, markerscale=1.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
    fig.suptitle(title, fontsize=11)
    return fig


def few_shot(
    frame: pd.DataFrame,
    *,
    untuned: float | None = None,
    ylabel: str = "Spearman x 100 (higher is better)",
    title: str = "",
) -> Figure:
    """Score over the number of training sentences, log scale, mean and range over subsets.

    frame: sentences, value (one row per subset), and perhaps method, a line each, with the range as bars side by side
    instead of a band; with a column std (published values, one row per size) it is that. untuned: score before training,
    drawn as a line.
    """
    fig, ax = plt.subplots(figsize=(5.4, 3.4))
    if "method" not in frame:
        frame = frame.assign(method="SimCSE")
    several = frame.method.nunique() > 1
    middle = (frame.method.nunique() - 1) / 2
    for i, (method, part) in enumerate(frame.groupby("method", sort=False)):
        groups = part.groupby("sentences").value.agg(["mean", "min", "max"])
        if "std" in part:
            deviation = part.set_index("sentences")["std"].fillna(0)
            groups["min"], groups["max"] = groups["mean"] - deviation, groups["mean"] + deviation
        shade, label = _line_colour(method), method if several else "mean over subsets"
        places = groups.index * 1.06 ** (i - middle)
        ax.plot(places, groups["mean"], color=shade, marker=_MARKS.get(method, "s"), ms=5, label=label)
        if several:
            ax.vlines(places, groups["min"], groups["max"], color=shade, lw=1.5)
        else:
            ax.fill_between(places, groups["min"], groups["max"], color=shade, alpha=0.15, lw=0)
    if untuned is not None:
        ax.axhline(untuned, color=colour("untuned"), ls="--", label="untuned")
    ax.set(xlabel="training sentences", ylabel=ylabel, xscale="log", title=title)
    sizes = sorted(frame.sentences.unique())
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    _widen(ax)
    ax.minorticks_off()
    band = "± std" if "std" in frame else "range over the subsets"
    ax.legend(
        title=f"{'bars' if several else 'band'}: {band}",
        title_fontsize=8,
        fontsize=8,
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
    )
    return fig


# components of a method, which are no methods of their own
_PARTS = {"SimCSE + AMI": (0.35, 0.2, 0.55), "SimCSE + MoCo": sns.color_palette("colorblind")[9]}
_MARKS = {"SimCSE": "s", "SimCSE + AMI": "^", "SimCSE + MoCo": "D", "miCSE": "o"}


def _line_colour(method: str) -> tuple[float, float, float]:
    return _PARTS.get(method, colour(method))


def pair_scatter(frame: pd.DataFrame, *, x: str, y: str, xlabel: str, ylabel: str) -> Figure:
    """Pairs of sentences in a plane, one panel per encoder, with rank correlations (miCSE, Figures 5 to 7).

    frame: encoder, the columns x and y, and perhaps group, which gives colour and symbol; the rank correlation is that
    of each group, in the legend (all groups together would mostly measure how far apart they lie).
    """
    encoders = list(frame.encoder.unique())
    size = (3.7 * len(encoders), 3.6)
    fig, axes = plt.subplots(1, len(encoders), figsize=size, sharex=True, sharey=True, squeeze=False)
    groups = list(frame.group.unique()) if "group" in frame else [None]
    for ax, encoder in zip(axes[0], encoders, strict=True):
        part = frame[frame.encoder == encoder]
        for i, group in enumerate(groups):
            points = part if group is None else part[part.group == group]
            label = f"rank correlation {points[x].corr(points[y], method='spearman'):.2f}"
            label = label if group is None else f"{group}: {label}"
            ax.scatter(points[x], points[y], s=9, alpha=0.5, marker="o^sD"[i % 4], color=f"C{i}", label=label)
        ax.set(xlabel=xlabel, title=f"{encoder}, {len(part):,} pairs")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), fontsize=8, handletextpad=0.2)
    axes[0, 0].set_ylabel(ylabel)
    return fig


def joint_histograms(frame: pd.DataFrame, *, bins: int = 20) -> Figure:
    """Log attention of view 1 against view 2, a panel per layer (rows) and head (columns), encoders side by side.

    frame: encoder, layer, head, view1, view2 (natural logarithms); miCSE, Figure 8. Darker cells hold more entries; on
    the dashed diagonal both views attend alike. All panels of a layer have the same axes; each says its correlation.
    """
    encoders, layers, heads = (list(frame[name].unique()) for name in ("encoder", "layer", "head"))
    shape = (len(layers), len(encoders) * len(heads))
    fig, axes = plt.subplots(*shape, figsize=(1.55 * shape[1] + 0.6, 1.5 * shape[0] + 0.5), squeeze=False)
    limits = frame.groupby("layer")[["view1", "view2"]].agg(["min", "max"])
    for (encoder, layer, head), part in frame.groupby(["encoder", "layer", "head"], sort=False):
        ax = axes[layers.index(layer), encoders.index(encoder) * len(heads) + heads.index(head)]
        low, high = limits.loc[layer].min(), limits.loc[layer].max()
        edges = np.linspace(low, high, bins + 1)
        ax.hist2d(part.view1, part.view2, bins=[edges, edges], cmap="Blues", cmin=1, rasterized=True, vmin=-3)
        ax.plot([low, high], [low, high], color="0.3", lw=0.7, ls="--")
        ax.text(0.05, 0.83, f"ρ {part.view1.corr(part.view2):.2f}", transform=ax.transAxes, fontsize=9)
        ax.tick_params(labelsize=8, pad=1)
        ax.locator_params(nbins=3)
        ax.grid(False)
        if ax in axes[0]:
            ax.set_title(f"{encoder}\nhead {head}", fontsize=9)
        if ax in axes[:, 0]:
            ax.set_ylabel(f"layer {layer}", fontsize=9)
        else:
            ax.set_yticklabels([])
    fig.supxlabel("log attention in the first pass", fontsize=9)
    fig.supylabel("log attention in the second pass\n", fontsize=9)  # an empty line beside the layers
    return fig


def modulus_surface(frame: pd.DataFrame) -> Figure:
    """The tensor-modulus loss over the ratio of two lengths and the cosine between them (JTCSE, Figure 3).

    frame: k (ratio), t (cosine), loss; a full grid.
    """
    grid = frame.pivot(index="t", columns="k", values="loss")
    fig, ax = plt.subplots(figsize=(5.4, 3.6))
    levels = np.linspace(0, grid.to_numpy().max(), 13)
    shades = ax.contourf(grid.columns, grid.index, grid, levels=levels, cmap="viridis")
    lines = ax.contour(grid.columns, grid.index, grid, levels=[0.25, 0.5, 0.75], colors="white", linewidths=0.7)
    ax.clabel(lines, fmt="%.2f", fontsize=8)
    fig.colorbar(shades, label="length term L (lower is better)", ticks=[0, 0.25, 0.5, 0.75, 1])
    ax.set(xlabel="k, ratio of the two lengths", ylabel="t, cosine between the vectors", xscale="log")
    ticks = [k for k in (0.2, 0.5, 1, 2, 5) if grid.columns.min() <= k * 1.001 and k <= grid.columns.max() * 1.001]
    ax.set_xticks(ticks, [f"{k:g}" for k in ticks])
    ax.minorticks_off()
    return fig


def token_shares(frame: pd.DataFrame) -> Figure:
    """Where the attention of each layer goes, one panel per encoder; the dashed lines are uniform attention.

    frame: encoder, layer, group, share, tokens (lib.attention.token_shares).
    """
    encoders, groups = list(frame.encoder.unique()), list(frame.group.unique())
    size = (2.6 * len(encoders) + 1.6, 3)
    fig, axes = plt.subplots(1, len(encoders), figsize=size, sharey=True, squeeze=False)
    for ax, encoder in zip(axes[0], encoders, strict=True):
        part = frame[frame.encoder == encoder]
        for i, group in enumerate(groups):
            rows = part[part.group == group].sort_values("layer")
            mark = {"marker": "osD^v"[i % 5], "ms": 5, "mfc": "none"}
            ax.plot(rows.layer, rows.share, color=f"C{i}", label=group, **mark)
            ax.axhline(rows.tokens.iloc[0], color=f"C{i}", ls="--", lw=0.7)
        ax.plot([], [], color="0.3", ls="--", lw=0.7, label="uniform attention")
        ax.set(title=encoder, xlabel="layer")
    axes[0, 0].set(ylabel="share of the attention", ylim=(0, None))  # shared, so after all panels
    axes[0, -1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    return fig


def energy_scatter(frame: pd.DataFrame) -> Figure:
    """CLS energy and score of single encoders, with rank correlations (JTCSE, Figure 10).

    frame: encoder, energy, score; an encoder may have several rows, one per seed.
    """
    fig, ax = plt.subplots(figsize=(5.6, 3.8))
    for i, (encoder, part) in enumerate(frame.groupby("encoder", sort=False)):
        ax.plot(part.energy, part.score, "osD^vP*X<>"[i % 10], color=colour(encoder), mfc="none", ms=7, label=encoder)
    trained = frame[frame.encoder != "untuned"]
    both = [rows.energy.corr(rows.score, method="spearman") for rows in (frame, trained)]
    without = f", without the untuned encoder {both[1]:.2f}" if len(trained) < len(frame) else ""
    ax.set_title(f"rank correlation {both[0]:.2f}{without}", fontsize=10)
    ax.set(xlabel="CLS energy: length of [CLS] over that of all other tokens", ylabel="test, Spearman x 100")
    _widen(ax)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return fig


def seed_spread(frame: pd.DataFrame, *, ylabel: str) -> Figure:
    """Score of every seed (grey), mean and deviation, per method (JTCSE, Figure 6). frame: method, seed, value."""
    fig, ax = plt.subplots(figsize=(5.6, 3.4))
    groups = frame.groupby("method", sort=False).value.agg(["mean", "std"])
    places = {method: i for i, method in enumerate(groups.index)}
    seeds = int(frame.groupby("method").size().max())
    ax.scatter(
        frame.method.map(places),
        frame.value,
        s=30,
        marker="_",
        color="0.3",
        label=f"{seeds} seed{'s' * (seeds > 1)}",
        zorder=3,
    )
    deviation = groups["std"].fillna(0)
    ax.errorbar(range(len(groups)), groups["mean"], yerr=deviation, fmt="s", capsize=3, label="mean ± std")
    ax.set_xticks(range(len(groups)), groups.index, rotation=30, ha="right")
    ax.set(xlabel="", ylabel=ylabel)
    _widen(ax)
    ax.legend()
    return fig


def lines(frame: pd.DataFrame, *, x: str, xlabel: str, ylabel: str) -> Figure:
    """A score over whole numbers, a line per method (JTCSE, Figure 8). frame: method, x, value; one row per point."""
    fig, ax = plt.subplots(figsize=(5.6, 3.4))
    for i, (method, part) in enumerate(frame.groupby("method", sort=False)):
        ax.plot(
            part[x],
            part.value,
            color=_line_colour(method),
            ls=["-", "--", ":", "-."][i % 4],
            marker="osD^vP"[i % 6],
            label=method,
        )
    ax.set(xlabel=xlabel, ylabel=ylabel, xticks=sorted(frame[x].unique()))
    _widen(ax)
    ax.legend()
    return fig
