"""The tables of the notebooks: which rows count, gains by hand, dev scores beside what was published."""

import numpy as np
import pandas as pd
import pytest

from lib import paths, runs
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.data import load_sts
from lib.data.labelled import load_labelled
from lib.runs import ROW_COLUMNS, Plan, tables

SEVEN = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]


def rows(method, seed, value, *, tasks=(*SEVEN, "Avg."), **other):
    common = {"paper": "p", "table": "T", "method": method, "backbone": "mini", "profile": "small", "seed": seed}
    common |= {
        "split": "test",
        "protocol": "SentEval",
        "aggregation": "all",
        "metric": "spearman",
        "run_id": "",
    } | other
    return pd.DataFrame([common | {"task": task, "value": value if task == "Avg." else 0.0} for task in tasks])[
        ROW_COLUMNS
    ]


@pytest.fixture
def measured():
    parts = [
        rows("A", "1", 60.0),
        rows("A", "2", 62.0),
        rows("B", "1", 61.0),
        rows("B", "2", 65.0),
        rows("floor", "", 50.0),
    ]
    others = [rows("A", "1", 1.0, split="dev"), rows("A", "1", 2.0, aggregation="wmean")]
    others += [rows("A", "1", 3.0, metric="ndcg@10"), rows("A", "1", 4.0, tasks=["demo"], profile="demo")]
    return pd.concat([*parts, *others], ignore_index=True)


def test_headlines_are_the_average_or_the_only_task(measured):
    shown = tables.headlines(measured)
    assert shown[["profile", "task", "method"]].to_numpy().tolist() == [
        *(["small", "Avg.", name] for name in ("A", "A", "B", "B", "floor")),
        ["demo", "demo", "A"],
    ]


def test_gains_with_their_intervals_by_what_they_were_measured_on(measured):
    both = measured.query("method in ('A', 'B')")
    twice = pd.concat([both.assign(on="x"), both.assign(on="y", value=both.value.where(both.method == "A", 70.0))])
    means, seeds = tables.gain_intervals(twice, over="A", name="on")
    assert means[["group", "method", "value", "seeds"]].to_numpy().tolist() == [
        ["mini", "x", 2.0, 2],
        ["mini", "y", 9.0, 2],
    ]
    assert means.low.to_numpy() == pytest.approx([2 - 12.706, 9 - 12.706], abs=0.001)
    assert seeds.to_numpy().tolist() == [
        ["mini", "x", "1", 1.0], ["mini", "x", "2", 3.0], ["mini", "y", "1", 10.0], ["mini", "y", "2", 8.0],
    ]  # fmt: skip


def test_gains_by_hand(measured):
    styled = tables.gains(measured.query("profile == 'small'"), over="A")
    table = styled.data
    assert table.loc["B", "gain"] == pytest.approx(2.0) and table.loc["B", "mean"] == 63.0
    assert table.loc["floor", "mean"] == 50.0 and pd.isna(table.loc["floor", "gain"])
    assert styled.caption == (
        "profile small; average of seven STS tasks, test, aggregation all, Spearman x 100; mini; gain over A with the same seed"
    )


def test_without_rows_a_sentence_stands_in_the_place_of_the_table():
    assert tables.gains(pd.DataFrame(columns=ROW_COLUMNS), over="A") == "not measured yet"


def test_tasks_stand_beside_published_rows_with_their_spread():
    measured = pd.concat([rows("A", "1", 60.0), rows("A", "2", 62.0), rows("A", "1", 9.0, aggregation="mean")])
    printed = rows("paper", "", 76.25).pivot_table(index="method", columns="task", values="value")
    table = tables.by_task(measured, {"paper": printed}, caption="c").data
    assert table.loc[("small, mini", "A"), ["Avg.", "seeds"]].tolist() == [61.0, 2.0]
    assert table.loc[("small, mini", "A"), "std"] == pytest.approx(2**0.5)
    assert table.loc[("paper", "paper"), "Avg."] == 76.25 and pd.isna(table.loc[("paper", "paper"), "seeds"])
    assert list(table) == [*SEVEN, "Avg.", "std", "seeds"]


@pytest.fixture
def plan(tiny_bert, corpus_file):
    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "max_steps": 1, "eval_every": 1}
    plan = Plan("demo")
    config = RunConfig(**values, batch_size=16, max_length=16)
    plan.variants("rates", config, {"0.2": {"temperature": 0.2}, "0.1": {"temperature": 0.1}}, [1, 2])
    plan.sts(["demo"], config.data_folder(), encoders=4)
    return plan


