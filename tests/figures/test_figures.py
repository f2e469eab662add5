"""Figures are tested by their data and their bytes, not by their pixels."""

import inspect
import io
import re
import warnings

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from lib import figures, notebook, paths, session


@pytest.fixture(autouse=True)
def style(monkeypatch):
    monkeypatch.setattr(session, "profile", "demo")
    plt.style.use(paths.root() / "lib" / "figures" / "style.mplstyle")
    yield
    plt.close("all")


HISTORY = pd.DataFrame({"step": range(9), "loss": [np.nan, *range(8, 0, -1)], "dev": [1.0, np.nan] * 4 + [2.0], "alignment": 0.1, "uniformity": -1.0})  # fmt: skip
NEAR = pd.DataFrame({"encoder": list("aabb"), "x": range(4), "y": range(4), "text": ["one", "two"] * 2, "rank": [1.0, np.nan, 1.0, 2.0]})  # fmt: skip
PATHS = pd.DataFrame({"method": list("aabb"), "step": [0, 10] * 2, "alignment": [0.1, 0.2, 0.1, 0.3], "uniformity": [-1.0, -2, -1, -3]})  # fmt: skip
SWEEP = pd.DataFrame({"rate": [0.1, 0.1, 0.2, 0.2], "seed": [1, 2] * 2, "value": [50.0, 52, 60, 61]})
PRETRAINING = pd.DataFrame({"run": list("aabb"), "step": [0, 1] * 2, "mlm": [np.nan, 6.0] * 2, "dev": [50.0, 60, 51, 55]})  # fmt: skip
MAPS = pd.DataFrame([(name, layer, q, k, 0.5) for name in "ab" for layer in (1, 2) for q in (0, 1) for k in (0, 1)], columns=["encoder", "layer", "query", "key", "value"])  # fmt: skip
PAIRS = pd.DataFrame({"encoder": list("aabb") * 2, "group": ["x"] * 4 + ["y"] * 4, "cosine": np.linspace(0, 1, 8), "gold": range(8)})  # fmt: skip
JOINT = pd.DataFrame([(e, layer, head, -v, v * layer - 9) for e in "ab" for layer in (1, 2) for head in (0, 1, 2) for v in range(5)], columns=["encoder", "layer", "head", "view1", "view2"])  # fmt: skip
TERMS = pd.DataFrame({"method": ["SimCSE"] * 2 + ["miCSE"] * 2, "step": [1, 2] * 2, "loss": [3.0, 2, 3, 1], "ami": [np.nan, np.nan, 0.5, 0.6]})  # fmt: skip
SURFACE = pd.DataFrame([(k, c, (k - 1) ** 2 + 1 - c) for k in (0.5, 1, 2) for c in (-1, 0, 1)], columns=["k", "t", "loss"])  # fmt: skip
SHARES = pd.DataFrame([(e, layer, g, 0.5, 0.2) for e in "ab" for layer in (1, 2) for g in "xy"], columns=["encoder", "layer", "group", "share", "tokens"])  # fmt: skip
BANDS = pd.DataFrame({"method": list("aabb"), "seed": [1, 2] * 2, "step": 3, "norm": [1.0, 100, 5, 5], "swap": [1.0, 3, np.nan, np.nan]})  # fmt: skip
ENERGY = pd.DataFrame(
    {"encoder": ["untuned", "SimCSE I", "SimCSE I"], "energy": [0.2, 0.3, 0.4], "score": [40.0, 60, 61]}
)
AVERAGES = pd.DataFrame(
    [("g", "SimCSE", "one", 1, 60.0), ("g", "SimCSE", "one", 2, 61.0), ("g", "MSSE", "one", 1, 62.0)]
    + [("h", "SimCSE", "two", 1, 70.0)],
    columns=["group", "method", "backbone", "seed", "value"],
)
INTERVALS = pd.DataFrame({"group": list("uuv"), "method": ["miCSE", "MSSE", "miCSE"], "value": [1.0, 2, 3], "low": [0.5, 1, np.nan], "high": [1.5, 4, np.nan]})  # fmt: skip
PLANE = pd.DataFrame({"backbone": list("uuv"), "encoder": ["SimCSE, 10", "SimCSE, 10", "untuned"], "seed": ["1", "2", ""], "alignment": [0.2, 0.4, 0.1], "uniformity": [-2.0, -3, -1]})  # fmt: skip
DRAWN = {
    "intervals": lambda: figures.intervals(INTERVALS, xlabel="gain", line=0),
    "plane": lambda: figures.geometry_plane(PLANE),
    "surface": lambda: figures.modulus_surface(SURFACE),
    "shares": lambda: figures.token_shares(SHARES),
    "energy": lambda: figures.energy_scatter(ENERGY),
    "seeds": lambda: figures.seed_spread(SWEEP.assign(method=["a", "a", "b", "b"]), ylabel="score"),
    "averages": lambda: figures.averages(
        AVERAGES, floors=pd.DataFrame({"name": ["floor"], "backbone": ["one"], "value": [59.0]})
    ),
    "bands": lambda: figures.seed_bands(BANDS, {"norm": "gradients", "swap": "nats"}, logarithmic=["norm"]),
    "lines": lambda: figures.lines(SWEEP.assign(method="m", n=range(4)), x="n", xlabel="n", ylabel="score"),
    "terms": lambda: figures.loss_terms(TERMS, {"loss": "contrastive", "ami": "information"}),
    "pairs": lambda: figures.pair_scatter(PAIRS, x="gold", y="cosine", xlabel="gold", ylabel="cosine"),
    "joint": lambda: figures.joint_histograms(JOINT),
    "pretraining": lambda: figures.pretraining_curves(PRETRAINING),
    "attention": lambda: figures.attention_maps(MAPS, ["[CLS]", "x"]),
    "training": lambda: figures.training_curves(HISTORY),
    "paths": lambda: figures.geometry_paths(PATHS),
    "scatter": lambda: figures.geometry_scatter(PATHS.rename(columns={"method": "encoder", "step": "score"})),
    "density": lambda: figures.cosine_density(
        pd.DataFrame({"encoder": ["a"] * 20, "group": ["x", "y"] * 10, "cosine": np.linspace(0, 1, 20)})
    ),
    "spectrum": lambda: figures.singular_spectrum(pd.DataFrame({"encoder": ["a"] * 3, "index": range(3), "value": [1, 0.5, 0.1]})),
    "clusters": lambda: figures.clusters(
        pd.DataFrame({"encoder": ["a"] * 4, "x": range(4), "y": range(4), "label": list("uuvv")}), title="t"
    ),
    "neighbours": lambda: figures.neighbours(NEAR, title="t"),
    "few": lambda: figures.few_shot(pd.DataFrame({"sentences": [10, 10, 100], "seed": [0, 1, 0], "value": [1.0, 2, 3]})),
}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWN)
def test_the_same_data_give_the_same_bytes_and_every_axis_is_labelled(kind):
    folder, written = paths.figures("demo"), []
    for _ in range(2):
        fig = DRAWN[kind]()
        figures.save_figure(fig, "x", SWEEP, note="n")
        written.append([(folder / f"x.{suffix}").read_bytes() for suffix in ("png", "svg", "csv")])
    assert written[0] == written[1]
    if kind not in (
        "clusters",
        "neighbours",
        "attention",
        "joint",
        "pairs",
        "shares",
        "seeds",
        "bands",
        "averages",
        "intervals",
    ):  # words on the axes, or shared ones
        assert fig.axes[0].get_xlabel() and all(ax.get_ylabel() for ax in fig.axes if ax.get_label() != "<colorbar>")


