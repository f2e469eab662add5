"""The notebook of twin encoders: what it plans, the encoders of a sum, published layers old and new, ablations."""

import numpy as np
import pandas as pd
import pytest

from lib import runs
from lib.analysis.energy import COLUMNS
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.encoders import SentenceEncoder
from lib.runs import Plan, tables, twins

STAGE_2 = {"NCE": {"icnce_weight": 0.0, "ictm_weight": 0.0}, "JTCSE": {}}


@pytest.fixture
def configs(tiny_bert, corpus_file):
    values = {"corpus": str(corpus_file), "corpus_size": 32, "backbone": str(tiny_bert), "eval_every": 9}
    single = RunConfig(**values, batch_size=16, max_length=16, method="simcse", learning_rate=1e-3)
    joint = single.replace(method="jtcse", cross_attention_layers=2)
    return single, joint, single.replace(method="distill", teacher=str(tiny_bert))


VIEWS = [{"augmentation": "word_repetition(0.2)"}, {"augmentation": "word_deletion(0.1)", "learning_rate": 2e-3}]


@pytest.fixture
def done(configs):
    """A plan with both stages of two seeds."""
    single, joint, _ = configs
    plan = Plan("demo")
    for seed in (1, 2):
        start = twins.first_stage(plan, "stage 1", single, VIEWS, seed)
        plan.variants("stage 2", joint, {"JTCSE": {}}, [seed], starts=start)
    plan.sts(["demo"], joint.data_folder(), encoders=9)
    return plan, pd.concat([plan.runs("stage 1"), plan.runs("stage 2")], ignore_index=True)


def test_encoder_one_and_two_read_their_own_views_at_their_own_rates(configs):
    plan = Plan("demo")
    start = twins.first_stage(plan, "g", configs[0], VIEWS, 3)
    assert {name: run.labels["method"] for name, run in start.items()} == {
        "backbone": "SimCSE I",
        "second_backbone": "SimCSE II",
    }
    planned = [run.config for run in start.values()]
    assert [(c.augmentation, c.learning_rate, c.seed, c.corpus_seed) for c in planned] == [
        ("word_repetition(0.2)", 1e-3, 3, 3),
        ("word_deletion(0.1)", 2e-3, 3, 3),
    ]


def test_a_combination_of_terms_leaves_the_others_out():
    found = twins.only_terms(["ICNCE", "NCE+ICTM"])
    assert found == {"ICNCE": {"nce_weight": 0.0, "ictm_weight": 0.0}, "NCE+ICTM": {"icnce_weight": 0.0}}
    with pytest.raises(ConfigError, match="a term of loss_terms 'MSE' is unknown"):
        twins.only_terms(["NCE+MSE"])


def test_sentences_are_added_in_both_stages_for_as_many_steps_and_for_one_pass(configs):
    single, joint, _ = configs
    plan = Plan("demo")
    twins.added_sentences(plan, "empty", single, joint, VIEWS, {"JTCSE": {}}, "", 1)
    assert not len(plan.runs("empty"))
    twins.added_sentences(plan, "added", single, joint, VIEWS, {"JTCSE": {}}, "demo", 1)
    planned = {run.labels["method"]: run for run in plan}
    assert list(planned) == [
        f"{name}{arm}" for arm in ("", " with demo, as many steps", " with demo, one pass")
        for name in ("SimCSE I", "SimCSE II", "JTCSE")
    ]  # fmt: skip
    mixed = f"{single.corpus}+demo"
    assert [(run.config.corpus, run.config.max_steps) for run in planned.values()] == [
        *[(single.corpus, 0)] * 3, *[(mixed, 2)] * 3, *[(mixed, 0)] * 3,
    ]  # fmt: skip
    joined = planned["JTCSE with demo, as many steps"]
    assert joined.starts["second_backbone"] is planned["SimCSE II with demo, as many steps"]


def test_rates_are_tried_with_the_own_one_among_them_and_the_student_learns_from_it(configs):
    single, joint, student = configs
    plan, how = Plan("demo"), (single, joint, student, VIEWS, STAGE_2)
    twins.choice(plan, "none", *how, [], [1e-2], 7)
    assert not len(plan.runs("none"))
    twins.choice(plan, "choice", *how, [1e-4], [1e-2], 7)
    planned = {run.labels["method"]: run for run in plan}
    assert list(planned) == [
        "encoder I", "encoder II", "NCE, rate 0.0001", "NCE, rate 0.001", "JTCSE, rate 0.0001", "JTCSE, rate 0.001",
        "D, rate 0.001", "D, rate 0.01",
    ]  # fmt: skip
    assert planned["D, rate 0.01"].starts["teacher"] is planned["JTCSE, rate 0.001"]
    assert {run.config.seed for run in plan} == {7}


def test_the_encoders_of_a_sum_stand_before_it_and_further_sums_last(done, sentences):
    _, trained = done
    found = twins.encoders(trained[trained.seed == 1], {"both": ["SimCSE I", "SimCSE II"]}).set_index("method")
    assert list(found.index) == ["SimCSE I", "SimCSE II", "JTCSE I", "JTCSE II", "JTCSE", "both"]
    vectors = {name: encoder.encode(sentences[:4]) for name, encoder in found.run.items()}
    for one in ("JTCSE", "SimCSE"):
        total = vectors["JTCSE" if one == "JTCSE" else "both"]
        np.testing.assert_allclose(total, vectors[f"{one} I"] + vectors[f"{one} II"], atol=1e-5)
    assert found.run_id["JTCSE I"] == found.run_id["JTCSE"] and found.run_id["both"] == found.run_id["SimCSE I"]