def test_score_gives_the_rows_of_every_run_and_floor(plan):
    done = plan.runs("rates")
    found = tables.score(plan, done, {"untuned": done.run[0]}, paper="p", table="T", note="n")
    assert found.drop_duplicates(["method", "seed"])[["method", "seed", "table"]].to_numpy().tolist() == [
        ["untuned", "", "T"], ["0.2", "1", "T"], ["0.2", "2", "T"], ["0.1", "1", "T"], ["0.1", "2", "T"],
    ]  # fmt: skip


def test_beyond_sts_everything_is_evaluated_that_the_plan_declared(plan, monkeypatch):
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    published = []
    done, kinds = plan.runs("rates").query("method == '0.2'"), {"transfer": "T 1", "clustering": "T 2"}
    assert not len(tables.beyond(plan, done, {}, kinds, paper="p", note="n")) and not published
    plan.clustering(["demo"], paths.root() / "data", clusters=[0])
    found = tables.beyond(plan, done, {"untuned": done.run.iloc[0]}, kinds, paper="p", note="n")
    assert set(found.table) == {"T 2"} and published[0][0] is found
    assert found.drop_duplicates(["method", "seed"])[["method", "seed"]].to_numpy().tolist() == [
        ["untuned", ""], ["0.2", "1"], ["0.2", "2"],
    ]  # fmt: skip


def test_other_tasks_stand_in_rows_with_the_average_of_the_seven_transfer_tasks(monkeypatch):
    transfer = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]
    about = {"metric": "accuracy", "aggregation": "-"}
    parts = [rows("A", "1", 0.0, tasks=[task], **about).assign(value=10.0 + i) for i, task in enumerate(transfer)]
    parts += [rows("A", "1", 0.0, tasks=["ACC"], table="U", **about).assign(value=70.0)]
    parts += [rows("A", "1", 0.0, tasks=["ACC"], table="U", split="dev", **about).assign(value=1.0)]
    pair = {"tasks": ["pair"], "table": "V", "aggregation": ""}
    shown = {"cosine": 80.0, "gold": 56.0}.items()
    parts += [rows("A", "1", 0.0, metric=metric, **pair).assign(value=value) for metric, value in shown]
    monkeypatch.setattr(runs.store, "published", lambda profile, name: pd.concat(parts))
    nothing = pd.DataFrame(columns=ROW_COLUMNS)
    styled = tables.beyond_sts(nothing, paper="p", tables="T|U|V")
    table = styled.data
    assert styled.caption == "test, x 100, one seed"
    assert table.index.get_level_values("task").tolist() == [*transfer, "Avg.", "ACC", "pair", "pair"]
    assert table.iloc[:, 0].tolist() == [10, 11, 12, 13, 14, 15, 16, 13, 70, 80, 56]
    parts.append(parts[0].assign(seed="2"))
    assert "mean over the seeds" in tables.beyond_sts(nothing, paper="p", tables="T|U|V").caption
    monkeypatch.setattr(runs.store, "published", lambda profile, name: nothing)
    assert "not measured in small" in tables.beyond_sts(nothing, paper="p", tables="T").caption


def test_quantities_of_a_history_are_published_times_100_and_small_is_shown_before_this_run(plan, monkeypatch):
    published, done = [], plan.runs("rates")
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    about = {"paper": "p", "name": "course", "table": "60 sentences", "note": "n"}
    shown, source = tables.history(
        plan, done, ["loss", "twice"], derive=lambda frame: frame.assign(twice=2 * frame.loss), **about
    )
    frame, name, _ = published[0]
    assert name == "p_course" and list(frame) == tables.HISTORY_COLUMNS and set(frame.table) == {"60 sentences"}
    losses = [row.run.history.dropna(subset="loss").loss.iloc[0] for row in done.itertuples()]
    assert frame[frame.quantity == "loss"].groupby("run_id", sort=False).value.first().tolist() == pytest.approx(
        [100 * loss for loss in losses]
    )
    assert source == "profile demo" and (shown.twice / shown.loss).tolist() == pytest.approx([2.0] * len(shown))
    known = pd.concat([frame.assign(table=table, value=7.0) for table in ("10,000 sentences", "1,000 sentences")])
    monkeypatch.setattr(runs.store, "published", lambda profile, name, columns: known)
    shown, source = tables.history(plan, done, ["loss"], **about)
    assert source == "profile small, 10,000 sentences" and set(shown.loss) == {0.07} and len(shown) == len(losses)


