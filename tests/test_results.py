"""Measured rows: which are found, what a run adds and publishes, and the comparison and verdict, each by a slower way."""

import csv
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib import paths, results
from lib.checks import ConfigError, DataError
from lib.data.sts import STS_TASKS
from lib.results import add, averages, compare, floors, rows, verdict

STS = {"split": "test", "protocol": "SentEval", "aggregation": "all", "metric": "spearman"}
LABELS = {"paper": "p", "table": "T", "method": "SimCSE"}
SETTINGS = {"temperature": 0.05, "max_steps": 0}


def run(
    seed=42, *, profile="small", backbone="mini-bert", device="CPU, 2 threads", name="simcse-1", text="wiki", **settings
):
    """What `add` reads of a finished run."""
    corpus = f"{text}.txt, 1,000 rows drawn with seed {seed}"
    provenance = {"rows": 1000, "device": device, "commit": "abc", "versions": {}, "finished": "now", "corpus": corpus}
    config = SimpleNamespace(method="simcse", pooling="cls", precision="fp32", profile=profile, seed=seed)
    labels = {"backbone": backbone}
    return SimpleNamespace(id=name, config=config, labels=labels, provenance=provenance, settings=SETTINGS | settings)


def scores(value=50.0, tasks=("STS12",), **other):
    return pd.DataFrame([STS | {"task": task, "value": value} | other for task in tasks])


def sides(values, **other):
    """Rows of the seven tasks: method -> seed -> its values."""
    conditions = {name: "" for name in results.SHAPES["scores"]} | {"backbone": "b", "sentences": 10} | STS | other
    lines = [
        conditions | {"method": method, "seed": seed, "task": task, "value": value}
        for method, by_seed in values.items()
        for seed, scored in by_seed.items()
        for task, value in zip(STS_TASKS, scored, strict=True)
    ]
    return pd.DataFrame(lines)


# --- Rows, and what a run adds ---


def test_the_columns_give_a_measurement_its_shape_and_the_run_its_conditions(repository):
    curve = add(pd.DataFrame({"step": [0, 5], "metric": "alignment", "value": [0.1, 0.2]}), run(), **LABELS)
    layers = add(pd.DataFrame({"layer": [1, 2], "metric": "cls energy", "value": 0.5}), run(), **LABELS)
    point = add(pd.DataFrame({"x": [1.0], "y": [2.0], "item": [0], "metric": "tsne"}), run(), **LABELS)
    assert list(curve) == list(layers) == results.SHAPES["curves"] and list(point) == results.SHAPES["points"]
    assert len(rows(shape="curves")) == 4 and len(rows(shape="points")) == 1 and rows().empty
    assert rows(shape="curves", step=5).value.tolist() == [0.2]
    assert rows(shape="curves", layer=[1, 2]).metric.tolist() == ["cls energy"] * 2
    frame = scores(100 / 3, ["STS12", "STS13", "Avg."]).assign(pooling="mean")
    found = add(frame, run(), **LABELS)
    assert list(found) == results.SHAPES["scores"] and found.task.tolist() == ["STS12", "STS13"]
    expected = LABELS | {"backbone": "mini-bert", "pooling": "mean", "sentences": 1000, "settings": "given"}
    expected |= {"precision": "fp32", "device": "CPU", "profile": "small", "seed": "42", "run_id": "simcse-1"}
    assert found.iloc[0][list(expected)].to_dict() == expected and found.value[0] == 100 / 3
    untuned = add(scores(), **LABELS | {"method": "untuned"}, profile="small")
    assert untuned.sentences.isna().all() and untuned.iloc[0][["seed", "run_id", "device"]].tolist() == ["", "", ""]
    assert not (repository / "results").exists()


