"""What encoders attend to, and how much of it [CLS] keeps."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.figures.style import CYCLE, OUTSIDE, colour, drawing, panels, widen


@drawing
def attention_maps(frame: pd.DataFrame, tokens: list[str]) -> Figure:
    """Attention of every layer over one sentence, mean over heads, one row of maps per encoder (and backbone, if there
    are several). Tokens are numbered; their names stand on the left.

    frame: encoder, layer, query, key (positions), value; perhaps backbone. tokens: the word pieces of the sentence.
    """
    if "backbone" in frame and frame.backbone.nunique() > 1:
        frame = pd.concat(part for _, part in frame.groupby("backbone", sort=False))
        frame = frame.assign(encoder=frame.backbone + "\n" + frame.encoder)
    encoders = frame.groupby("encoder", sort=False)
    shape = (len(encoders), encoders.layer.nunique().max())
    height = 0.15 * len(tokens) + 0.4  # of a map, so that the names of all tokens can be read
    fig, axes = plt.subplots(*shape, figsize=(1.5 * shape[1] + 1.6, height * shape[0] + 0.5), squeeze=False)
    names, every = [f"{token} {number}" for number, token in enumerate(tokens, start=1)], max(1, len(tokens) // 4)
    top = np.ceil(10 * frame.value.quantile(0.99)) / 10  # of the colours: a few larger values would hide the rest
    for row, (encoder, part) in zip(axes, encoders, strict=True):
        layers = part.groupby("layer")
        for ax, (layer, values) in zip(row, layers, strict=False):
            first = ax is row[0]
            values = values.pivot(index="query", columns="key", values="value")
            image = ax.imshow(values, vmin=0, vmax=top, aspect="auto")
            ax.set_title(f"{encoder}\nlayer {layer}" if first else f"layer {layer}", fontsize=9)
            ax.set_xticks(range(0, len(tokens), every), range(1, len(tokens) + 1, every), fontsize=9)
            ax.set_yticks(range(len(tokens)), names if first else [""] * len(tokens), fontsize=9)
            ax.grid(False)
        for ax in row[len(layers) :]:
            ax.set_visible(False)
    fig.supxlabel("looks at (number of the token)", fontsize=9)
    fig.supylabel("looks from", fontsize=9)
    bar = fig.colorbar(image, ax=axes, shrink=0.8, extend="max")
    bar.set_label(f"attention (uniform is {1 / len(tokens):.2f})", size=9)
    return fig


@drawing
def token_panels(
    frame: pd.DataFrame, tokens: list[str], *, titles: dict[str, str], limits: tuple[float, float], label: str
) -> Figure:
    """A value for every two tokens of one sentence, one panel per encoder on one scale of colours.

    frame: encoder, row, column (positions), value. tokens: the word pieces. titles: encoder -> title. limits: of the
    colours. label: of the scale.
    """
    encoders = list(frame.groupby("encoder", sort=False))
    side = min(1.6 + 0.21 * len(tokens), max(9.6 / len(encoders), 0.9 + 0.14 * len(tokens)))  # a page wide, if legible
    fig, axes = plt.subplots(1, len(encoders), figsize=(side * len(encoders) + 0.6, side), squeeze=False)
    for ax, (encoder, part) in zip(axes[0], encoders, strict=True):
        image = ax.imshow(part.pivot(index="row", columns="column", values="value"), vmin=limits[0], vmax=limits[1])
        ax.set_title(titles.get(encoder, encoder), fontsize=9)
        ax.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=9)
        ax.set_yticks(range(len(tokens)), tokens if ax is axes[0, 0] else [""] * len(tokens), fontsize=9)
        ax.grid(False)
    fig.colorbar(image, ax=axes, shrink=0.8).set_label(label, size=9)
    return fig


@drawing
def joint_histograms(frame: pd.DataFrame, *, bins: int = 20) -> Figure:
    """Log attention of view 1 against view 2, a panel per layer (rows) and head (columns), encoders side by side.

    frame: encoder, layer, head, view1, view2 (natural logarithms); miCSE, Figure 8. Darker cells hold more entries. On
    the dashed diagonal both views attend alike. All panels of a layer have the same axes; each says its correlation.
    """
    layers, heads = frame.groupby("layer", sort=False), frame.groupby(["encoder", "head"], sort=False)
    size = (1.55 * len(heads) + 0.6, 1.5 * len(layers) + 0.5)
    fig, axes = plt.subplots(len(layers), len(heads), figsize=size, sharex="row", sharey="row", squeeze=False)
    for row, (layer, entries) in zip(axes, layers, strict=True):
        views = entries[["view1", "view2"]].to_numpy()
        edges = np.linspace(views.min(), views.max(), bins + 1)
        for ax, (_, part) in zip(row, entries.groupby(["encoder", "head"], sort=False), strict=True):
            ax.hist2d(part.view1, part.view2, bins=[edges, edges], cmap="Blues", cmin=1, rasterized=True, vmin=-3)
            ax.plot(edges, edges, color="0.3", lw=0.7, ls="--")
            ax.text(0.05, 0.83, f"ρ {part.view1.corr(part.view2):.2f}", transform=ax.transAxes, fontsize=9)
            ax.tick_params(labelsize=9, pad=1)
            ax.locator_params(nbins=3)
            ax.grid(False)
        row[0].set_ylabel(f"layer {layer}", fontsize=9)
    for ax, (encoder, head) in zip(axes[0], heads.groups, strict=True):
        ax.set_title(f"{encoder}\nhead {head}", fontsize=9)
    fig.suptitle("Do two passes of one sentence attend alike?", fontsize=11)
    fig.supxlabel("log attention in the first pass", fontsize=9)
    fig.supylabel("log attention in the second pass\n", fontsize=9)  # an empty line beside the layers
    return fig


@drawing
def token_shares(frame: pd.DataFrame) -> Figure:
    """Where the attention of each layer goes, one panel per encoder; the dashed lines are uniform attention.

    frame: encoder, layer, group, share, tokens (`lib.analysis.attention.token_shares`). With a column backbone,
    each has its own row of panels.
    """
    fig, encoders = panels(frame, width=2.8, height=2.9, sharey=True)
    for ax, encoder, rows in encoders:
        for group in frame.group.unique():
            part = rows[rows.group == group].sort_values("layer")
            if not len(part):
                ax.plot([], [])  # a group keeps its look in all panels
                continue
            (line,) = ax.plot(part.layer, part.share, ls="-", ms=5, mfc="none", label=group)
            ax.axhline(part.tokens.iloc[0], color=line.get_color(), ls="--", lw=0.7)
        ax.plot([], [], color="0.3", ls="--", lw=0.7, marker="", label="uniform attention")
        ax.set(title=encoder.replace(": ", "\n"), xlabel="layer")
    first_row = [ax for ax, *_ in encoders if ax.get_subplotspec().is_first_row()]
    marks = {label: mark for ax, *_ in encoders for mark, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    marks["uniform attention"] = marks.pop("uniform attention")  # the last one
    for ax, *_ in encoders:
        if ax.get_subplotspec().is_first_col():
            ax.set(ylabel="share of the attention", ylim=(0, None))  # shared, so after all panels
    first_row[-1].legend(marks.values(), marks, **OUTSIDE)
    return fig


@drawing
def energy_scatter(frame: pd.DataFrame) -> Figure:
    """CLS energy and score of single encoders (JTCSE, Figure 10), with the rank correlation of what a panel shows, the
    untuned encoder left out.

    frame: encoder, energy, score; an encoder may have several rows, one per seed. With a column panel
    (`lib.analysis.energy.panels`) there is a panel for each; those after the first are without the seed's mean. With a
    column backbone, each has a row.
    """
    frame = frame.assign(**{name: "" for name in ("backbone", "panel") if name not in frame})
    shape = frame.backbone.nunique(), frame.panel.nunique()
    size = {"figsize": (1.6 + 2.8 * shape[1], 3.1 * shape[0]), "squeeze": False}
    fig, axes = plt.subplots(*shape, **size, subplot_kw={"prop_cycle": CYCLE})
    for row, (backbone, part) in zip(axes, frame.groupby("backbone", sort=False), strict=True):
        for ax, panel in zip(row, frame.panel.unique(), strict=True):
            rows, after = part[part.panel == panel], "" if ax is row[0] else "\nwithout the seed's mean"
            for encoder in frame.encoder.unique():  # the same symbols in all panels
                points = rows[rows.encoder == encoder]
                ax.plot(points.energy, points.score, ls="", color=colour(encoder), mfc="none", ms=6, label=encoder)
            trained = rows[rows.encoder != "untuned"]
            ax.set_title(f"{panel or 'CLS energy'}: ρ {trained.energy.corr(trained.score, method='spearman'):.2f}")
            ax.set_xlabel(f"CLS energy{after}")
            ax.xaxis.set_major_locator(MaxNLocator(3))  # small differences have long labels
            widen(ax)
        row[0].set_ylabel(f"{backbone}\ntest, Spearman x 100".strip())
    axes[0, -1].legend(**OUTSIDE)
    return fig