def test_methods_and_sizes_are_read_from_names():
    known = pd.concat([rows(name, "1", 1.0, tasks=["STS-B"]) for name in ("A + B, 1,000 sentences", "untuned, cls")])
    found = tables.sized(known)
    assert found[["method", "sentences"]].to_numpy().tolist() == [["A + B", 1000]]
    assert tables.sized(pd.DataFrame(columns=ROW_COLUMNS)).empty


def test_the_caption_names_the_floors(measured):
    known = measured.query("profile == 'small'").assign(backbone="minilm-stripped")
    assert tables.gains(known, over="A", with_floors=True).caption.endswith(
        "; floors: minilm-stripped 67.40 (untuned, cls)"
    )


def test_every_encoder_is_measured_and_labelled(plan):
    done = plan.runs("rates").query("seed == 1")
    untuned = {"untuned": done.run.iloc[0].encoder()}
    found = tables.of_encoders(done, untuned, lambda encoder: pd.DataFrame({"value": [float(encoder.dimension)] * 2}))
    assert list(found) == ["backbone", "value", "method", "seed", "run_id"] and len(found) == 6
    assert found.drop_duplicates()[["method", "seed"]].to_numpy().tolist() == [["untuned", ""], ["0.2", 1], ["0.1", 1]]
    assert set(found.backbone) == {done.run.iloc[0].labels["backbone"]} and set(done.run_id) < set(found.run_id)


def test_agreement_takes_the_pairs_that_mean_the_same_and_publishes_it_times_100(plan, monkeypatch):
    published, done = [], plan.runs("rates").query("seed == 1")
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    task = load_sts(paths.root() / "data", "demo", "dev")
    shown = tables.agreement(plan, done, {}, task, paper="p", table="60 sentences").data
    frame, name, note = published[0]
    alike = [i for i, gold in enumerate(task.gold) if gold > 4]
    x, y = (done.run.iloc[0].encoder().encode([side[i] for i in alike]) for side in (task.sentences1, task.sentences2))
    by_hand = 100 * np.mean([np.corrcoef(x[:, i], y[:, i])[0, 1] for i in range(x.shape[1])])
    assert name == "p_agreement" and f"over {len(alike)} " in note and set(frame.table) == {"60 sentences"}
    assert shown.xs(done.method.iloc[0], level="method").own.iloc[0] == pytest.approx(by_hand, abs=1e-3)


def test_single_pairs_are_published_with_their_run(plan, monkeypatch):
    published, done = [], plan.runs("rates").query("seed == 1")
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    one = pd.DataFrame({"group": ["a", "a", "b"], "x": [0.12345, 1, 2], "cosine": [0.5, 0.25, -0.1]})
    frame = pd.concat([one.assign(encoder=name) for name in ("0.1", "0.2")])
    shown, source = tables.pairs(plan, {"Figure 5": frame, "Figure 7": frame}, done, paper="p", note="n")
    rows, name, _ = published[0]
    assert name == "p_pairs" and list(rows) == tables.PAIR_COLUMNS and source == "profile demo"
    assert rows.pair.tolist() == [0, 1, 0] * 4 and rows.value.tolist()[:3] == [50.0, 25.0, -10.0] and rows.x[0] == 0.123
    assert dict(zip(rows.method, rows.run_id, strict=True)) == dict(zip(done.method, done.run_id, strict=True))
    assert list(shown) == ["table", "backbone", "encoder", "group", "x", "cosine"]
    assert shown.cosine.tolist()[:3] == [0.5, 0.25, -0.1] and set(shown.table) == {"Figure 5", "Figure 7"}


