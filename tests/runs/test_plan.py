"""The plan of a notebook: what it refuses, what it finds, what it trains, scores and publishes, and how long it expects."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

from lib import paths, runs, training
from lib.checks import ConfigError, DataError
from lib.config import RunConfig
from lib.data import augment
from lib.encoders import SentenceEncoder, ensemble
from lib.runs import Best, Made, Plan, running, scoring, times
from lib.runs import plan as module


@pytest.fixture
def config(tiny_bert, corpus_file):
    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "max_steps": 2, "eval_every": 2}
    return RunConfig(**values, batch_size=32, max_length=16)


@pytest.fixture(autouse=True)
def no_bar(monkeypatch):
    monkeypatch.setenv("CSE_PROGRESS", "off")  # which also asks how long everything takes


@pytest.fixture
def plan():
    return Plan("demo")


@pytest.fixture
def trainings(monkeypatch):
    """The configurations that are trained or looked for by `runs.run`."""
    seen, real = [], running.run

    def run(config, **options):
        seen.append(config)
        return real(config, **options)

    monkeypatch.setattr(module, "run", run)
    return seen


# --- Refusals: one sentence each, when the plan is made ---


def test_the_same_run_twice(plan, config):
    plan.run("main", config, method="SimCSE")
    with pytest.raises(ConfigError, match="names the same run twice: main, method SimCSE; and again: main, method"):
        plan.run("main", config.replace(seed=7), method="SimCSE")
    with pytest.raises(ConfigError, match="names the same run twice"):
        plan.run("main", config, method="by another name")
    with pytest.raises(ConfigError, match=r"twice: dropout, dropout 0.1; and again"):
        plan.grid("dropout", config, {"dropout": [0.1, 0.1]})
    with pytest.raises(ConfigError, match="twice: main, method other, seed 1; and again"):
        plan.variants("main", config, {"other": {}}, [1, 1])
    with pytest.raises(ConfigError, match="twice: seeds, method other, seed 1; and again"):
        plan.variants("seeds", config, {"other": {}}, [1, 1], distinct=True)
    plan.run("another group", config)  # groups may share a run


def test_distinct_variants_leave_out_what_the_parameters_say_already(plan, config):
    changes = {
        "as it is": {},
        "hotter": {"temperature": 0.2},
        "again": {"temperature": config.method_arguments["temperature"]},
    }
    planned = plan.variants("switches", config, changes, [1, 2], distinct=True)
    assert [p.labels["method"] for p in planned] == ["as it is", "as it is", "hotter", "hotter"]
    with pytest.raises(ConfigError, match="names the same run twice"):
        plan.variants("others", config, changes, [1])


def test_values_and_rates_are_declared_in_a_line(plan, config):
    planned = plan.values("temperature", config, "temperature", [0.2, 0.1, 0.2], [1, 2], spelt="τ = {:g}")
    assert [(p.labels["method"], p.labels["seed"]) for p in planned] == [
        ("τ = 0.1", 1), ("τ = 0.1", 2), ("τ = 0.2", 1), ("τ = 0.2", 2)
    ]  # fmt: skip
    assert [(p.config.method_arguments["temperature"], p.config.corpus_seed) for p in planned[::3]] == [
        (0.1, 1),
        (0.2, 2),
    ]
    also = {"none": {"projection": "none"}}
    texts = plan.values("pooling", config, "pooling", ["mean", "cls", "mean"], [1], also=also)
    assert [p.labels["method"] for p in texts] == ["mean", "cls", "none"]  # in the order given
    methods = {"hot": {"temperature": 0.2}, "plain": {}}
    planned = plan.rates("choice", config, methods, {"hot": [1e-3], "plain": [2e-4, 1e-4]}, [1])
    assert [p.labels["method"] for p in planned] == ["hot, rate 0.001", "plain, rate 0.0001", "plain, rate 0.0002"]
    assert [p.config.learning_rate for p in planned] == [1e-3, 1e-4, 2e-4]
    assert planned[0].config.method_arguments["temperature"] == 0.2
    assert len(plan.rates("same for all", config, methods, [1e-3, 1e-4], [1])) == 4
    tried = {"plain": [{"temperature": 0.05}, {"temperature": 0.2}]}  # 0.05 is what the parameters say already
    wider = plan.rates("wider", config, methods, {"hot": [1e-3], "plain": [1e-4]}, [1], tried=tried, size=1_000)
    assert [p.labels["method"] for p in wider] == [
        "hot, 1,000 sentences, rate 0.001", "plain, 1,000 sentences, rate 0.0001",
        "plain, 0.2, 1,000 sentences, rate 0.0001",
    ]  # fmt: skip
    assert [p.config.method_arguments["temperature"] for p in wider] == [0.2, 0.05, 0.2]
    assert {p.config.corpus_size for p in wider} == {1_000}
    with pytest.raises(ConfigError, match="no such, method 1, seed 1: unknown"):
        plan.values("no such", config, "temprature", [1], [1])


def test_few_sentences_have_as_many_steps_as_many(plan, config):
    whole = config.replace(corpus_size=60, batch_size=16, epochs=2, max_steps=0)  # 2 x 4 steps
    planned = plan.few_shot("few", whole, {"plain": {}}, [20, 60], [1, 2])
    assert [(p.labels["sentences"], p.labels["seed"]) for p in planned] == [(20, 1), (20, 2), (60, 1), (60, 2)]
    few, many = planned[0].config, planned[2].config
    assert (few.corpus_size, few.max_steps, few.epochs) == (20, 8, 4)  # two steps an epoch
    assert many == whole.replace(seed=1, corpus_seed=1)


def test_empty_lists_and_wrong_values_name_their_group(plan, config):
    with pytest.raises(ConfigError, match="dropout: the list of values for dropout is empty; give at least one"):
        plan.grid("dropout", config, {"seed": [1], "dropout": []})
    assert plan.variants("left out", config, {"SimCSE": {}}, []) == [] and plan.runs("left out").empty
    with pytest.raises(ConfigError, match="dropout, dropout 2.0: dropout must be at least 0, at most 0.99; got 2"):
        plan.grid("dropout", config, {"dropout": [0.1, 2.0]})
    with pytest.raises(ConfigError, match="main, method a, seed 1: temperature must be"):
        plan.variants("main", config, {"a": {"temperature": -1.0}}, [1])
    with pytest.raises(ConfigError, match="sweep, temprature 1: .*did you mean 'temperature'"):
        plan.grid("sweep", config, {"temprature": [1]})


@pytest.mark.parametrize(
    "change, words",
    [
        ({"corpus_size": 1000}, "few, corpus_size 1000: .*has 200 rows, corpus_size asks for 1,000"),
        ({"method": "jtcse", "cross_attention_layers": 5}, "does not divide the 2 layers"),
        ({"method": "micse", "min_layer": 1, "max_layer": 3}, "beyond the 2 layers"),
        ({"max_length": 100}, "more than backbone"),
    ],
)
def test_preflight_names_the_run_and_what_is_wrong(plan, config, change, words):
    plan.run("good", config)
    plan.run("few", config.replace(**change), **change)
    with pytest.raises(ConfigError, match=words):
        plan.preflight()


def test_preflight_asks_once_for_what_differs_in_seeds_and_weights_only(plan, config, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "preflight", lambda config, shared: asked.append(config))
    plan.grid("sweep", config, {"temperature": [0.05, 0.1], "seed": [1, 2], "corpus_size": [64, 128]})
    plan.preflight()
    assert [one.corpus_size for one in asked] == [64, 128]


def test_declared_evaluations_of_a_run_and_of_an_untuned_encoder(plan, config, tmp_path):
    folder = tmp_path / "retrieval" / "toy"
    (folder / "qrels").mkdir(parents=True)
    texts = [{"_id": "1", "text": "a dog"}, {"_id": "2", "text": "two cats sleep"}]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, texts)))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "two cats"}))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t2\t1\n")
    plan.run("main", config)
    plan.retrieval(["toy"], tmp_path, pairs="demo")
    for encoder in (plan.runs("main").run[0], SentenceEncoder.from_pretrained(config.backbone)):
        rows = plan.evaluate("retrieval", encoder, method="SimCSE", paper="infocse", table="retrieval")
        assert {*rows.task} == {"toy"} and {*rows.table} == {"retrieval"} and {*rows.method} == {"SimCSE"}
        assert {"ndcg@10", "map", "mrr"} < {*rows.metric} and (rows.value > 0).all()
        partners = plan.evaluate("in-domain retrieval", encoder, method="SimCSE")
        assert partners.protocol.nunique() == 2 and partners.metric.nunique() == 3
    assert plan.evaluate("BEIR", encoder).empty  # nothing was declared


def test_tasks_that_cannot_be_scored(plan, config):
    for names in ([], ["demo", "demo"], ["STS12", "STS13"]):
        with pytest.raises(ConfigError, match="give one task, or STS12, .* each once"):
            plan.sts(names, config.data_folder(), encoders=1)
    with pytest.raises(DataError, match="nonsense"):
        plan.sts(["nonsense"], config.data_folder(), encoders=1)
    with pytest.raises(ConfigError, match="transfer_tasks 'nonsense' is unknown: choose one of MR"):
        plan.transfer(["nonsense"], config.data_folder())
    with pytest.raises(ConfigError, match="transfer_tasks .* names one twice"):
        plan.transfer(["MR", "MR"], config.data_folder())
    with pytest.raises(ConfigError, match="retrieval_tasks .* names one twice"):
        plan.retrieval(["nfcorpus", "nfcorpus"], config.data_folder())
    with pytest.raises(ConfigError, match="declare them with plan.sts"):
        plan.score(SentenceEncoder.from_pretrained(config.backbone))


def test_a_group_that_was_not_declared(plan, config):
    plan.run("main", config)
    with pytest.raises(ConfigError, match="has no runs called 'mian': declare them in the plan cell .it has main"):
        plan.runs("mian")


def test_demo_numbers_are_not_published():
    with pytest.raises(ConfigError, match="demo profile are not results"):
        Plan("demo", publish=True)


# --- Runs ---


def test_rows_of_a_group(plan, config):
    plan.grid("sweep", config, {"temperature": [0.05, 0.5], "seed": [1, 2]})
    frame = plan.runs("sweep")
    assert frame[["temperature", "seed"]].to_numpy().tolist() == [[0.05, 1], [0.05, 2], [0.5, 1], [0.5, 2]]
    assert frame.run_id.nunique() == 4 and frame.dev.notna().all() and (frame.steps == 2).all()


def test_the_seed_of_a_variant_draws_its_sentences(plan, config):
    plan.variants("main", config.replace(corpus_size=100), {"a": {"dropout": 0.2}}, [5], size=100)
    run = plan.runs("main").run[0]
    assert (run.config.seed, run.config.corpus_seed, run.config.dropout) == (5, 5, 0.2)
    assert {"method", "size", "seed"} <= set(plan.runs("main"))


def test_a_run_of_two_groups_is_trained_once(plan, config, monkeypatch):
    counted, real = [], running.train
    monkeypatch.setattr(running, "train", lambda *a, **k: counted.append(1) or real(*a, **k))
    plan.run("main", config)
    plan.grid("sweep", config, {"seed": [config.seed, 7]})
    assert plan.table().loc["sweep", ["runs", "new here"]].tolist() == [2, 1]
    assert plan.state()["to train"].tolist() == [1, 1]
    assert plan.runs("sweep").run_id[0] == plan.runs("main").run_id[0]
    assert len(counted) == 2


def stages(plan, config):
    """Two first stages, a student of one of them and a second stage from both."""
    first = [plan.run("first", config.replace(seed=seed), seed=seed) for seed in (1, 2)]
    twins = config.replace(method="jtcse", cross_attention_layers=2)
    plan.run("second", twins, starts={"backbone": first[0], "second_backbone": first[1]}, method="JTCSE")
    plan.run("student", config.replace(method="distill", teacher="later"), starts={"teacher": first[1]})


def test_the_checks_change_no_name(plan, config):
    """A method may change the encoder that it is built with: the plan still finds what was trained."""
    for projection in ("always", "train_only"):
        runs.run(config.replace(projection=projection))
    plan.grid("projection", config, {"projection": ["always", "train_only"]})
    plan.preflight()
    assert plan.state().found.tolist() == [2]


def test_a_run_of_several_groups_counts_once(plan, config):
    stages(plan, config)
    one, two, joint, _ = plan
    plan.run("again", joint.config, starts={"backbone": one, "second_backbone": two}, method="JTCSE")
    assert plan.table()["new here"].tolist() == [2, 1, 1, 0] and plan.state()["to train"].tolist() == [2, 1, 1, 0]


def test_runs_that_start_from_runs(plan, config, trainings):
    stages(plan, config)
    plan.preflight()
    assert plan.state()["to train"].tolist() == [2, 1, 1] and trainings == []
    second = plan.runs("second").run[0].config
    first = plan.runs("first").run
    assert second.backbone == str(first[0].folder / "encoder")
    assert second.method_arguments["second_backbone"] == str(first[1].folder / "encoder")
    assert plan.runs("student").run[0].config.method_arguments["teacher"] == str(first[1].folder / "encoder")
    assert len(trainings) == 4

    again = Plan("demo")
    stages(again, config)
    state = again.state()
    assert state.found.tolist() == [2, 1, 1] and state.seconds.sum() == 0


def test_a_run_whose_start_is_missing_is_to_train(plan, config):
    stages(plan, config)
    plan.runs("first")
    again = Plan("demo")
    stages(again, config)
    assert again.state()["to train"].tolist() == [0, 1, 1]


def test_a_backbone_that_the_notebook_makes(plan, config, tiny_bert, tmp_path):
    made = tmp_path / "made"

    def make():
        SentenceEncoder.from_pretrained(tiny_bert, pooling="mean").save(made)
        return made

    start = Made("a start", make, made.is_dir, str(tiny_bert))
    plan.run("main", config, starts={"backbone": start})
    plan.preflight()
    assert plan.state()["to train"].tolist() == [1] and not made.exists()
    assert plan.runs("main").run[0].config.backbone == str(made)


def test_a_run_takes_what_the_best_trial_has(plan, config, trainings, monkeypatch):
    def declared(plan):
        changes = {f"rate {rate:g}": {"learning_rate": rate, "batch_size": size} for rate, size in trials}
        choice = plan.variants("choice", config, changes, [7])
        best = {name: Best(name, choice) for name in ("learning_rate", "batch_size")}
        plan.variants("tuned", config, {"tuned": {}}, [1, 2], starts=best)
        return plan

    trials = [(1e-4, 32), (2e-4, 16), (3e-4, 20)]
    scores = {1e-4: 50.0, 2e-4: 60.0, 3e-4: 60.0}
    monkeypatch.setattr(
        runs.Run, "metrics", property(lambda run: {"dev": scores[run.config.learning_rate], "steps": 2, "best_step": 2})
    )
    plan = declared(plan)
    plan.preflight()
    assert plan.state()["to train"].tolist() == [3, 2] and not trainings
    tuned = plan.runs("tuned").run
    assert [(run.config.learning_rate, run.config.batch_size, run.config.seed) for run in tuned] == [
        (2e-4, 16, 1), (2e-4, 16, 2),
    ]  # fmt: skip
    assert len(trainings) == 5
    assert declared(Plan("demo")).state().found.tolist() == [3, 2]


def test_a_group_without_runs_is_declared(plan, config):
    plan.run("main", config)
    also = {"cold": {"temperature": 0.01}}
    assert plan.values("temperature", config, "temperature", [], [1], also=also) == []
    assert plan.rates("choice", config, {}, [], [1]) == []
    plan.variants("tuned", config, {}, [])
    assert plan.table().runs.to_dict() == {"main": 1, "temperature": 0, "choice": 0, "tuned": 0}
    assert plan.state().found.tolist() == [0] * 4
    assert plan.runs("temperature").empty and {"method", "seed", "dev", "run"} <= set(plan.runs("temperature"))


def test_nothing_is_translated_before_training(plan, config, monkeypatch):
    monkeypatch.setattr(augment, "augment_corpus", lambda *a, **k: pytest.fail("a long translation"))
    monkeypatch.setattr(augment, "check", lambda spec: None)
    plan.run("main", config.replace(augmentation="round_trip(there,back)"))
    monkeypatch.setattr(times, "_time_steps", lambda config: 1.0)
    plan.preflight()
    assert plan.state()["to train"].tolist() == [1]


# --- Scores ---


def test_an_encoder_is_scored_once(plan, config, monkeypatch, tiny_bert):
    counted, real = [], scoring.evaluate_sts
    monkeypatch.setattr(scoring, "evaluate_sts", lambda *a: counted.append(1) or real(*a))
    run = plan.run("main", config)
    plan.sts(["demo"], config.data_folder(), encoders=3)
    untuned = SentenceEncoder.from_pretrained(tiny_bert)
    for _ in range(2):
        rows = plan.score(untuned, method="untuned, cls", paper="simcse")
    assert len(counted) == 1 and list(rows) == runs.ROW_COLUMNS
    assert rows.backbone.unique() == [tiny_bert.name] and set(rows.method) == {"untuned, cls"}
    assert plan.score(SentenceEncoder.from_pretrained(tiny_bert)).value.tolist() == rows.value.tolist()
    assert len(counted) == 1

    plan.score(SentenceEncoder.from_pretrained(tiny_bert, pooling="mean"))
    plan.score(ensemble.EncoderSum([untuned, untuned]))
    plan.score(ensemble.EncoderSum([untuned, untuned], [0.3, 0.7]))
    assert len(counted) == 4

    without_runs = Plan("demo")
    without_runs.sts(["demo"], config.data_folder(), encoders=1)
    known = without_runs.score(untuned, backbone="a public one")
    assert without_runs.table().empty and without_runs.state().empty
    assert known.value.tolist() == rows.value.tolist() and len(counted) == 4
    assert [*known.backbone.unique(), *known.profile.unique()] == ["a public one", "demo"]

    finished = plan.runs("main").run[0]
    assert plan.score(finished, method="SimCSE").seed.unique() == [config.seed]
    assert plan.score(finished, method="SimCSE").value.notna().all() and len(counted) == 5
    (task,) = plan.sts(["demo"], config.data_folder(), encoders=1)
    (name, subset), *_ = task.subsets.items()
    corrected = dataclasses.replace(task, subsets={name: dataclasses.replace(subset, gold=subset.gold[::-1].copy())})
    assert corrected.fingerprint() != task.fingerprint()
    monkeypatch.setattr(module, "load_sts", lambda *_: corrected)
    plan.sts(["demo"], config.data_folder(), encoders=1)
    plan.score(finished, method="SimCSE")  # other pairs under the same name
    assert len(counted) == 6
    assert run.config == finished.config


# --- Publishing ---


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path / "results" / "small"


ROWS = pd.DataFrame(
    {"backbone": ["a", "b"], "layer": [0, 1], "value": [1.234, 2.0], "seed": [1, 2], "run_id": ["", ""]}
)


def test_rows_that_are_not_measured_again_stay(results):
    plan = Plan("small", publish=True)
    plan.publish(ROWS, "layers", "first.")
    plan.publish(ROWS.iloc[1:].assign(value=3.0), "layers", "second.")
    kept = runs.published("small", "layers", columns=ROWS.columns)
    assert kept.value.tolist() == [1.23, 3.0]
    assert json.loads((results / "layers.provenance.json").read_text())["notes"] == ["first.", "second."]


def test_a_measured_column_tells_no_rows_apart(results):
    plan = Plan("small", publish=True)
    rows = ROWS.astype({"value": "float32"}).assign(tokens=[6.5, 6.25])
    plan.publish(rows, "shares", "first.")
    plan.publish(rows.assign(tokens=[7.5, 7.25]), "shares", "again, on other texts.")
    kept = runs.published("small", "shares", columns=rows.columns)
    assert kept.tokens.tolist() == [7.5, 7.25] and kept.value.tolist() == [1.23, 2.0]
    with pytest.raises(DataError, match="two rows with other values are both called b, 1, 2; nothing was published"):
        plan.publish(pd.concat([rows, rows.iloc[1:].assign(tokens=9.5)]), "shares", "twice.")
    plan.publish(pd.concat([rows, rows]), "shares", "the same rows twice.")
    assert len(runs.published("small", "shares", columns=rows.columns)) == 2


def test_nothing_is_published_unless_asked(results):
    Plan("small").publish(ROWS, "layers", "note")
    assert not results.exists()
    assert list(runs.published("small", "layers", columns=ROWS.columns)) == list(ROWS)


def test_a_published_file_with_other_columns(results):
    Plan("small", publish=True).publish(ROWS, "layers", "note")
    with pytest.raises(
        DataError, match="has the columns backbone, layer, value, seed, run_id, and paper, .* were expec"
    ):
        runs.published("small", "layers")
    with pytest.raises(DataError, match="has the columns"):
        Plan("small", publish=True).publish(ROWS.assign(head=1), "layers", "note")


# --- Time ---


def test_expected_time_comes_from_what_runs_took(plan, config):
    plan.grid("main", config.replace(max_steps=0, epochs=2, eval_every=4), {"seed": [1, 2]})
    kind = times.kind_of_training(config, SentenceEncoder.from_pretrained(config.backbone))
    dev = times.kind_of_dev(config, SentenceEncoder.from_pretrained(config.backbone))
    times.remember(kind, 30.0, 10)
    times.remember(dev, 20.0, 4)
    steps = 2 * 7  # 200 sentences, batches of 32
    assert plan.state().seconds.tolist() == [pytest.approx(2 * (steps * 3.0 + (steps // 4 + 1) * 5.0))]
    assert plan.seconds("1_toy") == pytest.approx(plan.state().seconds.sum() + module.SECONDS_OF_THE_REST)
    times.remember(plan.rest_of("2_other"), 8.0, spent=False)
    assert plan.seconds("1_toy") == pytest.approx(plan.state().seconds.sum() + 8)
    times.remember(plan.rest_of("1_toy"), 9.0, spent=False)
    assert plan.seconds("1_toy") == pytest.approx(plan.state().seconds.sum() + 9)


def test_training_and_scoring_remember_what_they_took(plan, config, monkeypatch):
    monkeypatch.setattr(training, "_first_metrics", {})
    assert times.read() == {}
    plan.run("main", config)
    plan.sts(["demo"], config.data_folder(), encoders=1)
    plan.score(plan.runs("main").run[0])
    known = times.read()
    kinds = [kind.split(" ")[0] for kind in known if kind != times.SPENT]
    assert kinds == ["step", "dev", "demo:"] and all(seconds > 0 for seconds in known.values())
    parts = [known[kind] for kind in known if kind != times.SPENT]
    assert known[times.SPENT] == pytest.approx(2 * parts[0] + 2 * parts[1] + parts[2], abs=0.01)


def test_what_was_never_done_is_timed_in_a_small_piece(plan, config):
    plan.grid("main", config, {"seed": [1, 2]})
    plan.grid("other", config, {"method": ["ct", "mlm"]})
    before = json.dumps(sorted(paths.runs().glob("demo/*")), default=str)
    assert (plan.state().seconds > 0).all()
    assert {kind.split(",")[0] for kind in times.read()} >= {"step of simcse", "step of ct", "step of mlm"}
    assert times.read()[times.SPENT] == 0.0  # a trial is not work of the notebook
    assert json.dumps(sorted(paths.runs().glob("demo/*")), default=str) == before
    assert plan.state()["to train"].tolist() == [2, 2]


def test_a_damaged_file_of_times_is_as_none(plan):
    times.remember("a kind", 1.0)
    (paths.runs() / "times.json").write_text("{not json")
    assert times.read() == {}
    times.remember("a kind", 2.0)
    assert times.read()["a kind"] == 2.0


class Bar:
    """Stands in for a counter of lib.progress; `shown` holds what every one began and ended with."""

    shown: list

    def __init__(self, total, label, initial, percent):
        self.total, self.n, self.initial, self.start_t = total, initial, initial, 0.0
        self.shown.append((label, round(initial / total, 3)))

    def update(self, n, **values):
        self.n += n

    def close(self):
        self.shown.append(round(self.n / self.total, 3))
        self.pace = (self.n - self.initial, -self.start_t)  # expected seconds, and those that were gone at the start
        Bar.last = self


@pytest.fixture
def bars(monkeypatch, config):
    monkeypatch.delenv("CSE_PROGRESS", raising=False)
    monkeypatch.setattr(module, "progress", Bar)
    monkeypatch.setattr(Bar, "shown", [], raising=False)
    encoder = SentenceEncoder.from_pretrained(config.backbone)
    for kind in (times.kind_of_training(config, encoder), times.kind_of_dev(config, encoder)):
        times.remember(kind, 1.0)
    return Bar.shown


def test_one_bar_for_the_whole_plan(config, bars):
    plan = Plan("demo")
    plan.grid("main", config, {"seed": [1, 2]})
    plan.runs("main")
    assert bars == [("main, seed 1", 0.0), 0.5, ("main, seed 2", 0.5), 1.0]


@pytest.fixture
def slow_encode(monkeypatch):
    """Reading all sentences takes 10 s of a clock that stands still otherwise; the shares that were reported."""
    clock, seen, real = [0.0], [], SentenceEncoder.encode
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])

    def slow(self, sentences, *, on_share=None, **options):
        def report(share):
            clock[0] += 10.0 * share
            seen.append(share)
            on_share(share)

        return real(self, sentences, batch_tokens=512, on_share=on_share and report, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", slow)
    return seen


def scored_plan(config, encoders):
    plan = Plan("demo")
    plan.grid("main", config, {"seed": [1]})  # two steps and two dev evaluations: 4 s expected
    (task,) = plan.sts(["demo"], config.data_folder(), encoders=encoders)
    times.remember(times.kind_of_score([task], SentenceEncoder.from_pretrained(config.backbone)), 3.0)
    return plan


def test_the_bar_moves_while_an_encoder_is_scored(config, bars, slow_encode):
    plan = scored_plan(config, encoders=2)
    plan.runs("main")
    plan.score(SentenceEncoder.from_pretrained(config.backbone))
    assert len(slow_encode) > 2 and sum(slow_encode) == pytest.approx(1)
    assert bars[2:] == [("score demo", 0.4), 0.7]
    twins = [SentenceEncoder.from_pretrained(config.backbone, pooling=pooling) for pooling in ("cls", "mean")]
    plan.score(ensemble.EncoderSum(twins))  # the second one is in no plan
    assert bars[4:] == [("score demo", round(7 / 13, 3)), round(10 / 13, 3)]


def test_the_time_left_follows_the_pace_of_what_was_not_found(config, bars, slow_encode):
    encoders = [SentenceEncoder.from_pretrained(config.backbone, pooling=pooling) for pooling in ("cls", "mean")]
    scored_plan(config, encoders=2).score(encoders[0])
    plan = scored_plan(config, encoders=2)
    plan.score(encoders[0])  # found
    plan.runs("main")
    plan.score(encoders[1])
    expected, gone = Bar.last.pace
    assert bars[-1] == 1.0
    assert gone == module.EXPECTED_WEIGHT  # of a clock that stands still while a run trains
    assert expected == pytest.approx(module.EXPECTED_WEIGHT + 4.0 + 3.0)


def test_what_an_earlier_process_trained_says_nothing_of_the_pace(config, bars, monkeypatch):
    def resumed(config, on_share):
        on_share(0.75, resumed=True)
        on_share(0.25)
        return running.run(config)

    monkeypatch.setattr(module, "run", resumed)
    plan = scored_plan(config, encoders=1)
    plan.runs("main")
    expected, _ = Bar.last.pace
    assert bars[-1] == round(4 / 7, 3) and expected == pytest.approx(module.EXPECTED_WEIGHT + 1.0)


def test_an_interrupted_piece_counts_once(config, bars, monkeypatch):
    real = running.run

    def interrupted(config, on_share):
        on_share(0.5)
        raise KeyboardInterrupt

    plan = scored_plan(config, encoders=1)
    monkeypatch.setattr(module, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan.runs("main")
    monkeypatch.setattr(module, "run", real)
    plan.runs("main")
    assert bars[-1] == round(4 / 7, 3)