def test_the_path_figure_plots_the_given_points():
    lines = figures.geometry_paths(PATHS).axes[0].lines
    assert [line.get_xydata().tolist() for line in lines[:4]] == [
        [[-1, 0.1], [-2, 0.2]], [[-2, 0.2]], [[-1, 0.1], [-3, 0.3]], [[-3, 0.3]],
    ]  # fmt: skip


def test_every_seed_is_a_dot_and_every_floor_a_line_in_its_panel():
    fig = figures.averages(AVERAGES, floors=pd.DataFrame({"name": ["floor"], "backbone": ["one"], "value": [59.0]}))
    one, two = fig.axes
    dots = [line.get_xdata().tolist() for line in one.lines if line.get_marker() == "o"]
    assert dots == [[60.0, 61.0], [62.0]] and [line.get_xdata()[0] for line in one.lines if line.get_lw() == 2] == [
        60.5,
        62.0,
    ]
    assert [line.get_xdata()[0] for line in one.lines if line.get_ls() == "--"] == [59.0]
    assert not [line for line in two.lines if line.get_ls() == "--"]
    assert [label.get_text().strip() for label in one.get_yticklabels()] == ["g", "h", "SimCSE", "MSSE", "SimCSE"]


def test_paths_have_a_panel_for_each_backbone_and_no_methods_colour_where_they_are_none():
    both = pd.concat([PATHS.assign(backbone="u"), PATHS.replace({"method": {"a": "SimCSE"}}).assign(backbone="v")])
    axes = figures.geometry_paths(both).axes
    assert [ax.get_title() for ax in axes] == ["u, 10 steps", "v, 10 steps"]
    colours = [{line.get_label(): line.get_color() for line in ax.lines} for ax in axes]
    assert colours[1]["SimCSE"] == figures.colour("SimCSE") and colours[0]["b"] == colours[1]["b"]
    assert not {colours[0]["a"], colours[0]["b"]} & set(figures.METHODS.values())