def test_the_same_texts_of_every_encoder_are_published_on_a_map(plan, monkeypatch):
    published = []
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    one = pd.DataFrame({"label": list("ab") * 5, "cluster": [0, 1] * 5, "x": range(10), "y": 0.123, "v_measure": 50.0})
    mapped = pd.concat([one.assign(encoder=name, trust=0.9) for name in ("untuned", "trained")])
    about = {"paper": "p", "table": "texts", "seed": 1, "run_ids": {"trained": "simcse-1"}, "texts": 4}
    [((table, backbone), points)] = tables.cluster_map(plan, mapped, **about)
    frame, name, _ = published[0]
    texts = frame.groupby("method").text.apply(list)
    assert name == "p_map" and texts["untuned"] == texts["trained"] == frame.text.drop_duplicates().tolist()
    assert len(texts["untuned"]) == 4 and set(frame.run_id) == {"", "simcse-1"} and frame.y.unique() == [0.12]
    assert frame.value.tolist() == frame.text.tolist() == points.x.tolist()
    assert table == "texts" and set(points.encoder) == {
        "untuned\nV-measure 50, trust 0.90",
        "trained\nV-measure 50, trust 0.90",
    }


def test_few_sentences_are_scored_by_size_and_small_is_shown_before_this_run(plan, monkeypatch):
    done = plan.runs("rates").assign(sentences=[20, 20, 1_000, 1_000])
    shown, source = tables.few_shot(plan, done, paper="p", table="Table 2")
    assert source == "profile demo" and shown.sentences.tolist() == [20, 20, 1_000, 1_000]
    assert shown.value.tolist() == pytest.approx([tables.headlines(plan.score(run)).value.item() for run in done.run])
    known = pd.concat(rows("A", "1", 60.0, table=f"Table 2, {n} sentences") for n in ("1,000", "10,000"))
    monkeypatch.setattr(runs.store, "published", lambda profile, name: known)
    shown, source = tables.few_shot(plan, None, paper="p", table="Table 2")
    assert source == "profile small" and shown.sentences.tolist() == [1_000, 10_000] and set(shown.value) == {60.0}


def test_clusters_stand_beside_vectors_that_know_nothing(plan):
    plan.clustering(["demo"], paths.root() / "data", clusters=[0], layouts=["tsne"])
    with pytest.raises(ConfigError, match="layouts 'pca' is unknown"):
        plan.clustering([], paths.root() / "data", layouts=["pca"])
    task = load_labelled(paths.root() / "data", "demo")
    done = plan.runs("rates")
    table = tables.clusters(plan, done, {}, [task], over="0.2", paper="p", table="Figure 4, 60 sentences").data
    assert set(table.index.get_level_values("method")) == {"0.1", "0.2", "random vectors"}
    assert set(table.index.get_level_values("table")) == {"Figure 4, 60 sentences"}  # other sizes stand apart
    chance = table.xs("random vectors", level="method").iloc[0]
    assert 5 < chance["mean"] < 20 and abs(chance["ARI, mean"]) < 1  # 600 titles, 20 topics
    assert table.xs("0.1", level="method").gain.iloc[0] == pytest.approx(
        table.xs("0.1", level="method")["mean"].iloc[0] - table.xs("0.2", level="method")["mean"].iloc[0]
    )


def test_gains_of_published_tables_are_chosen_by_name(monkeypatch):
    known = pd.concat([rows(name, "1", value) for name, value in (("A", 60.0), ("B", 61.0))])
    known = pd.concat([known, known.assign(table="Other", value=0.0)])
    monkeypatch.setattr(runs.store, "published", lambda profile, name: known)
    table = tables.published_gains("p", "T$", over="A").data
    assert table["gain"].to_dict() == {"A": 0.0, "B": 1.0} and table["mean"].to_dict() == {"A": 60.0, "B": 61.0}


def test_rows_stand_behind_those_that_were_published_each_once(measured, monkeypatch):
    known = pd.concat([rows("A", "1", 60.0), rows("A", "3", 64.0), rows("A", "3", 9.0, table="Other T")])
    monkeypatch.setattr(runs.store, "published", lambda profile, name: known)
    here = measured.query("method == 'A' and seed == '1'").assign(run_id="again")
    both = tables.headlines(tables.with_published(here, "p", "T"))
    assert both.query("profile == 'small'")[["seed", "value"]].to_numpy().tolist() == [["1", 60.0], ["3", 64.0]]


