"""Figures are tested by what is drawn, their numbers and their bytes, not by their pixels."""

import io

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from lib import figures, paths, session


@pytest.fixture(autouse=True)
def style(monkeypatch):
    monkeypatch.setattr(session, "profile", "demo")
    plt.style.use(paths.root() / "lib" / "figures" / "style.mplstyle")
    yield
    plt.close("all")


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


SCORES = table("method backbone seed value", ("SimCSE", "u", 1, 60.0), ("SimCSE", "u", 2, 62.0), ("MSSE", "u", 1, 64.0), ("MSSE", "v", 1, 70.0))  # fmt: skip
SIZES = table("method sentences seed value", ("SimCSE", 10, 1, 1.0), ("SimCSE", 10, 2, 3.0), ("SimCSE", 100, 1, 5.0), ("miCSE", 10, 1, 9.0))  # fmt: skip
GAINS = table("method backbone gain low high", ("miCSE", "u", 1.0, 0.5, 1.5), ("MSSE", "u", 2.0, 1.0, 4.0), ("miCSE", "v", 3.0, np.nan, np.nan))  # fmt: skip
STANDING = table("method backbone mean gain low high tasks work", ("NCE", "u", 61.5, 1.0, 0.4, 1.6, "2 of 2", 4.0), ("SimCSE", "u", 60.5, np.nan, np.nan, np.nan, None, 1.0), ("MSSE", "u", 62.5, 2.0, -1.0, 5.0, "1 of 2", np.nan), ("SSCL", "u", 58.5, -2.0, -3.0, -1.0, "0 of 2", 1.5))  # fmt: skip
COURSE = table("method backbone metric step seed value", *((m, b, q, s, seed, seed * 10.0**s) for m in ("SimCSE", "miCSE") for b in "uv" for q in ("alignment", "uniformity") for s in (0, 1, 2) for seed in (1, 2)))  # fmt: skip
MAPS = table("encoder layer row column value", *((e, n, q, k, 0.1 * q + 0.2 * k) for e in "ab" for n in (1, 2) for q in (0, 1) for k in (0, 1)))  # fmt: skip
TOKENS = MAPS[MAPS.layer == 1].drop(columns="layer").reset_index(drop=True)
PAIRS = table("encoder group a b", *(("SimCSE", g, a, s * a) for g, s in (("x", 1.0), ("y", -1.0)) for a in range(4)), ("miCSE", "y", 1, 2.0), ("miCSE", "y", 2, 3.0))  # fmt: skip
TEXTS = table("encoder x y label cluster", *(("a", x, 0.0, n, c) for x, (n, c) in enumerate(zip("uuuvvv", (1, 1, 1, 0, 0, 2), strict=True))))  # fmt: skip
NEAR = table("encoder x y text rank", ("a", 0, 0, "one", 1.0), ("a", 1, 1, "two", np.nan), ("b", 2, 2, "one", 2.0), ("b", 3, 3, "two", 1.0))  # fmt: skip
FLOORS = pd.DataFrame({"name": ["words"], "backbone": ["u"], "value": [59.0]})
STEPS = pd.DataFrame({"name": ["claimed", "mean pooling", "not explained", "yours"], "value": [70.0, -3.0, 1.0, 68.0]})
DRAWN = {
    "points": (figures.points, SCORES, {"floors": FLOORS}),
    "sizes": (figures.points, SIZES, {"x": "sentences", "log": True}),
    "intervals": (figures.intervals, GAINS, {}),
    "forest": (figures.forest, STANDING, {"floors": FLOORS}),
    "curves": (figures.curves, COURSE, {"log": ["uniformity"]}),
    "plane": (figures.plane, COURSE, {}),
    "maps": (figures.heatmaps, MAPS, {"labels": ["[CLS]", "x"]}),
    "tokens": (figures.heatmaps, TOKENS, {"labels": ["[CLS]", "x"]}),
    "pairs": (figures.scatter, PAIRS, {"x": "a", "y": "b", "group": "group"}),
    "clusters": (figures.text_map, TEXTS, {}),
    "named": (figures.named_map, TEXTS, {}),
    "nearest": (figures.text_map, NEAR, {}),
    "waterfall": (figures.waterfall, STEPS, {}),
}


def draw(kind, **options):
    function, frame, known = DRAWN[kind]
    return function(frame, **known | options)


def lines(ax, **look):
    """The points of the lines of an axes that look like that, (x, y) each."""
    return [line.get_xydata().tolist() for line in ax.lines if all(plt.getp(line, k) == v for k, v in look.items())]


