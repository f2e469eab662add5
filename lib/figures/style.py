"""What all pictures share: style sheet, colours, names, panels, and the files of a picture."""

import functools
import itertools
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import paths, session
from lib.comparison import NAMES

COLOURS = sns.color_palette("colorblind").as_hex()  # those of the style sheet
# A method has the same colour in every notebook.
METHODS = {
    "untuned": COLOURS[7], "SimCSE": COLOURS[0], "SimCSE + AMI": "#8c2d04", "SimCSE + MoCo": COLOURS[9],
    "miCSE": COLOURS[2], "InfoCSE": COLOURS[3], "DiffCSE": "#33691e", "InfoCSE + RTD": "#7a0177", "MSSE": COLOURS[4], "sum of stage 1": "#00695c", "NCE": "#8a6d00", "TNCSE": COLOURS[1], "JTCSE": "#59338c",
    "SimCSE + 3R": COLOURS[5], "MSSE w/o DCM and ICM": "#6d3b5e", "InforMin-CL": "#b15928", "SSCL": "#1b4f72", "MSSE w/o NCE": "#9e9d24",
    "ESimCSE": "#c2185b", "ArcCSE": "#5d4037", "RankCSE": "#0097a7", "PromptBERT": "#7e57c2",
}  # fmt: skip
SHIPPED = {"mini-bert": "untuned", "mini-bert-simcse": "SimCSE", "mini-bert-msse": "MSSE"}  # encoders, by their methods
OTHERS = ("#e7298a", "#00a6a6", "#2b2b2b", "#a3a300", "#8c8cff", "#9c6644", "#7fbf3f")  # no method's: for what is none
MARKERS, DASHES = "osD^vP*X<>", ("", (4, 1.5), (1, 1), (4, 1.5, 1, 1.5))
OUTSIDE = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5), "title_fontsize": 9}  # a legend right of its axes
SCORE = "Spearman x 100 (higher is better)"
VARIANTS = ("settings", "pooling", "sentences")  # in which rows of one method may differ
# The files of a picture leave these columns out where all rows say the same.
CONDITIONS = (
    "source paper table settings pooling sentences precision device profile task split protocol aggregation group layer "
    "step label cluster"
)

Panel = tuple[Axes, str, str, pd.DataFrame]  # axes, value of its row, its own value, and its rows of the frame


def colour(method: str, other: str = "0.45") -> str:
    """The fixed colour of a method, also with words behind it ("JTCSE D", "SimCSE + 3R, chosen"); that of the method
    for an encoder of SHIPPED; `other` (grey) for names that are no method."""
    method = method.split("\n")[0]  # what stands below is no part of the name
    name = method.split(",")[0].split(" (")[0]
    name = SHIPPED.get(name, name)
    return METHODS.get(name) or METHODS.get(name.split(" ")[0], other)


def looks(names: Iterable[str], *, dashed: bool = False) -> dict[str, Any]:
    """The colour and marker, and the dashes if asked for, of each of these names, as options of seaborn. Further variants of
    a method have a darker and a lighter shade of its colour."""
    shades, others = {}, itertools.cycle(OTHERS)
    for name in dict.fromkeys(names):
        tones = []
        if own := colour(name, ""):
            tones = [own, *(sns.blend_palette([own, end], 3).as_hex()[1] for end in ("black", "white"))]
        shades[name] = next((tone for tone in tones if tone not in shades.values()), None) or next(others)
    markers, dashes = (list(itertools.islice(itertools.cycle(kind), len(shades))) for kind in (MARKERS, DASHES))
    look = {"hue_order": list(shades), "style_order": list(shades), "palette": shades, "markers": markers}
    return look | ({"dashes": dashes} if dashed else {})


def names(frame: pd.DataFrame, *within: str, but: str = "") -> pd.Series:
    """The methods. One whose rows in one panel differ in VARIANTS has these behind it: no mean mixes them.

    within: columns by which panels differ, beside encoders. but: the variant that the picture shows anyway.
    """
    text = frame.method.astype(str)
    keys = [name for name in ("source", "backbone", *within, "method") if name in frame]
    for extra in (name for name in VARIANTS if name in frame and name not in (but, *within)):
        differs = frame.groupby(keys, dropna=False)[extra].transform("nunique") > 1
        form = "{:,} sentences" if extra == "sentences" else "{}"
        words = [form.format(value) if pd.notna(value) else "" for value in frame[extra]]
        text = text.where(~frame.method.isin(frame.method[differs]), text + ", " + words)
    return text