def test_dev_scores_stand_beside_those_that_were_published(plan, monkeypatch):
    known = pd.concat([rows(name, "7", 0.0, tasks=["STS-B"], split="dev", table="Table 1") for name in ("0.1", "0.5")])
    known = pd.concat([known.assign(value=[70.0, 71.0]), known.assign(table="Table 9")])
    monkeypatch.setattr(runs.store, "published", lambda profile, name: known if name == "p_dev" else known.iloc[:0])
    done = plan.runs("rates")
    table = tables.dev_scores(plan, {"Table 1": done}, paper="p", note="n")
    assert list(table.index) == [("Table 1", "0.2"), ("Table 1", "0.1"), ("Table 1", "0.5")]
    here = done.groupby("method").dev.mean()
    spread = done.groupby("method").dev.std()
    for column, expected in (("this run, demo", here), ("this run, demo ±", spread)):
        assert table[column].dropna().to_dict() == {
            ("Table 1", name): pytest.approx(expected[name], abs=0.02) for name in ("0.1", "0.2")
        }
    left_out = tables.dev_scores(plan, {"Table 1": done.iloc[:0]}, paper="p", note="n")
    assert list(left_out) == ["small, mini"] and list(left_out.index) == [("Table 1", "0.1"), ("Table 1", "0.5")]
    assert table["small, mini"].dropna().tolist() == [70.0, 71.0]
    one = tables.beside(table, "Table 1", caption="c", paper=pd.Series({"0.3": 80.0}, name="paper")).data
    assert list(one.index) == ["0.1", "0.2", "0.3", "0.5"] and one.loc["0.3", "paper"] == 80.0
    assert list(one) == ["paper", "small, mini", "this run, demo"] and one.loc["0.1", "small, mini"] == 70.0
    assert one.loc["0.1", "this run, demo"] == "{:.2f} ± {:.2f}".format(*table.iloc[1, 1:])
    words = tables.beside(
        table, "Table 1", caption="c", paper=pd.Series({"dot product": 1.0, "0.3": 80.0}, name="paper")
    )
    assert list(words.data.index) == ["0.1", "0.2", "0.3", "0.5", "dot product"]
    names = ["B, rate 0.0001", "A, rate 0.001", "A, rate 5e-05", "B, alone", "B, rate 0.1, 1,000 sentences"]
    tried = pd.DataFrame({"dev": [1.0, 2.0, 3.0, 4.0, 5.0]}, index=names)
    rates = tables.beside(pd.concat({"choice": tried}), "choice", caption="c").data
    assert list(rates.index)[:3] == [("A", "5e-05"), ("A", "0.001"), ("B", "0.0001")]
    assert list(rates.index)[3:] == [("B, alone", ""), ("B, rate 0.1, 1,000 sentences", "")] and list(rates.dev) == [
        3,
        2,
        1,
        4,
        5,
    ]


def test_the_scores_of_all_methods_are_their_own_rows_beside_their_simcse():
    found = tables.collected_scores()
    assert set(found.backbone) == set(tables.ENCODERS)
    assert not found.duplicated(["group", "method", "backbone", "seed"]).any() and found.value.notna().all()
    assert (found.groupby(["group", "backbone"]).method.first() == "SimCSE").all()
    rows = tables.headlines(runs.published("small", "msse")).query("table == 'Table 1, 1,000 sentences'")
    own = rows.query("method == 'MSSE' and backbone == 'mini-bert'").set_index("seed").value
    here = found.query("group == 'MSSE, 1,000 sentences' and method == 'MSSE' and backbone == 'mini-bert'")
    assert here.set_index("seed").value.to_dict() == own.to_dict()
    rows = tables.headlines(runs.published("small", "msse")).query("method == 'SimCSE, wider choice'")
    here = found.query("group == 'MSSE, 10,000 sentences, wider choice' and method == 'SimCSE'")
    assert sorted(here.value) == sorted(rows.value) and len(here)


def test_tables_of_encoders_that_are_not_read_at_cls_say_so():
    assert [tables.reading(name) for name in ("cls", "mean")] == ["", ", read by the mean"]


def test_the_floor_of_an_encoder_is_its_best_untrained_reading():
    found = tables.floors().set_index("backbone")
    rows = tables.headlines(runs.published("small", "simcse")).query("method.str.startswith('untuned')")
    best = rows.groupby("backbone").value.max()
    assert found.index.is_unique and found.value["minilm-stripped"] == best["minilm-stripped"]
    assert tables.dev_floors() == "floors on STS-B dev: mini-bert 73.90 (word vectors, untrained)"
    assert tables.dev_floors(["minilm-stripped"]) == "floors on STS-B dev: not measured"
    assert found.value["mini-bert"] == best["averaging start"] > best["mini-bert"]
    assert found.name["mini-bert"] == "word vectors, untrained"