def names(legend):
    return [text.get_text() for text in legend.get_texts()]


# --- All of them ---


@pytest.mark.parametrize("kind", DRAWN)
def test_the_same_data_give_the_same_bytes_and_the_plotted_numbers(kind):
    folder, written = paths.figures("demo"), []
    for _ in range(2):
        before = DRAWN[kind][1].copy()
        fig = draw(kind, save="x", note="dev", title="what it shows")
        written.append([(folder / f"x.{suffix}").read_bytes() for suffix in ("png", "svg", "csv")])
        pd.testing.assert_frame_equal(DRAWN[kind][1], before)
    assert written[0] == written[1]
    kept = pd.read_csv(io.BytesIO(written[0][2]))
    pd.testing.assert_frame_equal(kept, before[kept.columns], check_dtype=False)
    assert {*before} - {*kept} <= {"layer", "group", "label", "step"}  # where they are the same in all rows
    assert fig.get_suptitle() == "what it shows" and fig.texts[-1].get_text() == "profile demo; dev"
    assert Image.open(folder / "x.png").info["Description"] == "profile demo; dev"


@pytest.mark.parametrize("kind", DRAWN)
def test_an_empty_frame_is_not_measured_yet_and_every_text_of_another_can_be_read_and_is_no_formula(kind):
    function, frame, known = DRAWN[kind]
    fig = function(frame[:0], **known, save="x", title="gains")
    assert fig.texts[0].get_text() == "not measured yet: gains" and not paths.figures("demo").exists()
    text = {name: frame[name].astype(str) + " $5_{ and $6" for name in ("encoder", "text", "label") if name in frame}
    fig = function(frame.assign(**text), **known, title="costs $5_{ and $6")
    texts = [text for text in fig.findobj(mpl.text.Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 9
    fig.savefig(svg := io.StringIO(), format="svg")
    assert svg.getvalue().count("$5_{ and $6") >= (2 if text else 1)


def test_the_source_of_the_rows_stands_below_and_conditions_that_are_the_same_are_left_out():
    rows = SCORES.assign(paper="msse", profile="small", source="small", run_id="r", settings=["given"] * 3 + ["chosen"])
    fig = figures.points(rows, save="x", note="test")
    assert fig.texts[-1].get_text() == "profile small; test"
    assert list(pd.read_csv(paths.figures("demo") / "x.csv")) == ["method", "backbone", "seed", "value", "settings"]
    own, printed = rows.assign(source="this run, demo", backbone="w"), rows[:1].assign(source="paper, Table 1")
    both = pd.concat([own, rows, printed])
    fig = figures.points(both, save="x", floors=FLOORS.assign(backbone="w"))
    assert fig.texts[-1].get_text() == "profile demo; profile small; paper, Table 1"
    titles = [ax.get_title() for ax in fig.axes]  # scores of the demo have no floor
    assert titles == ["this run, demo: w", "small: u", "small: v", "paper, Table 1: u"]


# --- Colours ---


def test_a_method_has_one_colour_and_its_variants_shades_of_their_own():
    assert len({figures.colour(name) for name in figures.METHODS}) == len(figures.METHODS)
    assert figures.colour("JTCSE D") == figures.colour("JTCSE") != figures.colour("SimCSE")
    assert figures.colour("SimCSE + 3R, chosen") == figures.colour("SimCSE + 3R") != figures.colour("SimCSE")
    assert figures.colour("something", "#123456") == "#123456" != figures.colour("SimCSE", "#123456")
    assert figures.colour("mini-bert-simcse (cls)") == figures.colour("SimCSE") != figures.colour("mini-bert (cls)")
    several = pd.concat(COURSE.assign(method=name) for name in ("MSSE", "MSSE w/o NCE", "another", "SimCSE"))
    legend = figures.curves(several).axes[1].get_legend()
    shades = dict(zip(names(legend), (line.get_color() for line in legend.legend_handles), strict=True))
    assert shades["MSSE, 2 seeds"] == figures.METHODS["MSSE"] and shades["SimCSE, 2 seeds"] == figures.METHODS["SimCSE"]
    assert len({*shades.values()}) == 4 and shades["another, 2 seeds"] not in figures.METHODS.values()


# --- Points and intervals ---


def test_every_seed_is_a_dot_the_mean_a_stroke_a_floor_a_line_in_its_panel_and_settings_are_not_mixed():
    u, v = draw("points").axes
    dots, means = u.collections
    assert dots.get_offsets().tolist() == [[60, 0], [62, 0], [64, 1]]
    assert [mean.tolist() for mean in means.get_segments()] == [[[61, -0.38], [61, 0.38]], [[64, 0.62], [64, 1.38]]]
    assert lines(u, linestyle="--") == [[[59, 0], [59, 1]]] and not lines(v, linestyle="--")
    assert (u.get_title(), v.get_title()) == ("u\ndashed: words, 59.00", "v")
    assert [label.get_text() for label in u.get_yticklabels()] == ["SimCSE", "MSSE"] and np.ptp(v.get_xlim()) >= 5
    settings = SCORES.assign(settings=["given", "chosen", "given", "given"], sentences=1000)
    ax = figures.points(settings).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SimCSE, given", "SimCSE, chosen", "MSSE"]
    sizes = SIZES.assign(settings=["given", "chosen", "given", "given"])
    legend = figures.points(sizes, x="sentences").axes[0].get_legend()
    assert names(legend) == ["SimCSE, given", "SimCSE, chosen", "miCSE"]


def test_intervals_stand_below_each_other_in_the_given_order_with_their_seeds():
    seeds = table("method backbone gain", ("miCSE", "u", 0.9), ("miCSE", "u", 1.1))
    u, v = figures.intervals(GAINS, seeds=seeds, xlabel="gain").axes
    assert u.get_xlim() == v.get_xlim()
    bars, means, dots = u.collections
    assert [bar.tolist() for bar in bars.get_segments()] == [[[0.5, 0], [1.5, 0]], [[1, 1], [4, 1]]]
    assert means.get_offsets().tolist() == [[1, 0], [2, 1]] and dots.get_offsets().tolist() == [[0.9, 0], [1.1, 0]]
    assert v.collections[1].get_offsets().tolist() == [[3, 0]] and u.get_ylim()[0] > u.get_ylim()[1]
    assert mpl.colors.to_hex(bars.get_colors()[0]) == figures.colour("miCSE")


def test_a_forest_has_the_highest_gain_first_and_its_table_beside_it():
    (ax,) = draw("forest").axes
    labels, texts = ax.get_yticklabels(), [text.get_text() for text in ax.texts]
    assert [(one.get_text(), one.get_weight()) for one in labels[:2]] == [("MSSE", "normal"), ("NCE", "bold")]
    assert [{"62.50", "1 of 2"} <= {*texts}, {"61.50", "2 of 2", "4.0 ×"} <= {*texts}, "nan" in str(texts)] == [1, 1, 0]
    assert ax.get_title(loc="left") == "u; SimCSE 60.50; floor 59.00 (words)"
    bars, means = ax.collections
    assert means.get_offsets()[:2].tolist() == [[2, 0], [1, 1]]
    assert ax.patches[0].get_x() + ax.patches[0].get_width() == 0.5  # gains that are not worth having
    assert bars.get_segments()[1].tolist() == [[0.4, 1], [1.6, 1]] and labels[2].get_text() == "SSCL"
    (ax,) = draw("forest", floors=FLOORS.assign(value=61.5)).axes  # not above its floor
    assert {one.get_weight() for one in ax.get_yticklabels()} == {"normal"}
    many = pd.concat([STANDING[:1].assign(method=f"M{number}") for number in range(20)])
    assert len(figures.forest(many, floors=FLOORS).axes[0].get_yticklabels()) == 20
    ours = {"backbone": "mini-bert"}  # called as in the text
    (ax,) = figures.forest(STANDING.assign(**ours), floors=FLOORS.assign(**ours)).axes
    assert ax.get_title(loc="left") == "mini-BERT; SimCSE 60.50; floor 59.00 (words)"


# --- Curves ---


def test_a_panel_for_each_metric_and_backbone_with_means_geometric_on_logarithmic_axes_and_a_band_of_all_seeds():
    limits = {"alignment": (-1, 200)}
    axes = draw("curves", titles={"uniformity": "B", "alignment": "A"}, ylabel="nats", limits=limits).axes
    assert axes[1].get_ylim() == (-1, 200) != axes[0].get_ylim()
    assert [ax.get_title() for ax in axes] == ["B", "A", "", ""]
    assert [ax.get_ylabel() for ax in axes] == ["u\nnats", "", "v\nnats", ""] and axes[0].get_yscale() == "log"
    means = [lines(ax, marker="o")[0] for ax in axes[:2]]
    assert means[0] == [[s, pytest.approx(2**0.5 * 10.0**s)] for s in (0, 1, 2)]
    assert means[1] == [[0, 1.5], [1, 15], [2, 150]]
    assert [bool(ax.get_legend() and ax.get_legend().get_visible()) for ax in axes] == [False, True, False, False]
    assert names(axes[1].get_legend()) == ["SimCSE, 2 seeds", "miCSE, 2 seeds"]
    frame = table("method seed step value", *(("a", seed, step, 10 ** (step - 1) * value) for step in (1, 2) for seed, value in enumerate((1, 2, 6))))  # fmt: skip
    for log, means in (((), [3, 30]), (("",), [12 ** (1 / 3), 10 * 12 ** (1 / 3)])):
        (ax,) = figures.curves(frame, log=log).axes
        (band,) = ax.collections
        corners = band.get_paths()[0].vertices
        assert {(x, round(y, 6)) for x, y in corners.tolist()} == {(1, 1), (1, 6), (2, 10), (2, 60)}
        assert lines(ax, marker="o")[0] == [[1, pytest.approx(means[0])], [2, pytest.approx(means[1])]]


# --- Maps ---


def test_a_path_leads_from_the_first_step_to_the_mean_of_the_seeds():
    u, v = draw("plane").axes
    assert lines(u, marker=".")[0] == [[1.5, 1.5], [15, 15], [150, 150]]
    seeds, means = (dots.get_offsets().tolist() for dots in u.collections)
    assert seeds == 2 * [[100, 100], [200, 200]] and means == 2 * [[150, 150]]
    assert not u.get_legend() and names(v.get_legend()) == ["SimCSE", "miCSE"]
    assert u.get_title() == "u\n2 steps; ring: start"
    wide = table("encoder alignment uniformity dev", ("untuned", 0.1, -1.0, 50.0), ("SimCSE", 0.2, -2.0, 60.0))
    (ax,) = figures.plane(wide, score="dev").axes
    assert names(ax.get_legend()) == ["untuned, 50.0", "SimCSE, 60.0"]
    paths = table("encoder step alignment uniformity", *((n, step, 0.1 * step, -1.0) for n, last in (("a", 2), ("b", 3)) for step in range(last + 1)))  # fmt: skip
    assert figures.plane(paths).axes[0].get_title() == "2 to 3 steps; ring: start"


def test_matrices_have_a_panel_for_each_encoder_or_a_row_for_each_with_its_layers():
    *panels, bar = draw("maps", label="attention").axes
    assert [ax.get_title() for ax in panels] == ["layer 1", "layer 2"] * 2 and bar.get_ylabel() == "attention"
    assert [ax.get_ylabel() for ax in panels] == ["a", "", "b", ""]
    first, second, _ = draw("tokens").axes
    assert (first.get_title(), second.get_title()) == ("a", "b")
    assert first.collections[0].get_array().ravel().tolist() == pytest.approx([0, 0.2, 0.1, 0.3])
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "2"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["1 [CLS]", "2 x"]


def test_a_cluster_has_the_colour_of_the_label_it_shares_most_texts_with():
    above, below = draw("clusters").axes
    label, found = (
        {x: tuple(shade) for (x, _), shade in zip(dots.get_offsets(), dots.get_facecolors(), strict=True)}
        for dots in (above.collections[0], below.collections[0])
    )
    assert found[1] == label[1] and found[3] == label[3] != found[5]  # more clusters than labels: grey
    assert [[1, 0]] in lines(below, marker="X") and below.get_ylabel().startswith("K-Means")


def test_a_text_in_the_cluster_of_another_label_is_a_cross_and_labels_are_written_apart():
    (ax,) = draw("named", under={"a": "V-measure 9"}).axes
    right, wrong = (sorted(dots.get_offsets()[:, 0].tolist()) for dots in ax.collections)
    assert (right, wrong) == ([0, 1, 2, 3, 4], [5]) and ax.get_title() == "a\nV-measure 9\n17 % in a wrong cluster (×)"
    (ax,) = draw("named", under={}).axes
    assert {text.get_text(): text.get_position()[0] <= 2 for text in ax.texts} == {"u": True, "v": False}
    same = pd.concat([TEXTS.assign(x=i % 2, y=i % 3) for i in range(30)])
    (ax,) = figures.named_map(same).axes
    one, other = (text.get_window_extent() for text in ax.texts)
    assert not one.overlaps(other)


def test_a_waterfall_leads_from_the_first_number_to_the_last():
    (ax,) = draw("waterfall").axes
    bars = [(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6)) for bar in ax.patches]
    assert bars == [(0, 70), (70, 67), (67, 68), (0, 68)]
    assert [text.get_text() for text in ax.texts] == ["70.00", "-3.00", "+1.00", "68.00"]