def test_a_method_keeps_its_colour():
    assert len({figures.colour(m) for m in figures.METHODS}) == len(figures.METHODS)
    assert figures.colour("JTCSE D") == figures.colour("JTCSE") and figures.colour("SimCSE + AMI") != figures.colour(
        "SimCSE"
    )
    assert figures.colour("something else") not in {figures.colour(m) for m in figures.METHODS}
    assert figures.colour("something else", "#123456") == "#123456" != figures.colour("SimCSE", "#123456")


def test_terms_of_what_is_no_method_have_lines_of_their_own():
    frame = pd.DataFrame({"method": [f"a: {n}" for n in range(6) for _ in range(2)], "step": [1, 2] * 6, "loss": 1.0})
    lines = figures.loss_terms(frame, {"loss": "loss"}).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 6


def test_bands_run_through_the_geometric_mean_on_a_logarithmic_axis_and_through_the_mean_on_another():
    frame = pd.concat([BANDS.assign(backbone="u"), BANDS.assign(backbone="v")])
    axes = figures.seed_bands(frame, {"norm": "gradients", "swap": "nats"}, logarithmic=["norm"]).axes
    titles = [f"{quantity}\n{backbone}" for backbone in "uv" for quantity in ("gradients", "nats")]
    assert [ax.get_title() for ax in axes] == titles
    means = [[line for line in ax.lines if line.get_label() in ("a", "b")] for ax in axes[:2]]
    assert [line.get_ydata() for line in means[0]] == [pytest.approx([10]), pytest.approx([5])]
    assert [line.get_ydata() for line in means[1]] == [pytest.approx([2])]
    assert axes[0].get_yscale() == "log" and axes[1].get_yscale() == "linear"


def test_floors_are_lines_in_the_panels_of_the_first_quantity_of_their_backbone():
    frame = pd.concat([BANDS.assign(backbone="u"), BANDS.assign(backbone="v")])
    floors = pd.DataFrame({"name": ["untuned"], "backbone": ["v"], "value": [3.0]})
    axes = figures.seed_bands(frame, {"norm": "gradients", "swap": "nats"}, floors=floors).axes
    assert [[text.get_text() for text in ax.texts] for ax in axes] == [[], [], ["untuned: 3.00"], []]
    assert axes[2].lines[-1].get_ydata()[0] == 3.0


def test_what_a_step_is_can_be_named():
    axes = figures.seed_bands(BANDS, {"norm": "gradients"}, xlabel="layers").axes
    assert [ax.get_xlabel() for ax in axes] == ["layers"]