def test_filters_are_values_lists_and_functions(repository):
    for sentences, table in ((1000, "Table 1"), (10000, "Table 1"), (1000, "Table 2")):
        add(scores(tasks=STS_TASKS), run(), paper="p", table=table, method="SimCSE", sentences=sentences)
    assert len(rows()) == 21 and len(rows(sentences=1000)) == 14
    assert len(rows(sentences=[1000, 10000], task=STS_TASKS, table="Table 1")) == 14
    assert len(rows(table=lambda column: column.str.endswith("2"), task="STS-B")) == 1
    assert rows(table="Table 9").empty and list(rows(table="Table 9")) == [*results.SHAPES["scores"], "source"]
    with pytest.raises(ConfigError, match="unknown column of rows 'sentence': did you mean 'sentences'"):
        rows(sentence=1000)


def test_every_measurement_is_there_once_and_says_where_from(repository):
    add(scores(1.0), run(1, name="a"), publish=True, **LABELS)
    add(scores(2.0), run(2, name="b"), **LABELS)
    add(scores(3.0), run(2, name="b"), **LABELS)  # measured again
    found = rows()
    columns = ["seed", "value", "source"]
    assert found[columns].to_numpy().tolist() == [["2", 3.0, "this run, small"], ["1", 1.0, "small"]]
    assert rows("small").equals(found) and rows("paper").empty
    with pytest.raises(DataError, match="two rows with other values are both called p, T, SimCSE, mini-bert"):
        add(pd.concat([scores(1.0), scores(2.0)]), run(), **LABELS)
    assert rows().equals(found)
    add(scores(4.0), run(2, name="c"), **LABELS)  # in the same kernel, with other settings
    add(scores(5.0).assign(precision="bf16"), run(2, name="d"), **LABELS)
    assert rows().value.tolist() == [5.0, 1.0]


def test_own_rows_are_compared_with_own_ones_where_they_differ_from_published_ones(repository, monkeypatch):
    published = [(seed, method) for method in ("A", "B") for seed in (1, 2)]
    for seed, method in published:
        add(scores(1.0, method=method), run(seed, name=f"{method}{seed}"), publish=True, **LABELS)
    monkeypatch.setattr(results, "_own", [])  # a new kernel
    add(scores(1.0, method="A"), run(1, name="A1"), **LABELS)  # found again
    add(scores(5.0, method="C"), run(1, name="C1"), **LABELS)
    assert results.comparable(rows()).equals(rows()) and len(rows()) == 5
    with monkeypatch.context() as patch:
        patch.setattr(results, "_own", [])
        add(scores(2.0, method="A").assign(sentences=500), run(1, name="A9"), **LABELS)
        assert results.comparable(rows()).run_id.tolist() == ["A9"], "on fewer sentences"
    for other in ({"seed": "3"}, {"pooling": "mean"}, {"task": "mine.csv", "protocol": "own pairs"}):
        with monkeypatch.context() as patch:
            patch.setattr(results, "_own", [])
            add(scores(2.0, method="A").assign(**other), run(1, name="A9"), **LABELS)
            assert results.comparable(rows()).run_id.tolist() == ["A9"], other
            add(scores(1.0, method="A"), run(1, name="A1"), **LABELS)  # found again
            assert results.comparable(rows()).run_id.tolist() == ["A9", "A1"], other
    add(scores(2.0, method="B"), run(1, name="B1", device="NVIDIA H200"), **LABELS)
    add(scores(9.0), run(1, name="x", backbone="mine"), **LABELS)
    found = results.comparable(rows())
    assert sorted(found.method + found.seed + found.device) == ["A1CPU", "B1NVIDIA H200", "C1CPU", "SimCSE1CPU"]
    assert set(compare(found[found.backbone == "mini-bert"].assign(device=""), "A").gain.dropna()) == {1.0, 4.0}


def test_an_untuned_encoder_of_this_kernel_may_be_another_one_than_the_published_of_its_name(repository, monkeypatch):
    untuned = LABELS | {"method": "untuned", "profile": "small", "backbone": "mini-bert"}
    add(scores(50.0), publish=True, **untuned)
    add(scores(60.0), run(1), publish=True, **LABELS)
    results.forget()
    add(scores(10.0), **untuned)
    add(scores(30.0), run(1, name="mine", device="NVIDIA H200"), **LABELS)
    gains = compare(rows(), "untuned", ["source", "method"]).gain.dropna()
    assert gains.to_dict() == {("this run, small", "SimCSE"): 20.0, ("small", "SimCSE"): 10.0}
    assert results.comparable(rows()).value.tolist() == [10.0, 30.0]
    results.forget()
    add(scores(50.0), **untuned)
    assert rows().value.tolist() == [50.0, 60.0], "measured again"
    add(scores(30.0), run(1, name="mine", device="NVIDIA H200"), **LABELS)
    assert results.comparable(rows()).value.tolist() == [30.0, 50.0]


