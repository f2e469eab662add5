"""What the notebook of twin encoders (TNCSE, JTCSE) plans, measures and shows: two stages, sums and their parts, layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.analysis.attention import ENERGY_READINGS, cls_energies, token_shares
from lib.analysis.energy import COLUMNS as ENERGY_COLUMNS
from lib.analysis.papers import gain_table
from lib.checks import check_choice
from lib.config import RunConfig
from lib.encoders import SentenceEncoder, ensemble
from lib.runs import store, times
from lib.runs.plan import Plan, PlannedRun
from lib.runs.tables import DECIMALS, headlines, means, measured, with_deviations

PAPER, TERMS = "jtcse", ("NCE", "ICNCE", "ICTM")
FIGURE_8 = {"spearman": "dev score, Spearman x 100", "spread": "[CLS] lengths: deviation, % of their mean"}
SHARE_COLUMNS = ["backbone", "encoder", "seed", "layer", "group", "tokens", "value", "run_id"]


def first_stage(
    plan: Plan,
    group: str,
    single: RunConfig,
    views: Sequence[Mapping[str, Any]],
    seed: int,
    names: Sequence[str] = ("SimCSE I", "SimCSE II"),
) -> dict[str, PlannedRun]:
    """Plan encoder I and II, each by SimCSE's loss on its own view of the text: what a run of stage 2 `starts` from.

    views: what they change in `single`, augmentation and learning rate. names: their labels `method`.
    """
    both = plan.variants(group, single, dict(zip(names, views, strict=True)), [seed])
    return dict(zip(("backbone", "second_backbone"), both, strict=True))


def only_terms(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Table X: combinations of terms (`NCE+ICTM`) -> the weights of the terms that each leaves out, 0.

    Raises:
        ConfigError: a term is unknown.
    """
    changes = {}
    for name in names:
        terms = name.split("+")
        for term in terms:
            check_choice("a term of loss_terms", term, TERMS)
        changes[name] = {f"{term.lower()}_weight": 0.0 for term in TERMS if term not in terms}
    return changes


def choice(
    plan: Plan,
    group: str,
    single: RunConfig,
    joint: RunConfig,
    student: RunConfig,
    views: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Mapping[str, Any]],
    rates: Sequence[float],
    student_rates: Sequence[float],
    seed: int,
) -> None:
    """Plan what the learning rates of stage 2 and of the student are chosen from, their own among them. Without `rates`
    nothing is planned.

    views: see `first_stage`. methods: name -> what it changes in `joint`; the student learns from the last one.
    """
    start = first_stage(plan, group, single, views, seed, ["encoder I", "encoder II"]) if len(rates) else {}
    tried = [joint.learning_rate, *rates] if len(rates) else []
    trials = plan.rates(group, joint, methods, tried, [seed], starts=start)
    own = [one for one in trials if one.config.learning_rate == joint.learning_rate]
    for teacher in own[-1:]:
        tried = [student.learning_rate, *student_rates]
        plan.rates(group, student, {"D": {}}, tried, [seed], starts={"teacher": teacher})


def added_sentences(
    plan: Plan,
    group: str,
    single: RunConfig,
    joint: RunConfig,
    views: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Mapping[str, Any]],
    task: str,
    seed: int,
) -> None:
    """Plan Table VIII: both stages without and with the sentences of a task. With them once for as many steps as without,
    which is the control, and once for one pass over all. An empty task plans nothing.

    views: see `first_stage`. methods: of stage 2, name -> what it changes in `joint`.
    """
    base = single.corpus.partition("+")[0]
    mixed, steps = {"corpus": f"{base}+{task}"}, {"max_steps": times.steps(single.replace(corpus=base))}
    arms = {"": {"corpus": base}, f" with {task}, as many steps": mixed | steps, f" with {task}, one pass": mixed}
    plan.variants(group, single, {}, [])
    for after, change in arms.items() if task else ():
        names = [f"SimCSE I{after}", f"SimCSE II{after}"]
        start = first_stage(plan, group, single.replace(**change), views, seed, names)
        changes = {name + after: arguments for name, arguments in methods.items()}
        plan.variants(group, joint.replace(**change), changes, [seed], starts=start)