def test_scores_energies_and_shares_of_every_encoder_are_published_with_layers_from_1(
    done, tiny_bert, sentences, monkeypatch
):
    (plan, trained), published = done, {}
    monkeypatch.setattr(plan, "publish", lambda frame, name, note: published.setdefault(name, frame))
    untuned = SentenceEncoder.from_pretrained(tiny_bert)
    sums = {"both": ["SimCSE I", "SimCSE II"]}
    rows, energies, shares, _ = twins.measure(plan, trained, untuned, sentences[:5], sums=sums, note="n")
    assert rows.groupby("seed", sort=False).method.nunique().to_dict() == {"": 1, "1": 6, "2": 6}
    assert list(published["jtcse_cls_energy"]) == COLUMNS and set(published["jtcse_cls_energy"].layer) == {1, 2}
    single = published["jtcse_cls_energy"].groupby(["reading", "seed"], sort=False).encoder.unique()
    assert set(single["layer output", "2"]) == {"SimCSE I", "SimCSE II", "JTCSE I", "JTCSE II"}
    assert list(single["context tensor", ""]) == ["untuned"]
    totals = published["jtcse_token_shares"].groupby(["encoder", "seed", "layer"])[["value", "tokens"]].sum()
    assert np.allclose(totals, 100, atol=0.1)
    assert set(energies.backbone) != {untuned.backbone.config._name_or_path} and len(shares)  # what was published


def test_figure_8_has_dev_scores_and_the_spread_of_both_encoders_lengths(done, sentences, monkeypatch):
    (plan, trained), published = done, []
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    monkeypatch.setattr(runs.store, "published", lambda profile, name, columns: pd.DataFrame(columns=columns))
    joint = trained[trained.method == "JTCSE"].assign(method="JTCSE, 2 removed")
    found, source = twins.without_layer_norms(plan, joint, sentences[:6])
    assert source == "profile demo"
    assert found[["method", "seed", "step"]].to_numpy().tolist() == [["JTCSE", 1, 2], ["JTCSE", 2, 2]]
    for one, run in zip(found.itertuples(), joint.run, strict=True):
        lengths = [np.linalg.norm(encoder.encode(sentences[:6]), axis=1) for encoder in run.encoder().encoders]
        assert one.spread == pytest.approx(50 * sum(x.std() / x.mean() for x in lengths))
        assert one.spearman == run.metrics["dev"]
    ((rows, name, _),) = published
    assert name == "jtcse_dev" and set(rows.table) == {"Figure 8"} and len(rows) == 4
    earlier = rows[rows.seed == 2].assign(backbone="another")
    monkeypatch.setattr(runs.store, "published", lambda profile, name, columns: earlier)
    found, source = twins.without_layer_norms(plan, joint[:0], sentences)
    assert found.backbone.tolist() == ["another"] and source == "profile small, Figure 8"


def test_pairwise_gains_by_hand():
    rows = [("mini", method, seed, value) for method, values in {"A": [1.0, 2.0], "B": [2.0, 5.0], "C": [4.0, 6.0]}.items() for seed, value in enumerate(values)]  # fmt: skip
    rows = pd.DataFrame(rows, columns=["backbone", "method", "seed", "value"]).assign(profile="small")
    table = twins.pairwise_gains(rows[(rows.method != "C") | (rows.seed == 0)], ["A", "B", "C"]).data
    assert table.loc[("mini", "B"), "over A"] == "+2.00 [-10.71, 14.71]"  # 2 ± 12.71 * 1
    assert table.loc[("mini", "C")].to_dict() == {"over A": "+3.00", "over B": "+2.00"}  # one seed has no interval


def test_an_ablation_stands_beside_the_paper_and_what_was_published(done, monkeypatch):
    (plan, trained), published = done, []
    monkeypatch.setattr(plan, "publish", lambda *arguments: published.append(arguments))
    main = tables.score(plan, trained, paper="jtcse", table="", note="n")
    columns = runs.ROW_COLUMNS
    old = pd.DataFrame([["jtcse", "Table X", method, "other", "small", "Avg.", "test", "SentEval", "all", "spearman", value, "42", ""] for method, value in (("none", 70.0), ("NCE", 71.0))], columns=columns)  # fmt: skip
    monkeypatch.setattr(runs.store, "published", lambda profile, name: old)
    printed = pd.Series({"none": 78.0, "NCE": 79.0})
    about = {"table": "Table X", "note": "n", "printed": printed}
    shown = twins.ablation(plan, trained[:0], **about)
    assert list(shown.data) == ["paper, BERT-base", "small, other"] and shown.data.loc["none"].tolist() == [78.0, 70.0]
    assert shown.caption.endswith("small, other: seed 42") and not published[-1][0].size
    done = trained[trained.method == "JTCSE"].assign(method="NCE")
    shown = twins.ablation(plan, done, **about, main=main, same={"SimCSE I": "none"})
    here = published[-1][0]
    assert set(here.table) == {"Table X"} and set(here.method) == {"NCE", "none"} and set(here.seed) == {"1", "2"}
    column = next(name for name in shown.data if name.startswith("demo"))
    scores = main[(main.method == "SimCSE I") & (main.aggregation == "all")]
    assert (
        len(scores) == 2 and shown.data.loc["none", column] == f"{scores.value.mean():.2f} ± {scores.value.std():.2f}"
    )