def test_rows_of_the_demo_stand_aside_for_published_ones_of_their_encoder(repository):
    add(scores(), run(), publish=True, **LABELS)
    add(scores(9.0), run(profile="demo", name="simcse-2"), **LABELS)
    add(scores(8.0), run(profile="demo", name="simcse-3", backbone="mine"), **LABELS)
    assert rows()[["backbone", "source"]].to_numpy().tolist() == [["mine", "this run, demo"], ["mini-bert", "small"]]
    assert set(rows("demo").value) == {8.0, 9.0} and rows("small").value.tolist() == [50.0]
    add(scores(7.0), run(profile="demo", name="simcse-2"), **LABELS | {"table": "Table 9"})
    assert rows(table="Table 9").value.tolist() == [7.0], "nothing is published under these filters"


def test_publishing_replaces_the_same_conditions_and_keeps_all_else(repository):
    folder = repository / "results" / "small"
    add(scores(100 / 3, ["STS12", "STS13"]), run(), publish=True, **LABELS)
    add(scores(50.0), run(name="simcse-2"), publish=True, **LABELS)
    add(pd.DataFrame({"step": [0], "metric": ["loss"], "value": [0.5]}), run(), publish=True, **LABELS)
    add(scores(5.0), publish=True, **LABELS | {"method": "untuned"}, profile="small")
    assert sorted(path.name for path in folder.iterdir()) == ["p.csv", "p_curves.csv", "runs.json"]
    lines = [tuple(row.values()) for row in csv.DictReader((folder / "p.csv").open())]
    assert [(line[2], line[10], line[15], line[17]) for line in lines] == [
        ("SimCSE", "STS12", "50.0", "simcse-2"), ("SimCSE", "STS13", str(100 / 3), "simcse-1"), ("untuned", "STS12", "5.0", ""),
    ]  # fmt: skip
    assert rows(task="STS13").value[0] == 100 / 3
    known = json.loads((folder / "runs.json").read_text())
    assert set(known) == {"simcse-1", "simcse-2"} and known["simcse-1"]["settings"] == SETTINGS
    assert known["simcse-1"]["rows"] == 1000 and "also" not in known["simcse-1"]
    add(scores(), run(name="simcse-2", device="NVIDIA H200"), publish=True, **LABELS)  # trained there, too
    known = json.loads((folder / "runs.json").read_text())["simcse-2"]
    assert known["device"] == "NVIDIA H200" and [one["device"] for one in known["also"]] == ["CPU, 2 threads"]
    add(scores(np.nan), run(name="simcse-3"), publish=True, **LABELS)  # a score that is not defined any more
    first = next(csv.DictReader((folder / "p.csv").open()))
    assert (first["value"], first["run_id"]) == ("", "simcse-3")


def test_a_mean_over_seeds_never_mixes_settings_or_texts(repository):
    add(scores(), run(1, name="a"), publish=True, **LABELS)
    path = repository / "results" / "small" / "p.csv"
    before = path.read_text()
    with pytest.raises(DataError, match=r"rows p, T, SimCSE, mini-bert .* different temperature \(0.05 and 0.1\)"):
        add(scores(), run(2, name="b", temperature=0.1), publish=True, **LABELS)
    with pytest.raises(
        DataError, match="different corpus .*mine.txt, 1,000 rows drawn.* and .*wiki.txt, 1,000 rows drawn"
    ):
        add(scores(), run(2, name="b", text="mine"), publish=True, **LABELS)
    assert path.read_text() == before and set(json.loads(path.with_name("runs.json").read_text())) == {"a"}
    add(scores(), run(2, name="b", temperature=0.1), publish=True, **LABELS, settings="temperature 0.1")
    assert len(rows("small", settings="temperature 0.1")) == 1


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: text.replace("run_id", "run"), "not every line has the columns of scores"),
        (lambda text: text.removesuffix(",simcse-1\n"), "not every line"),
        (lambda text: text.replace("50.0", "fifty"), "fifty"),
        (lambda text: "", "not every line"),
    ],
)
def test_a_damaged_file_is_named(repository, damage, says):
    add(scores(), run(), publish=True, **LABELS)
    path = repository / "results" / "small" / "p.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=f"p.csv is damaged .*{says}.* restore it from git"):
        rows()