def encoders(done: pd.DataFrame, sums: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Every encoder of the runs of one seed, in memory: those of a sum (`JTCSE I`, `JTCSE II`) stand before it.

    Args:
        done: what `Plan.runs` gives, with a column method. sums: name of a further sum -> methods that are added.

    Returns:
        method, seed, run_id and, in column run, the encoder.
    """
    rows = []
    for one in done.itertuples():
        encoder, labels = one.run.encoder(), {"seed": one.seed, "run_id": one.run.id}
        if isinstance(encoder, ensemble.EncoderSum):
            parts = zip(("I", "II"), encoder.encoders, strict=True)
            rows += [{"method": f"{one.method} {number}", **labels, "run": part} for number, part in parts]
        rows.append({"method": one.method, **labels, "run": encoder})
    known = {row["method"]: row for row in rows}
    for name, added in sums.items():
        rows.append(known[added[0]] | {"method": name, "run": ensemble.EncoderSum([known[n]["run"] for n in added])})
    return pd.DataFrame(rows)


def measure(
    plan: Plan,
    done: pd.DataFrame,
    untuned: SentenceEncoder,
    texts: Sequence[str],
    *,
    sums: Mapping[str, Sequence[str]],
    note: str,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, str]:
    """Score every encoder of every seed, and read E_CLS and attention of those that are no sum; publish all three.

    Args:
        done, sums: see `encoders`. texts: whose E_CLS and attention are read. note: for the scores.

    Returns:
        Result rows of this run; E_CLS (ENERGY_COLUMNS) and shares of attention (SHARE_COLUMNS) of profile small, or of
        this run where that has nothing; x 100; and where the latter two come from.
    """
    first = pd.DataFrame([{"method": "untuned, cls", "seed": "", "run_id": "", "run": untuned}])
    scores, energies, shares = [], [], []
    for seed in ["", *done.seed.unique()]:
        for one in (encoders(done[done.seed == seed], sums) if seed != "" else first).itertuples():
            labels = {"seed": str(one.seed), "run_id": one.run_id}
            scores.append(plan.score(one.run, method=one.method, paper=PAPER, **labels))
            if isinstance(one.run, SentenceEncoder):
                labels |= {"encoder": one.method.removesuffix(", cls"), "backbone": scores[-1].backbone.iloc[0]}
                for reading in ENERGY_READINGS:
                    values = cls_energies(one.run, texts, reading=reading).mul(100).rename("value").reset_index()
                    energies.append(values.assign(reading=reading, **labels)[ENERGY_COLUMNS])
                received = token_shares(one.run, texts)
                received = received.assign(value=100 * received.share, tokens=(100 * received.tokens).round(2))
                shares.append(received.assign(**labels)[SHARE_COLUMNS])
    rows = pd.concat(scores, ignore_index=True)
    plan.publish(rows, PAPER, note)
    about = "first sentences of the dev pairs, without dropout; layers from 1; x 100."
    note = f"E_CLS (JTCSE, Eq. 6) of two readings, {about}"
    energy, _ = measured(plan, pd.concat(energies), "jtcse_cls_energy", note)
    note = f"Share of attention that groups of tokens receive, {about}"
    share, source = measured(plan, pd.concat(shares), "jtcse_token_shares", note)
    return rows, energy.astype({"seed": str}), share.astype({"seed": str}), source


def without_layer_norms(plan: Plan, done: pd.DataFrame, texts: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """JTCSE's Figure 8: the dev score after training without the last LayerNorms, and how unlike the lengths of [CLS]
    vectors are; published as jtcse_dev.

    Args:
        done: runs; method is `TNCSE, 2 removed`. texts: whose vectors are measured by each of the two encoders.

    Returns:
        For `figures.seed_bands`: backbone, method, seed, step (layers without LayerNorms), and the quantities of FIGURE_8,
        of profile small, or of this run where that has nothing; and where they come from.
    """
    here = store.dev_rows(done, paper=PAPER).assign(table="Figure 8")
    spreads = []
    for run in done.get("run", []):
        lengths = [np.linalg.norm(one.encode(texts), axis=1) for one in run.encoder().encoders]
        spreads.append(100 * float(np.mean([x.std() / x.mean() for x in lengths])))
    other = {"protocol": "first sentences", "aggregation": "both encoders", "metric": "spread", "value": spreads}
    here = pd.concat([here, here.assign(**other)], ignore_index=True)
    note = "Figure 8: trained without the last LayerNorms; spread: deviation of [CLS] lengths in %."
    known, source = measured(plan, here, f"{PAPER}_dev", note, "Figure 8")
    method, step = known.method.str.extract(r"(.*), (\d+) removed").to_numpy().T
    keys = ["backbone", "method", "seed", "step"]
    long = known.assign(method=method, step=step.astype(int), value=known.value.astype(float))
    long = long.sort_values("backbone", kind="stable")
    return long.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index(), source


def pairwise_gains(rows: pd.DataFrame, order: Sequence[str]) -> Styler:
    """The gain of every method over each that stands before it in `order`, with its 95 % interval, by encoder.

    rows: headlines of one profile; gains pair equal seeds (`papers.gain_table`).
    """
    rows, columns = rows[rows.method.isin(order)], {}
    for at, over in enumerate(order[:-1], start=1):
        gained = gain_table(rows, over=over, value="value", by=["backbone", "method"]).dropna(subset="gain")
        gained = gained[gained.index.isin(order[at:], level="method")]
        low, high = (gained[f"95 % {end}"].map("{:.2f}".format) for end in ("low", "high"))
        interval = (" [" + low + ", " + high + "]").where(gained["95 % low"].notna(), "")
        columns[f"over {over}"] = gained.gain.map("{:+.2f}".format) + interval
    table = pd.DataFrame(columns).reindex(list(order[1:]), level="method")
    seeds = [f"{backbone} {count} seeds" for backbone, count in rows.groupby("backbone").seed.nunique().items()]
    about = f"profile {', '.join(rows.profile.unique())}, average of seven STS tasks, test, {', '.join(seeds)}"
    caption = f"{about}: points over each with the same seed"
    return table.style.format(na_rep="").set_caption(f"{caption}: mean and 95 % interval (Student's t)")


def ablation(
    plan: Plan,
    done: pd.DataFrame,
    *,
    table: str,
    note: str,
    main: pd.DataFrame | None = None,
    same: Mapping[str, str] | None = None,
    printed: pd.Series | None = None,
) -> Styler | str:
    """Score an ablation on the plan's STS tasks, publish it as jtcse_ablations, and set it beside profile small.

    Args:
        done: method, seed, run_id and, in column run, runs or encoders; may be empty.
        main: result rows of the main table. same: its methods that belong here too -> their names here.
        printed: the paper's values by method.

    Returns:
        Means over the seeds, with deviations: a column for the paper, for each encoder of profile small, and for this run.
    """
    labels, seeds = {"paper": PAPER, "table": table}, {*done.seed.astype(str)}
    rows = [
        plan.score(one.run, method=one.method, seed=str(one.seed), run_id=one.run_id, **labels)
        for one in done.itertuples()
    ]
    if rows and same:
        again = main[main.method.isin(same) & main.seed.isin(seeds)]
        rows.append(again.assign(table=table, method=again.method.map(same)))
    known = store.published("small", f"{PAPER}_ablations").query("table == @table")
    known = known.sort_values("backbone", kind="stable")
    here = pd.concat(rows, ignore_index=True) if rows else known[:0]
    plan.publish(here[here.aggregation == "all"], f"{PAPER}_ablations", f"{table}: {note}")
    both = headlines(pd.concat([known, here], ignore_index=True))
    both = both.drop_duplicates(["profile", "backbone", "method", "seed"], keep="last")
    if not len(both) and printed is None:
        return "not measured yet"
    both["where"] = both.profile + ", " + both.backbone
    shown = with_deviations(means(both, ["method"]))
    if printed is not None:
        shown = pd.concat([printed.rename("paper, BERT-base"), shown], axis=1)
    seeds = both.groupby("where", sort=False).seed.unique()
    seeds = "; ".join(f"{where}: seed {', '.join(sorted(names))}" for where, names in seeds.items())
    about = "average of seven STS tasks (demo: its own pairs), test, Spearman x 100, ± deviation over seeds"
    return shown.style.format(precision=DECIMALS, na_rep="").set_caption(f"{table}, {about}; {seeds}")