def test_kinds_of_tokens_are_named_once_whatever_panel_has_them():
    other = SHARES.assign(backbone="second", group=SHARES.group.replace("y", "z"))
    figure = figures.token_shares(pd.concat([SHARES.assign(backbone="first"), other]))
    (legend,) = [ax.get_legend() for ax in figure.axes if ax.get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == ["x", "y", "z", "uniform attention"]


def test_a_cluster_has_the_colour_of_the_label_it_shares_most_texts_with():
    frame = pd.DataFrame(
        {"encoder": "a", "x": range(6), "y": 0.0, "label": list("uuuvvv"), "cluster": [1, 1, 1, 0, 0, 2]}
    )
    above, below = figures.clusters(frame, title="t").axes
    colours = {line.get_label(): line.get_color() for line in above.lines}
    places = {tuple(line.get_xdata()): line.get_color() for line in below.lines}
    assert places[(0, 1, 2)] == colours["u"] and places[(3, 4)] == colours["v"]
    assert places[(5,)] == "0.6"  # more clusters than labels
    assert places[(1.0,)] == colours["u"] and (above.get_ylabel(), below.get_ylabel())[0] == "labels"


def test_neighbours_are_numbered_and_named_below_the_map():
    first, second = figures.neighbours(NEAR, title="t").axes
    assert (first.get_xlabel(), second.get_xlabel()) == ("1. one", "1. one\n2. two")
    assert [text.get_text() for text in second.texts] == ["1", "2"]
    assert [len(line.get_xdata()) for line in first.lines] == [2, 1]


def test_seeds_of_two_methods_are_joined_and_floors_drawn():
    frame = pd.DataFrame(
        {"backbone": "b", "method": ["SimCSE"] * 2 + ["MSSE"] * 2, "seed": [1, 2] * 2, "value": [5.0, 6, 7, 9]}
    )
    floors = pd.DataFrame({"backbone": ["b", "other"], "name": "untuned", "value": [4.0, 1.0]})
    ax = figures.seed_spread(frame, ylabel="score", floors=floors).axes[0]
    lines = [line.get_ydata() for line in ax.lines]
    assert [5.0, 7.0] in map(list, lines) and [6.0, 9.0] in map(list, lines) and [4.0, 4.0] in map(list, lines)
    assert [text.get_text() for text in ax.texts] == ["untuned: 4.00"] and ax.get_title() == "b, 2 seeds"
    assert {line.get_color() for line in ax.lines} >= {figures.colour("SimCSE"), figures.colour("MSSE")}
    joined = figures.seed_spread(pd.concat([frame, frame.assign(method="3R")]), ylabel="score").axes[0]
    assert [5.0, 7.0] not in [list(line.get_ydata()) for line in joined.lines]


def test_curves_have_the_colours_of_the_style_sheet_and_look_different_without_them():
    looks = list(figures.CYCLE)
    assert [look["color"] for look in looks] == plt.rcParams["axes.prop_cycle"].by_key()["color"]
    assert len({look["marker"] for look in looks}) == len(looks)
    spectrum = pd.DataFrame({"encoder": [*"abcdefghijkl"], "index": 0, "value": 1.0})  # more than there are looks
    curves = figures.singular_spectrum(spectrum).axes[0].lines
    assert len({line.get_linestyle() for line in curves[:4]}) == 4 and len(curves) == 12


def test_groups_look_the_same_in_all_panels():
    frame = pd.DataFrame({"encoder": list("aaab"), "group": list("xyzy"), "u": range(4), "v": range(4)})
    left, right = figures.pair_scatter(frame, x="u", y="v", xlabel="u", ylabel="v").axes
    assert [(p.get_color(), p.get_marker()) for p in left.lines] == [
        (p.get_color(), p.get_marker()) for p in right.lines
    ]


def test_the_other_profiles_draw_outside_the_repositorys_figures(monkeypatch):
    monkeypatch.delenv("CSE_FIGURES")
    for profile in ("demo", "small"):  # never figures/, which is committed
        assert paths.figures(profile) == paths.runs() / "figures" / profile


def test_a_term_is_drawn_for_the_methods_that_have_it():
    axes = figures.loss_terms(TERMS, {"loss": "contrastive", "ami": "information"}).axes
    assert [[line.get_label() for line in ax.lines] for ax in axes] == [["SimCSE", "miCSE"], ["miCSE"]]


def few_shot_lines(ax):
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_few_shot_draws_a_line_per_method_through_the_means():
    several = {"SimCSE": {10: [1.0, 3, 2, 2, 2], 100: [5.0] * 5}, "SimCSE + AMI": {10: [9.0] * 5}}
    rows = [(m, n, value) for m, sizes in several.items() for n, values in sizes.items() for value in values]
    ax = figures.few_shot(pd.DataFrame(rows, columns=["method", "sentences", "value"])).axes[0]
    lines, bars = few_shot_lines(ax), [bar.vertices for bars in ax.collections for bar in bars.get_paths()]
    assert [line.get_ydata().tolist() for line in lines] == [[2.0, 5.0], [9.0]]
    assert [line.get_label() for line in lines] == ["SimCSE", "SimCSE + AMI"]
    assert len({line.get_color() for line in lines}) == 2
    assert [bar[:, 1].tolist() for bar in bars] == [[1, 3], [5, 5], [9, 9]]
    assert lines[0].get_xdata()[0] == bars[0][0, 0] < lines[1].get_xdata()[0]  # side by side


def test_variants_in_curves_are_told_apart_and_the_first_has_the_methods_colour():
    names = ["MSSE", "MSSE w/o NCE", "another", "SimCSE"]
    curves = pd.DataFrame(
        [(n, "1", step, step) for n in names for step in (0, 1)], columns=["method", "seed", "step", "norm"]
    )
    shades = {line.get_label(): line.get_color() for line in figures.seed_bands(curves, {"norm": "t"}).axes[0].lines}
    assert shades["MSSE"] == figures.METHODS["MSSE"] and shades["SimCSE"] == figures.METHODS["SimCSE"]
    assert len({shades[name] for name in names}) == 4 and not {shades["another"]} & {*figures.METHODS.values()}


@pytest.mark.parametrize("seeds", [3, 5])
def test_fewer_than_five_seeds_are_drawn_one_by_one(seeds):
    values = [float(v) for v in range(seeds)]
    shots = figures.few_shot(pd.DataFrame({"sentences": 10, "value": values})).axes[0]
    dots = [line.get_ydata().tolist() for line in shots.lines if line.get_label().startswith("_")]
    assert dots == ([values] if seeds < 5 else []) and len(shots.collections) == (seeds >= 5)
    curves = pd.DataFrame({"method": "a", "seed": range(seeds), "step": 1, "norm": values})
    bands = figures.seed_bands(curves, {"norm": "t"}).axes[0]
    assert len(bands.lines) == 1 + seeds * (seeds < 5) and len(bands.collections) == (seeds >= 5)


def test_methods_with_one_size_stand_close_together():
    frame = pd.DataFrame({"method": ["SimCSE", "miCSE"], "sentences": 1000, "value": [1.0, 2]})
    ax = figures.few_shot(frame).axes[0]
    assert ax.get_xlim() == (500, 2000) and all(900 < line.get_xdata()[0] < 1100 for line in few_shot_lines(ax))


def test_published_means_are_drawn_with_their_deviation():
    frame = pd.DataFrame({"method": "miCSE", "sentences": [10, 100], "value": [50.0, 60], "std": [2.0, np.nan]})
    ax = figures.few_shot(frame).axes[0]
    corners = ax.collections[0].get_paths()[0].vertices
    assert {tuple(c) for c in corners} >= {(10, 48), (10, 52), (100, 60)}
    assert ax.get_legend().get_title().get_text() == "band: ± std"


def test_sizes_that_differ_in_more_are_not_joined_and_measured_panels_have_no_deviation():
    printed = pd.DataFrame({"backbone": "paper", "method": "miCSE", "sentences": [10, 100], "value": 50.0, "std": 2.0})
    here = pd.DataFrame(
        {"backbone": "here", "method": "miCSE", "sentences": [10, 10, 100, 100], "value": [1.0, 2, 3, 4]}
    )
    paper, measured = figures.few_shot(pd.concat([printed, here]), joined=False).axes
    assert {line.get_linestyle() for ax in (paper, measured) for line in ax.lines} == {"None"}
    dots = [line.get_ydata().tolist() for line in measured.lines if line.get_label().startswith("_")]
    assert dots == [[1.0, 2.0, 3.0, 4.0]] and not measured.collections and paper.collections


def test_the_legend_names_the_methods_of_every_panel_once():
    where = {"backbone": ["left", "left", "right", "right"], "method": ["miCSE", "MSSE", "MSSE", "SimCSE"]}
    figure = figures.few_shot(pd.DataFrame(where | {"sentences": 10, "value": [1.0, 2, 3, 4]}))
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["miCSE", "MSSE", "SimCSE"]


@pytest.mark.parametrize(
    "text", ["", "word " * 60, "m" * 300, "A man is playing a guitar on stage and sings about the sea."]
)
@pytest.mark.parametrize("encoders", [1, 3])
def test_sentences_of_any_length_leave_room_for_their_similarities(text, encoders):
    shown = figures.sentence_similarity({f"encoder {i}": np.eye(5) for i in range(encoders)}, [text] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of panels without room
        shown.canvas.draw()
    names = [label.get_text().splitlines() for label in shown.axes[0].get_yticklabels()]
    assert len(names) == 5 and all(len(lines) <= 2 and max(map(len, lines)) <= 46 for lines in names)
    assert shown.axes[0].get_position().width * shown.get_figwidth() > 1.5  # inches for five columns
    assert " ".join(names[1]) == f"2. {text}".strip() or names[1][-1].endswith("…")


def test_centroids_are_the_means_of_the_groups_and_joined():
    frame = pd.DataFrame({"encoder": "SimCSE", "group": list("xxyy"), "a": [1.0, 3, 7, 9], "b": [0.0, 2, 4, 8]})
    ax = figures.pair_scatter(frame, x="a", y="b", xlabel="a", ylabel="b", centroids=True).axes[0]
    assert ax.lines[-1].get_xydata().tolist() == [[2, 1], [8, 6]] and ax.lines[-1].get_linestyle() == "-"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["x", "y", "mean of each group"]
    one = figures.pair_scatter(frame.drop(columns="group"), x="a", y="b", xlabel="a", ylabel="b").axes[0]
    assert one.lines[0].get_color() == figures.colour("SimCSE")


def test_a_correlation_is_that_of_its_group():
    frame = pd.DataFrame(
        {"encoder": "e", "group": ["x"] * 3 + ["y"] * 3, "a": [1, 2, 3, 7, 8, 9], "b": [3, 2, 1, 7, 8, 9.0]}
    )
    ax = figures.pair_scatter(frame, x="a", y="b", xlabel="a", ylabel="b").axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "x: rank correlation -1.00",
        "y: rank correlation 1.00",
    ]


def test_tables_in_notebooks_have_the_same_text_each_time():
    frame = pd.DataFrame({"a": [1.234, 2.0]}, index=["x", "y"])
    first, again, changed = (
        notebook._table_html(f.style.format(precision=1)) for f in (frame, frame.copy(), frame + 1)
    )
    assert first == again != changed and "1.2" in first and "1.234" not in first
    assert "id=" not in first and "class=" not in first and first.count("<td>") == 2
    several = pd.DataFrame({"a": [1, 2], 'id="b"': 3}, index=pd.MultiIndex.from_product([["x"], ["y", "z"]]))
    page = notebook._table_html(several.style.highlight_max(color="red"))
    assert re.findall(r"#(T_\w+_row\d_col\d)", page)[0] in re.findall(r'<td id="(\w+)"', page)  # styles need them
    page = notebook._table_html(several.style)
    assert 'rowspan="2"' in page and 'id="b"' in page and "class=" not in page


def test_pictures_in_notebooks_have_a_palette_and_look_the_same():
    fig, whole = DRAWN["scatter"](), io.BytesIO()
    fig.canvas.print_figure(whole, format="png", bbox_inches="tight", dpi=fig.dpi)
    small, again = (notebook._palette_png(DRAWN["scatter"]()) for _ in range(2))  # each drawn once, as in a notebook
    before, after = Image.open(whole).convert("RGB"), Image.open(io.BytesIO(small))
    assert after.mode == "P" and after.size == before.size and len(small) < 0.6 * len(whole.getvalue())
    difference = np.abs(np.asarray(before, dtype=int) - np.asarray(after.convert("RGB"), dtype=int))
    assert difference.mean() < 1 and small == again


def test_names_on_a_plane_stand_in_a_column_apart_and_inside_the_axes():
    names = [f"method {i}, 10,000 sentences" for i in range(12)]
    crowd = {"encoder": names, "alignment": 0.2, "uniformity": np.linspace(-3, -2.9, 12), "score": 60.0}
    ax = figures.geometry_scatter(pd.DataFrame(crowd)).axes[0]
    places = np.array([text.xyann for text in ax.texts])  # fractions of the axes
    assert sorted(text.get_text() for text in ax.texts) == sorted(names) and len(set(places[:, 0])) == 1
    assert np.diff(np.sort(places[:, 1])).min() > 0.04 and places.min() >= 0 and places[:, 1].max() < 1
    inside = ax.get_window_extent()
    assert all(text.get_window_extent().x1 <= inside.x1 for text in ax.texts)
    many = pd.DataFrame(
        {"backbone": "b", "encoder": [f"method {i}" for i in range(40)], "alignment": 0.2, "uniformity": -3.0}
    )
    (ax,) = figures.geometry_plane(many).axes
    heights = np.sort([text.xyann[1] for text in ax.texts])
    assert (
        heights.min() >= 0
        and heights.max() < 1
        and np.diff(heights).min() * ax.get_window_extent().height * 72 / 90 > 9
    )


def test_the_energy_figure_has_the_rank_correlation_of_trained_encoders_and_a_panel_for_each_stage():
    frame = pd.DataFrame(
        {"encoder": ["untuned", "a", "b", "c"], "energy": [0.0, 0.2, 0.3, 0.4], "score": [40.0, 62, 61, 60]}
    )
    assert figures.energy_scatter(frame).axes[0].get_title() == "CLS energy: ρ -1.00"
    panels = pd.concat([frame.assign(panel="all encoders"), frame[1:3].assign(panel="stage 1")])
    first, second = figures.energy_scatter(panels).axes
    assert (first.get_title(), second.get_title()) == ("all encoders: ρ -1.00", "stage 1: ρ -1.00")
    assert second.get_xlabel() == "CLS energy\nwithout the seed's mean"
    drawn = [sum(len(line.get_xdata()) for line in ax.lines) for ax in (first, second)]
    assert drawn == [4, 2] and [line.get_marker() for line in first.lines] == [
        line.get_marker() for line in second.lines
    ]


@pytest.mark.parametrize("name", ["seeds", "energy", "shares", "attention"])
def test_every_backbone_has_its_own_panels(name):
    frames = {"seeds": SWEEP.assign(method="a"), "energy": ENERGY, "shares": SHARES, "attention": MAPS}
    draw = {
        "seeds": lambda frame: figures.seed_spread(frame, ylabel="score"),
        "energy": figures.energy_scatter,
        "shares": figures.token_shares,
        "attention": lambda frame: figures.attention_maps(frame, ["[CLS]", "x"]),
    }[name]
    one = frames[name].assign(backbone="first")
    smaller = one[one.encoder != "b"] if "encoder" in one else one
    count = len([ax for ax in draw(one).axes if ax.get_visible()])
    fig = draw(pd.concat([one, smaller.assign(backbone="second")]))
    panels = [ax for ax in fig.axes if ax.get_visible()]
    expected = {"seeds": 2, "energy": 2, "shares": 3, "attention": 3 * 2 + 1}  # the last one: with the bar of colours
    assert len(panels) == expected[name] and count == len([ax for ax in draw(frames[name]).axes])
    assert any("second" in ax.get_title() + ax.get_ylabel() for ax in panels)


def test_curves_say_how_many_seeds_they_show_and_a_flat_one_stays_flat():
    frame = pd.DataFrame([(m, s, step, 1 + step / 1000) for m, s in [("a", 1), ("a", 2), ("b", 1)] for step in (0, 1)], columns=["method", "seed", "step", "norm"])  # fmt: skip
    ax = figures.seed_bands(frame, {"norm": "t"}).axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a (2)", "b (1)"]
    assert ax.get_legend().get_title().get_text() == "mean; thin: seeds (number)"
    assert np.ptp(ax.get_ylim()) == pytest.approx(0.1)


def test_a_drawing_function_keeps_picture_and_numbers_with_the_profile_of_the_setup(monkeypatch):
    monkeypatch.delenv("CSE_FIGURES", raising=False)
    notebook.setup(profile="small")
    frame = SWEEP.assign(method="m")
    fig = figures.lines(frame, x="rate", xlabel="x", ylabel="y", save="kept", note="dev")
    assert {path.name for path in paths.figures("small").iterdir()} == {"kept.png", "kept.svg", "kept.csv"}
    pd.testing.assert_frame_equal(pd.read_csv(paths.figures("small") / "kept.csv"), frame, check_dtype=False)
    assert fig.texts[-1].get_text() == "profile small; dev"
    assert {"xlabel", "save", "note", "source"} <= {*inspect.signature(figures.lines).parameters}
    with pytest.raises(TypeError, match="no data frame"):
        figures.sentence_similarity({"a": np.eye(2)}, ["one", "two"], save="refused")
    assert len(list(paths.figures("small").iterdir())) == 3


def test_lines_have_the_floors_of_the_encoders_that_they_show():
    floors = pd.DataFrame({"backbone": ["mini", "other"], "name": ["words", "none"], "value": [55.0, 10.0]})
    frame = SWEEP.assign(method="small, mini", n=[4, 1, 2, 3])
    ax = figures.lines(frame, x="n", xlabel="n", ylabel="score", floors=floors).axes[0]
    assert [text.get_text() for text in ax.texts] == ["words: 55.00"]
    assert list(ax.lines[0].get_xdata()) == [1, 2, 3, 4]


def test_profile_and_note_stand_under_the_picture():
    fig = DRAWN["seeds"]()
    figures.save_figure(fig, "x", SWEEP, note="test, seed 1")
    assert [text.get_text() for text in fig.texts] == ["profile demo; test, seed 1"]
    figures.save_figure(fig, "x", SWEEP, source="published")
    assert fig.texts[-1].get_text() == "published"


def test_intervals_stand_below_each_other_in_the_given_order_with_their_seeds():
    dots = pd.DataFrame({"group": ["u", "u", "v"], "method": "miCSE", "value": [0.9, 1.1, 7.0]})
    fig = figures.intervals(INTERVALS, xlabel="gain", line=0, points=dots)
    first, second = fig.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["miCSE", "MSSE"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["miCSE"]
    drawn = [line.get_xydata().tolist() for line in first.lines]
    assert [[0.5, 0], [1.5, 0]] in drawn and [[2.0, 1]] in drawn and [[0.9, 0], [1.1, 0]] in drawn
    assert first.lines[0].get_color() == figures.colour("miCSE") and first.get_ylim()[0] > first.get_ylim()[1]
    assert second.get_xlabel() == "gain" and first.get_title(loc="left") == "u"


def test_an_encoder_stands_on_the_plane_at_the_mean_of_its_seeds():
    left, right = figures.geometry_plane(PLANE).axes
    assert [-2.5, pytest.approx(0.3)] in [line.get_xydata()[0].tolist() for line in left.lines]
    assert left.texts[0].get_text() == "SimCSE, 10" and left.get_title() == "u" and right.get_title() == "v"


def test_a_variant_has_the_colour_of_its_method():
    same = ["SimCSE + 3R", "SimCSE + 3R, SimCSE's settings", "SimCSE + 3R (three_r, Table 2)"]
    assert len({figures.colour(name) for name in same}) == 1 and figures.colour(same[1]) != figures.colour("SimCSE")
    assert figures.colour("SimCSE (micse, Table 3)") == figures.colour("SimCSE")