def prepared(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with what panels and lines are called: place (the backbone as the text calls it, behind its source where
    there are several), encoder (the method, where there is no such column), and seed as text."""
    place = frame.backbone.astype(str).replace(NAMES) if "backbone" in frame else pd.Series("", frame.index)
    if "source" in frame and frame.source.nunique() > 1:
        place = frame.source + ": " + place
    encoder = frame.encoder if "encoder" in frame else names(frame) if "method" in frame else ""
    seed = frame.seed.astype(str).fillna("") if "seed" in frame else ""
    return frame.assign(place=place, encoder=encoder, seed=seed)


def stacked(*lines: object) -> str:
    """The lines that are not empty, one below the other."""
    return "\n".join(filter(None, map(str, lines)))


def drawing(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """A function that draws a figure from a frame; it takes a title, and with `save="name"` keeps both by `save_figure`, to
    which `note` goes. The texts are texts: `$` in a sentence begins no formula."""

    @functools.wraps(draw)
    def drawn(frame: pd.DataFrame, *arguments, title: str = "", save: str = "", note: str = "", **options) -> Figure:
        with matplotlib.rc_context({"text.parse_math": False}):
            if not len(frame):
                fig = plt.figure(figsize=(6, 0.5))
                fig.text(0.01, 0.5, f"not measured yet: {title or save or draw.__name__}", va="center")
                return fig
            fig = draw(prepared(frame), *arguments, **options)
            if title:
                fig.suptitle(textwrap.fill(title, int(10.5 * fig.get_figwidth())), x=0.01, ha="left", fontsize=12)
        for axis in [axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) if axis.get_scale() == "log"]:
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):  # powers of ten are formulas
                tick.label1.set_parse_math(True)
        if save:
            save_figure(fig, save, frame, note=note)
        return fig

    return drawn


def grid(
    frame: pd.DataFrame, row: str, panel: str, width: float, height: float, *, right: float = 0, **shared: object
) -> tuple[Figure, list[Panel]]:
    """Panels of that size in inches: a row for each value of one column (if any), a panel for each of another; `right` inches
    for what stands right of them."""
    lines = list(frame.groupby(row or (lambda _: ""), sort=False))
    most = max(part[panel].nunique() for _, part in lines)
    size = (width * most + right, height * len(lines))
    fig, axes = plt.subplots(len(lines), most, figsize=size, squeeze=False, **shared)
    filled = []
    for line, (name, part) in zip(axes, lines, strict=True):
        panels = list(part.groupby(panel, sort=False))
        filled += [(ax, name, value, rows) for ax, (value, rows) in zip(line, panels, strict=False)]
        for ax in line[len(panels) :]:
            ax.remove()
    return fig, filled


def is_first(ax: Axes) -> bool:
    """Whether a panel is the first of its row."""
    return ax.get_subplotspec().is_first_col()


def widen(ax: Axes, least: float, axis: str = "y") -> None:
    """Give an axis at least this length: a shorter one would make noise look like an effect."""
    low, high = getattr(ax, f"get_{axis}lim")()
    if high - low < least:
        getattr(ax, f"set_{axis}lim")((low + high - least) / 2, (low + high + least) / 2)


def draw_floors(ax: Axes, floors: pd.DataFrame | None, rows: pd.DataFrame, axis: str = "y") -> str:
    """A dashed line for each score that the rows of a panel have to beat, and a text that names them. Scores of the demo, on
    sentences of its own, have no floor.

    floors: name, value, perhaps backbone.
    """
    if floors is None or ("source" in rows and rows.source.str.contains("demo").all()):
        return ""
    if "backbone" in floors and "backbone" in rows:
        floors = floors[floors.backbone.isin(rows.backbone)]
    ax.autoscale(axis=axis)  # the lines belong into the picture
    for value in floors.value:
        (ax.axhline if axis == "y" else ax.axvline)(value, color="0.3", ls="--", lw=1, zorder=1)
    return stacked(*(f"dashed: {floor.name}, {floor.value:.2f}" for floor in floors.itertuples()))


def save_figure(fig: Figure, name: str, data: pd.DataFrame, *, note: str = "") -> Path:
    """Write <name>.png, <name>.svg and <name>.csv to the profile's folder of figures (that of `lib.setup`), return the
    first; the same run gives the same bytes.

    data: the plotted numbers; written without conditions that are the same in all rows, with six significant digits. note:
    protocol, split, seeds; stands behind the source of the numbers, under the picture and in the description of the files.
    Raises DataError where the folder cannot be written.
    """
    sources = data.source.str.removeprefix("this run, ") if "source" in data else [session.profile]
    parts = [f"profile {name}" if name in paths.PROFILES else name for name in dict.fromkeys(sources)]
    folder, text = paths.figures(session.profile), "; ".join([*parts, *[note] * bool(note)])
    below = {"va": "top", "fontsize": 9, "color": "0.4", "parse_math": False}
    fig.text(0, -0.015, textwrap.fill(text, int(13 * fig.get_figwidth())), **below)
    for kind, fields in {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}.items():
        with paths.whole_file(folder / f"{name}.{kind}") as new, matplotlib.rc_context({"svg.hashsalt": name}):
            fig.savefig(new, format=kind, metadata=fields | {"Description": text})
    same = [column for column in CONDITIONS.split() if column in data and data[column].nunique(dropna=False) == 1]
    with paths.whole_file(folder / f"{name}.csv") as new:
        numbers = data.drop(columns=["run_id", *same], errors="ignore")
        numbers.to_csv(new, index=False, float_format="%.6g", lineterminator="\n")
    return folder / f"{name}.png"