def test_a_history_gives_curves_of_the_steps_that_have_all_quantities():
    history = pd.DataFrame({"step": [0, 1, 2], "loss": [np.nan, 2.0, 1.0], "alignment": [0.3, np.nan, 0.1]})
    found = results.history("loss", "alignment")(SimpleNamespace(history=history))
    assert found.to_numpy().tolist() == [[2, "loss", 1.0], [2, "alignment", 0.1]]
    off = results.history("loss", "ami")(SimpleNamespace(history=history))
    assert off.metric.tolist() == ["loss", "loss"], "a term that was switched off has no column"
    assert results.history("ami")(SimpleNamespace(history=history)).empty
    halves = results.history("half", derive=lambda frame: frame.assign(half=frame.loss / 2))
    assert halves(SimpleNamespace(history=history))[["step", "value"]].to_numpy().tolist() == [[1, 1.0], [2, 0.5]]


# --- Comparing ---


def measured(methods=("A", "B"), seeds=range(5)):
    """Rows with values that no rounding gives; each method is better than the one before it, but on STS12."""
    random, gains = np.random.default_rng(0), np.array([-2, 1, 1, 1, 1, 1, 1])
    return sides(
        {name: {str(s): 60 + i * gains + random.normal(size=7) for s in seeds} for i, name in enumerate(methods)}
    )


def by_loop(frame, method, over):
    """Gains of every seed that both methods have with all tasks, and by task."""
    value = {(row.method, row.seed, row.task): row.value for row in frame.itertuples()}
    gains = []
    for seed in sorted({seed for _, seed, _ in value}):
        mine = [value.get((method, seed, task)) for task in STS_TASKS]
        theirs = [value.get((over, seed, task), value.get((over, "", task))) for task in STS_TASKS]
        if None not in mine + theirs:
            gains.append([a - b for a, b in zip(mine, theirs, strict=True)])
    return gains


def test_a_comparison_is_what_an_obvious_loop_gives():
    frame = measured()
    frame = frame[(frame.method != "A") | (frame.seed != "3")]  # a seed that only B has
    frame = frame[(frame.method != "B") | (frame.seed != "4") | (frame.task != "STS12")]  # one that lacks a task
    found = compare(frame.sample(frac=1, random_state=1), "A").loc["B"]
    gains = by_loop(frame, "B", "A")
    each = [sum(gain) / 7 for gain in gains]
    own = [frame[(frame.method == "B") & (frame.seed == s)].value.mean() for s in "012"]
    assert found["mean"] == pytest.approx(np.mean(own), rel=1e-12)
    assert found.sd == pytest.approx(np.std(own, ddof=1), rel=1e-12)
    assert found.gain == pytest.approx(np.mean(each), rel=1e-12) and found.seeds == len(each) == 3
    interval = stats.ttest_1samp(each, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    above = sum(np.mean([gain[task] for gain in gains]) > 0 for task in range(7))
    assert found.tasks == f"{above} of 7" and above not in (0, 7)
    reference = compare(frame, "A").loc["A"]
    assert reference.seeds == 4 and np.isnan(reference.gain) and reference.tasks == ""


def test_one_seed_has_no_interval_and_an_untuned_encoder_stands_against_every_seed():
    untuned = sides({"untuned": {"": [50.0] * 7}}, sentences=pd.NA)
    frame = pd.concat([measured(["A"]), measured(["C"], [9]), untuned])
    found = compare(frame, "untuned", ["backbone", "sentences", "method"]).droplevel(["backbone", "sentences"])
    assert found.seeds.to_dict() == {"A": 5, "C": 1, "untuned": 0}
    each = [np.mean(gain) for gain in by_loop(frame, "A", "untuned")]
    assert found.loc["A", ["gain", "low"]].tolist() == pytest.approx([np.mean(each), results.interval(each)[0]])
    assert found.gain["C"] > 0 and np.isnan(found.low["C"]) and np.isnan(found.gain["untuned"])


def test_rows_are_told_apart_by_columns_and_compared_within_them_or_refused():
    frame = pd.concat([measured(), measured().assign(backbone="c", value=lambda rows: -rows.value)])
    found = compare(frame, "A", ["backbone", "method"])
    assert found.gain["b", "B"] == -found.gain["c", "B"] and found.index.names == ["backbone", "method"]
    frame = pd.concat([measured(), measured(["B"]).assign(settings="chosen", value=70.0)])
    chosen = compare(frame, {"method": "B", "settings": ""}, ["settings", "method"])
    assert chosen.gain["chosen", "B"] == pytest.approx(70 - chosen["mean"]["", "B"])
    assert chosen.gain["", "A"] == -compare(measured(), "A").gain["B"]
    listed = compare(frame, {"method": "B", "settings": ["", "none"]}, ["settings", "method"])
    pd.testing.assert_frame_equal(listed, chosen)
    with pytest.raises(ConfigError, match="B has two values for seed 0 STS12: filter the rows further"):
        compare(pd.concat([measured(), measured().assign(table="another")]), "A")


@pytest.mark.parametrize("name", ["backbone", "sentences", "settings", "device", "split", "protocol"])
def test_unequal_conditions_are_refused_by_name(name):
    frame = measured().astype({name: object})
    frame.loc[frame.method == "A", name] = 7 if name == "sentences" else "one"
    frame.loc[frame.method == "B", name] = 8 if name == "sentences" else "other"
    with pytest.raises(ConfigError, match=f"B and A differ in {name} .*filter the rows, or name {name} in `by`"):
        compare(frame, "A")
    frame.loc[frame.method == "A", name] = pd.NA if name == "sentences" else ""  # such as an untuned encoder has
    assert compare(frame, "A").gain["B"] == compare(measured(), "A").gain["B"]


@pytest.mark.parametrize(
    ("gains", "rates"),
    [
        ({"D": [1.0, 1.9, 0.2, 1.3], "B": [1.0, 1.1, 0.9, 1.0], "C": [1.0, 1.4, 0.5, 0.9]}, {"B": 3, "C": 2, "D": 1}),
        ({"B": [1.445, 1.445, 0.555, 0.555], "C": [1.495, 1.495, 0.505, 0.505]}, {"B": 2, "C": 2}),
        ({"D": [1.0, 1.5, 0.4, 0.9], "C": [0.0] * 4, "B": [1.0, 1.1, 0.9, 1.0]}, {"B": 3, "D": 2}),
    ],
    ids=["the smallest p of three at 5 % / 3", "ends at the first p above its rate", "a gain of 0 is the last"],
)
def test_holms_intervals_by_hand(gains, rates):
    over_a = {"A": [0.0] * 4} | gains
    frame = sides({name: {str(s): [50.0 + g] * 7 for s, g in enumerate(each)} for name, each in over_a.items()})
    found = compare(frame, "A", ["backbone", "method"], holm="backbone").loc["b"]
    for name, rate in rates.items():
        interval = stats.ttest_1samp(gains[name], 0).confidence_interval(1 - 0.05 / rate)
        assert found.loc[name, ["low", "high"]].tolist() == pytest.approx([*interval])


def test_averages_leave_out_seeds_that_lack_a_task():
    frame = measured(["A"], [1, 2])
    found = averages(frame[(frame.seed != "2") | (frame.task != "STS12")])
    assert found[["seed", "task"]].to_numpy().tolist() == [["1", "Avg."]]
    assert found.value[0] == pytest.approx(frame[frame.seed == "1"].value.mean(), rel=1e-12)
    assert averages(frame[frame.task == "STS-B"]).task.tolist() == ["STS-B", "STS-B"]
    both = pd.concat([measured(["A"], [1]), measured(["B"], [1]).query("task != 'STS12'")])
    assert averages(both).method.tolist() == ["A", "B"], "methods may have been measured on different tasks"
    demo = pd.concat([frame, frame.assign(split="dev"), frame.assign(aggregation="mean"), frame.assign(metric="ndcg")])
    assert results.sts(demo).equals(frame)


def test_floors_are_the_best_untrained_reading_and_word_vectors_of_the_mini_bert():
    def untuned(backbone, pooling, value, **other):
        return sides({"untuned": {"": [value] * 7}}, backbone=backbone, pooling=pooling, **other)

    frame = [untuned("mini-bert", "cls", 30.0), untuned("mini-bert", "mean", 40.0)]
    frame += [untuned("averaging start", "cls", 60.0)]
    frame += [untuned("other", "cls", 50.0), untuned("other", "mean", 55.0), measured(["A"])]
    frame += [untuned("other", "mask", 99.0).query("task != 'STS12'"), untuned("other", "pooler", 99.0, split="dev")]
    frame += [untuned("other", "cls", 99.0, aggregation="wmean"), untuned("other", "cls", 99.0, metric="pearson")]
    found = floors(pd.concat(frame))
    assert found.to_numpy().tolist() == [
        ["untuned, cls", "averaging start", 60.0], ["word vectors", "mini-bert", 60.0], ["untuned, mean", "other", 55.0],
    ]  # fmt: skip
    dev = floors(pd.concat(frame), task="STS-B", split="dev")
    assert dev.to_numpy().tolist() == [["untuned, pooler", "other", 99.0]]
    assert floors(pd.concat(frame)[:0]).empty


# --- Verdict and table ---

FLOORS = pd.DataFrame({"backbone": ["mini-bert", "minilm-stripped"], "value": [60.0, 70.0]})


@pytest.mark.parametrize(
    ("expected", "mini", "minilm"),  # mean, low, high of an encoder; None: not measured
    [
        ("holds", (61, 0.1, 1), (71, 0.1, 1)),
        ("holds on one encoder", (61, 0.1, 1), (71, 0.0, 1)),  # 0 is not above 0
        ("holds on one encoder", (61, 0.1, 1), (70, 0.1, 1)),  # the floor is not above the floor
        ("holds on one encoder", (61, 0.1, 1), (71, -9, -1)),
        ("holds on one encoder", (61, 0.1, 1), (71, np.nan, np.nan)),
        ("holds on one encoder", (61, 0.1, 1), None),
        ("contradicted", (61, -1, 1), (71, -2, -0.1)),
        ("contradicted", (59, 0.1, 1), (71, -2, -0.1)),
        ("no gain worth having", (61, -1, 0.49), (71, -1, 0.0)),
        ("open", (61, -1, 0.5), (71, -1, 0.2)),
        ("open", (61, -1, 0.4), None),
        ("open", (59, 0.1, 1), (71, -1, 2)),
        ("one run", (61, np.nan, np.nan), (71, np.nan, np.nan)),
        ("not measured", None, None),
    ],
)
def test_each_verdict_and_its_borders(expected, mini, minilm):
    encoders = {name: found for name, found in {"mini-bert": mini, "minilm-stripped": minilm}.items() if found}
    index = pd.Index(list(encoders), name="backbone")
    compared = pd.DataFrame(list(encoders.values()), index=index, columns=["mean", "low", "high"], dtype=float)
    compared["gain"] = 0.5
    assert verdict(compared, floors=FLOORS) == expected and expected in results.VERDICTS
    turned = compared.assign(low=-compared.high, high=-compared.low)
    assert verdict(turned, sign=-1, floors=FLOORS) == expected
    assert verdict(compared, floors=FLOORS, points=False) == ("open" if "worth" in expected else expected)
    mine = pd.DataFrame({"gain": 1.0, "mean": 99.0, "low": 9.0, "high": 9.9}, pd.Index(["mine"], name="backbone"))
    others_do_not_vote = expected if encoders else "holds on one encoder"
    assert verdict(pd.concat([compared, mine]), floors=FLOORS) == others_do_not_vote


def test_a_table_with_a_caption_and_an_empty_one_that_says_what_is_not_measured():
    shown = results.show(pd.DataFrame({"value": [1.234, np.nan], "seeds": [3, 4]}), "scores", digits=1)
    assert shown.caption == "scores" and re.findall(r"<td[^>]*>([^<]*)<", shown.to_html()) == ["1.2", "3", "", "4"]
    assert results.show(pd.DataFrame(columns=["value"]), "scores").caption == "not measured yet: scores"
    sentences = pd.Index(pd.array([None, 10_000], "Int64"), name="sentences")
    page = results.show(pd.DataFrame({"value": [1.0, 2.0]}, sentences), "scores").to_html()
    assert re.findall(r"<th [^>]*row_heading[^>]*>([^<]*)<", page) == ["", "10,000"]
    frame = pd.DataFrame({"mini-bert": [1.0, 2.0], "of": ["minilm-stripped", "a"]}, ["minilm-stripped", "bert"])
    page = results.show(frame, "scores", digits=0).to_html()
    assert re.findall(r"<th [^>]*heading[^>]*>([^<]+)<", page) == ["mini-BERT", "of", "stripped MiniLM", "bert"]
    assert re.findall(r"<td[^>]*>([^<]*)<", page) == ["1", "stripped MiniLM", "2", "a"]


# --- The published rows ---

PUBLISHED = sorted((paths.root() / "results").glob("*/*.csv"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_published_rows_have_a_shape_and_their_provenance(path):
    with path.open(encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file))
    shape = next(shape for shape, columns in results.SHAPES.items() if columns == list(lines[0]))
    assert path.stem.endswith(results.ENDINGS[shape]) and {line["profile"] for line in lines} == {path.parent.name}
    paper = path.stem.removesuffix(results.ENDINGS[shape])
    assert len(rows(path.parent.name, shape=shape, paper=paper)) == len(lines), "each measurement once"
    runs = json.loads(path.with_name("runs.json").read_text(encoding="utf8"))
    assert {line["run_id"] for line in lines} - {""} <= set(runs)
    assert all(line["device"] for line in lines if line["run_id"])
    assert "Avg." not in {line.get("task") for line in lines}


@pytest.mark.parametrize(
    ("paper", "table", "backbone", "sentences", "method", "over"),
    [
        ("micse", "Table 3", "mini-bert", 1000, "SimCSE + AMI", "SimCSE"),
        ("msse", "Table 1", "minilm-stripped", 1000, "MSSE", "MSSE w/o ICM"),
        ("level", "level", "minilm-stripped", 10000, "MSSE", "SimCSE"),
        ("level", "level", "minilm-stripped", 10000, "SimCSE, cropped view", "SimCSE"),
        ("level", "level", "mini-bert", 10000, "MSSE", "SimCSE"),
    ],
)
def test_gains_of_published_rows_again_from_the_file(paper, table, backbone, sentences, method, over):
    wanted = STS | {"table": table, "backbone": backbone, "settings": "level" if paper == "level" else "given"}
    with (paths.root() / "results" / "small" / f"{paper}.csv").open(encoding="utf8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if wanted.items() <= line.items()]
    frame = pd.DataFrame([line for line in lines if line["sentences"] == str(sentences)]).astype({"value": float})
    each = [np.mean(gain) for gain in by_loop(frame, method, over)]
    interval = stats.ttest_1samp(each, 0).confidence_interval()
    both = rows("small", paper=paper, task=STS_TASKS, sentences=sentences, method=[method, over], **wanted)
    found = compare(both, over).loc[method]
    assert found[["gain", "low", "high"]].tolist() == pytest.approx([np.mean(each), *interval], abs=1e-9)
