"""The tables that every notebook shows: scores with their gains, and dev scores beside those that were published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lib.analysis.geometry import dimension_agreement
from lib.analysis.papers import WIDER_CHOICE, by_choice, gain_table
from lib.analysis.papers import gains as paired_gains
from lib.data import STSTask
from lib.data.labelled import LabelledTexts
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation.clustering import evaluate_clustering
from lib.runs import store
from lib.runs.plan import Plan

DECIMALS = 2
DEVIATION = " ±"
PAIR_COLUMNS = "table backbone method seed run_id group pair x value".split()
MAP_COLUMNS = "table backbone method seed run_id text label cluster value y v_measure trust".split()
MAIN = {"micse": "Table 3", "msse": "Table 1"}  # paper -> how the names of its main tables begin, where it has others
HISTORY_COLUMNS = ["table", "backbone", "method", "seed", "run_id", "step", "quantity", "value"]
# paper -> what stands for it beside the others
METHODS = {
    "micse": ["SimCSE + AMI", "SimCSE + MoCo", "miCSE"],
    "infocse": ["DiffCSE", "InfoCSE", "InfoCSE + RTD"],
    "msse": ["MSSE w/o DCM and ICM", "MSSE"],  # the first: contrast without the layer that SimCSE trains with
    "jtcse": ["sum of stage 1", "NCE", "TNCSE", "JTCSE", "JTCSE D"],  # NCE: no term between the two encoders
    "three_r": ["SimCSE + 3R", "SimCSE + 3R, SimCSE's settings"],
}
# what runs call a method -> its name in tables and figures
SPELT = {
    "simcse": "SimCSE",
    "supervised": "SimCSE, supervised",
    "informin_cl": "InforMin-CL",
    "sscl": "SSCL",
    "micse": "miCSE",
    "infocse": "InfoCSE",
    "msse": "MSSE",
    "jtcse": "JTCSE",
}
ENCODERS = ["mini-bert", "minilm-stripped"]  # that every paper's method was trained from
TITLES = {"micse": "miCSE", "infocse": "InfoCSE", "msse": "MSSE", "jtcse": "TNCSE, JTCSE", "three_r": "3R"}


def reading(pooling: str) -> str:
    """The end of a table's name for encoders with this pooling, one of POOLINGS; empty for [CLS]."""
    return "" if pooling == "cls" else f", read by the {pooling.replace('_', ' ')}"


def score(
    plan: Plan,
    done: pd.DataFrame,
    encoders: Mapping[str, SentenceEncoder | ensemble.EncoderSum | store.Run] | None = None,
    *,
    paper: str,
    table: str,
    note: str,
) -> pd.DataFrame:
    """Score runs and encoders on the plan's STS tasks and publish the rows under the paper's name.

    Args:
        done: what `Plan.runs` gives, with a column method. encoders: by name, without a seed: floors.
        table, note: of the rows, and of the provenance.

    Returns:
        Result rows (ROW_COLUMNS).
    """
    labels = {"paper": paper, "table": table}
    rows = [plan.score(encoder, method=name, seed="", **labels) for name, encoder in (encoders or {}).items()]
    rows += [plan.score(row.run, method=row.method, **labels) for row in done.itertuples()]
    if not rows:
        return pd.DataFrame(columns=store.ROW_COLUMNS)
    frame = pd.concat(rows, ignore_index=True).astype({"seed": str})  # as published rows have it
    plan.publish(frame, paper, note)
    return frame


def beyond(
    plan: Plan,
    done: pd.DataFrame,
    encoders: Mapping[str, SentenceEncoder | ensemble.EncoderSum | store.Run],
    kinds: Mapping[str, str],
    *,
    paper: str,
    note: str,
) -> pd.DataFrame:
    """Evaluate runs and encoders on what the plan has besides STS, and publish the rows under the paper's name.

    Args:
        done, encoders: as in `score`. kinds: kind of `Plan.evaluate` -> table.

    Returns:
        Result rows (ROW_COLUMNS); none where the plan has no task of these kinds.
    """
    asked = [(encoder, name, "") for name, encoder in encoders.items()]
    asked += [(row.run, row.method, row.seed) for row in done.itertuples()]
    frames = [
        plan.evaluate(kind, encoder, method=name, seed=seed, paper=paper, table=table)
        for encoder, name, seed in asked
        for kind, table in kinds.items()
    ]
    found = [rows for rows in frames if len(rows)]
    if not found:
        return pd.DataFrame(columns=store.ROW_COLUMNS)
    frame = pd.concat(found).astype({"seed": str})
    plan.publish(frame, paper, note)
    return frame


def with_published(rows: pd.DataFrame, paper: str, tables: str) -> pd.DataFrame:
    """Rows of this run behind those of profile small under a paper's name; each measurement once.

    Args:
        rows: result rows. tables: regular expression of the names of the published tables, from their beginning.
    """
    known = store.published("small", paper)
    both = pd.concat([known[known.table.str.match(tables)], rows]).astype({"value": float})  # either may be empty
    return both.drop_duplicates([name for name in store.ROW_COLUMNS if name not in ("value", "run_id")])


def beyond_sts(rows: pd.DataFrame, *, paper: str, tables: str) -> Styler:
    """Main scores (test, x 100) on what is not STS, of this run and of profile small: a row for each task, the mean of
    the seven transfer tasks behind them, a column for each encoder and method.

    rows, tables: see `with_published`.
    """
    shown = with_published(rows, paper, tables)
    main = (shown.split == "test") & shown.metric.isin(
        ["accuracy", "v_measure", "map", "ndcg@10", "recall@1", "cosine", "gold"]
    )
    columns, index = ["profile", "backbone", "method"], ["table", "task", "metric"]
    shown = shown[main]
    seeds = "one seed" if shown.groupby([*index, *columns]).seed.nunique().max() < 2 else "mean over the seeds"
    shown = shown.pivot_table(index=index, columns=columns, values="value", sort=False)
    for table, part in shown.groupby("table", sort=False):
        if set(TRANSFER_TASKS) <= set(part.index.get_level_values("task")):
            shown.loc[(table, "Avg.", "accuracy"), :] = part.mean(skipna=False)
    shown = shown.sort_index(level="table", sort_remaining=False, kind="stable")
    caption = f"test, x 100, {seeds}" if len(shown) else "not asked for here, not measured in small"
    return shown.style.format(precision=2, na_rep="").set_caption(caption)


def headlines(rows: pd.DataFrame, split: str = "test") -> pd.DataFrame:
    """Of result rows of STS tasks those that tables quote: one split, aggregation all, the average or the only task."""
    rows = rows.query("split == @split and aggregation == 'all' and metric == 'spearman'").astype({"seed": str})
    whole = ["table", "method", "backbone", "profile", "seed"]
    has_average = (rows.task == "Avg.").groupby([rows[name] for name in whole]).transform("any")
    return rows[(rows.task == "Avg.") | ~has_average.astype(bool)]


def floors(profile: str = "small", *, task: str = "Avg.", split: str = "test") -> pd.DataFrame:
    """What every method has to beat on the seven STS tasks, or on one: the best untrained reading of each encoder.

    That of the mini-BERT is the word vectors that it was made from (`averaging start`), far above its own readings.

    Returns:
        name, backbone, value: one row for each backbone.
    """
    known = headlines(store.published(profile, "simcse"), split)
    known = known[known.method.astype(str).str.startswith("untuned") & (known.task == task)]
    words = known[known.backbone == "averaging start"].assign(backbone="mini-bert", method="word vectors, untrained")
    best = pd.concat([known, words]).sort_values("value").drop_duplicates("backbone", keep="last")
    return best.rename(columns={"method": "name"})[["name", "backbone", "value"]].reset_index(drop=True)


def dev_floors(backbones: Sequence[str] = ENCODERS) -> str:
    """The floors of these encoders on STS-B dev, as far as they were measured, in words for the caption of a table."""
    known = floors(task="STS-B", split="dev").query("backbone in @backbones")
    return "floors on STS-B dev: " + (_listed(known) or "not measured")


def _listed(known: pd.DataFrame) -> str:
    return ", ".join(f"{row.backbone} {row.value:.2f} ({row.name})" for row in known.itertuples(index=False))


def collected_scores() -> pd.DataFrame:
    """The average of the seven STS tasks of every method and of the SimCSE it stands beside, profile small, from ENCODERS.

    Returns:
        group (the paper, the number of sentences where the rows name it, a wider choice of settings), method, backbone,
        seed, value; methods that change one part of another are left out.
    """
    collected = []
    for paper, methods in METHODS.items():
        rows = by_choice(headlines(store.published("small", paper)).query("task == 'Avg.'"))
        if paper in MAIN:  # others have few sentences with as many steps, or another budget
            rows = rows[rows.table.str.startswith(MAIN[paper])]
        size = (rows.method + rows.table.fillna("")).str.extract(r"([\d,]+ sentences)")[0]
        choice = np.where(rows.table.astype(str).str.endswith(WIDER_CHOICE), WIDER_CHOICE, "")
        rows = rows.assign(
            group=(TITLES[paper] + ", " + size).fillna(TITLES[paper]) + choice,
            method=rows.method.str.replace(r", [\d,]+ sentences$", "", regex=True),
        )
        rows = rows[rows.method.isin(["SimCSE", *methods]) & rows.backbone.isin(ENCODERS)]
        compared = rows[rows.method != "SimCSE"].groupby(["group", "backbone"]).size().index
        rows = rows[pd.MultiIndex.from_frame(rows[["group", "backbone"]]).isin(compared)]
        order = ["SimCSE", *methods]
        collected.append(rows.sort_values("method", key=lambda names: names.map(order.index), kind="stable"))
    return pd.concat(collected, ignore_index=True)[["group", "method", "backbone", "seed", "value"]]


def sized(rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the rows whose method is called "X, 1,000 sentences", with X as method and the number as `sentences`."""
    parts = rows.method.str.extract(r"^(?P<method>.+), (?P<sentences>[\d,]+) sentences$")
    rows = rows.assign(method=parts.method, sentences=parts.sentences.str.replace(",", "")).dropna(subset="method")
    return rows.astype({"sentences": int})


def gains(rows: pd.DataFrame, *, over: str, by: Sequence[str] = ("method",), with_floors: bool = False) -> Styler | str:
    """Mean and deviation of the headline score over seeds, and the gain over a method with the same seed.

    Args:
        rows: result rows; `headlines` of them count. by: columns that tell rows apart, method among them.
        with_floors: name the floors of the encoders in the caption.

    Returns:
        The table, or a sentence where there are no rows.
    """
    shown = headlines(rows)
    if not len(shown):
        return "not measured yet"
    table = gain_table(shown, over=over, value="value", by=by).dropna(axis=1, how="all")
    table = table.drop(
        columns=[name for name in ("smallest gain", "largest gain") if (table.seeds < 3).all()], errors="ignore"
    )
    tasks = "average of seven STS tasks" if (shown.task == "Avg.").all() else ", ".join(shown.task.unique())
    caption = (
        f"profile {_named(shown.profile)}; {tasks}, test, aggregation all, Spearman x 100; {_named(shown.backbone)}"
    )
    caption += f"; gain over {over} with the same seed"
    if with_floors:
        caption += "; floors: " + _listed(floors()[lambda rows: rows.backbone.isin(shown.backbone)])
    return _styled(table, DECIMALS, caption)


def gain_intervals(rows: pd.DataFrame, *, over: str, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The gains over a method that profile small published, for `figures.intervals`.

    Args:
        rows: result rows of `over` and of one other method; `headlines` of them count. name: the column that tells apart
            what the two were compared on.

    Returns:
        group (the backbone), method (of the column `name`), value, low and high; group, method and value of single seeds.
    """
    shown, by, of = headlines(rows).query("profile == 'small'"), ["backbone", name], {"over": over, "value": "value"}
    means = gain_table(shown, by=[*by, "method"], **of).reset_index()
    means = means.assign(value=means.gain).rename(columns={"95 % low": "low", "95 % high": "high"})
    seeds = shown.assign(value=paired_gains(shown, paired=[*by, "seed"], **of))
    drawn = [frame[frame.method != over] for frame in (means, seeds)]
    means, seeds = (frame.assign(group=frame.backbone, method=frame[name]) for frame in drawn)
    return means[["group", "method", "value", "low", "high", "seeds"]], seeds[["group", "method", "seed", "value"]]


def by_task(rows: pd.DataFrame, above: Mapping[str, pd.DataFrame], *, caption: str) -> Styler:
    """Mean over the seeds of every STS task, by encoder and method, with the deviation of the average.

    Args:
        rows: result rows of test pairs; aggregation all counts. above: name -> published rows with the same columns.
    """
    rows, tasks = rows.query("split == 'test' and aggregation == 'all'"), [*STS_TASKS, "Avg."]
    blocks = dict(above)
    for (profile, backbone), part in rows.groupby(["profile", "backbone"]):
        means = part.pivot_table(index="method", columns="task", values="value", sort=False)
        average = part[part.task == "Avg."].groupby("method").value
        blocks[f"{profile}, {backbone}"] = means.assign(std=average.std(), seeds=average.size())
    table = pd.concat(blocks).reindex(columns=[*tasks, "std", "seeds"])
    return table.style.format(precision=DECIMALS, na_rep="").format("{:.0f}", "seeds", "").set_caption(caption)


def measured(plan: Plan, here: pd.DataFrame, name: str, note: str, table: str = "") -> tuple[pd.DataFrame, str]:
    """Publish rows of this run, and return what figures show: the rows of profile small, or these where there are none.

    Args:
        here: see `Plan.publish`; backbone and run_id are the plan's and none where it lacks them. name, note: of the
            published file. table: the one that is shown; empty: all.

    Returns:
        Rows with the same columns, and where they come from.
    """
    missing = {"backbone": store.encoder_name(next(iter(plan)).config.backbone), "run_id": ""}
    here = here.assign(**{column: value for column, value in missing.items() if column not in here})
    plan.publish(here, name, note)
    known = store.published("small", name, columns=list(here))
    known = known[known.table == table] if table else known
    if len(known):
        return known, ", ".join(filter(None, ["profile small", table]))
    return here, f"profile {plan.profile}"


def history(
    plan: Plan,
    done: pd.DataFrame,
    quantities: Sequence[str],
    *,
    paper: str,
    name: str,
    table: str,
    note: str,
    shown: str = "10,000 sentences",
    derive: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> tuple[pd.DataFrame, str]:
    """Quantities of the runs' histories, at the steps that have all of them; published as <paper>_<name>, x 100.

    Args:
        done: what `Plan.runs` gives, with the columns method and seed. quantities: columns of the histories.
        table: of these rows, with their number of sentences. shown: the table of profile small that is returned.
        derive: a history with further columns, from a history.

    Returns:
        table, backbone, method, seed, step and the quantities, for `figures.seed_bands`; and where they come from:
        what profile small published, or this run where that has nothing.
    """
    frames = []
    for row in done.itertuples():
        frame = row.run.history if derive is None else derive(row.run.history)
        frame = frame.dropna(subset=list(quantities)).melt("step", list(quantities), "quantity")
        labels = {"table": table, "backbone": row.run.labels["backbone"], "method": row.method, "seed": str(row.seed)}
        frames.append(frame.assign(**labels, run_id=row.run.id, value=100 * frame.value))
    here = pd.concat(frames, ignore_index=True)[HISTORY_COLUMNS] if frames else pd.DataFrame(columns=HISTORY_COLUMNS)
    frame, source = measured(plan, here, f"{paper}_{name}", note, shown)
    keys = ["table", "backbone", "method", "seed", "step"]
    frame = frame.pivot_table(index=keys, columns="quantity", values="value", sort=False).div(100).reset_index()
    return frame, source


def published_gains(paper: str, tables: str, *, over: str, by: Sequence[str] = ("method",)) -> Styler | str:
    """`gains` of the rows that profile small has under a paper's name.

    Args:
        tables: regular expression of the names of the published tables, from their beginning.
    """
    known = store.published("small", paper)
    return gains(known[known.table.str.match(tables)].sort_values("backbone", kind="stable"), over=over, by=by)


def few_shot(plan: Plan, done: pd.DataFrame | None, *, paper: str, table: str) -> tuple[pd.DataFrame, str]:
    """Score the runs of `Plan.few_shot`, a published table for each number of sentences.

    Args:
        done: what `Plan.runs` gives; None: none. table: the paper's.

    Returns:
        backbone, method, seed, sentences, value, for `figures.few_shot`: of profile small, or of this run where that has
        nothing; and where they come from.
    """
    note, rows = "STS; as many steps with few sentences as with many, the seed draws them.", []
    for size, part in done.groupby("sentences") if done is not None else []:
        rows.append(score(plan, part, paper=paper, table=f"{table}, {size:,} sentences", note=note))
    known = store.published("small", paper)
    known = known[known.table.str.match(f"{table}, .* sentences")]
    shown = headlines(known if len(known) else pd.concat([*rows, known]))
    sentences = shown.table.str.extract(r"([\d,]+) sentences")[0].str.replace(",", "").astype(int)
    columns = ["backbone", "method", "seed", "sentences", "value"]
    return shown.assign(sentences=sentences)[columns], f"profile {'small' if len(known) else plan.profile}"


def clusters(
    plan: Plan,
    done: pd.DataFrame,
    encoders: Mapping[str, SentenceEncoder],
    tasks: Sequence[LabelledTexts],
    *,
    over: str,
    paper: str,
    table: str,
) -> Styler:
    """K-Means against labels: V-measure with its gain over a method, beside what profile small published and vectors
    that know nothing.

    Args:
        done, encoders: see `beyond`. tasks: declared with `Plan.clustering`. table: of the rows; its first word(s) up to
            a comma name the paper's.
    """
    note = "K-Means against labels, mean of five starts; the seed is that of training."
    here = with_published(
        beyond(plan, done, encoders, {"clustering": table}, paper=paper, note=note), paper, table.split(",")[0]
    )
    dice, chance = np.random.default_rng(0), []
    for task in tasks:
        rows = evaluate_clustering(lambda texts: dice.normal(size=(len(texts), 64)), task)
        chance.append(rows.assign(table=table, method="random vectors", profile=plan.profile, backbone="", seed=""))
    rows = pd.concat([here, *chance]).astype({"seed": str})
    rows["k"] = rows.protocol.astype(str).str.extract(r"k (\d+)", expand=False)
    by = ["profile", "task", "table", "backbone", "k", "method"]
    scored = gain_table(rows.query("metric == 'v_measure'"), over=over, value="value", by=by)
    scored = scored.drop(columns=["smallest gain", "largest gain"])
    scored["ARI, mean"] = rows.query("metric == 'ari'").groupby(by).value.mean()
    caption = f"V-measure of K-Means x 100, mean of five starts; gain over {over} with the same seed; ARI: adjusted Rand index"
    return _styled(scored, 1, caption)


def geometry(
    plan: Plan, done: pd.DataFrame, *, paper: str, table: str, figure: str = "", shown: str = "10,000 sentences"
) -> tuple[pd.DataFrame, str]:
    """Alignment and uniformity on the dev pairs at every dev evaluation: see `history`.

    figure: of the paper, in front of the table's name where a notebook has several such tables. shown: empty
        shows all.
    """
    note = "Alignment and uniformity on the dev pairs at every dev evaluation, x 100."
    names = [f"{figure}, {name}" if figure else name for name in (table, shown)]
    about = {"paper": paper, "name": "geometry", "note": note, "table": names[0], "shown": names[1]}
    return history(plan, done, ["alignment", "uniformity"], **about)


def of_encoders(
    done: pd.DataFrame, encoders: Mapping[str, SentenceEncoder], measure: Callable[[SentenceEncoder], pd.DataFrame]
) -> pd.DataFrame:
    """What `measure` says of every encoder, between the columns backbone, and method, seed and run_id.

    Args:
        done: what `Plan.runs` gives, with a column method. encoders: by name, untrained ones of the same backbone.
    """
    asked = [(encoder, {"method": name, "seed": "", "run_id": ""}) for name, encoder in encoders.items()]
    asked += [
        (row.run.encoder(), {"method": row.method, "seed": row.seed, "run_id": row.run.id}) for row in done.itertuples()
    ]
    frame = pd.concat([measure(encoder).assign(**labels) for encoder, labels in asked], ignore_index=True)
    frame.insert(0, "backbone", done.run.iloc[0].labels["backbone"])
    return frame


def agreement(
    plan: Plan, done: pd.DataFrame, encoders: Mapping[str, SentenceEncoder], task: STSTask, *, paper: str, table: str
) -> Styler:
    """How far dimensions agree across pairs that mean the same (gold above 4; `geometry.dimension_agreement`), published
    as <paper>_agreement.

    Args:
        done, encoders: see `of_encoders`. task: whose pairs. table: of the rows.
    """
    first, second = (np.array(side)[task.gold > 4].tolist() for side in (task.sentences1, task.sentences2))

    def measure(encoder: SentenceEncoder) -> pd.DataFrame:
        values = dimension_agreement(encoder.encode(first), encoder.encode(second))
        return pd.DataFrame({"quantity": values.keys(), "value": [100 * value for value in values.values()]})

    here = of_encoders(done, encoders, measure).assign(table=table)
    note = f"Correlation between dimensions over {len(first)} {task.name} dev pairs with gold above 4, x 100."
    shown, source = measured(plan, here, f"{paper}_agreement", note, "10,000 sentences")
    caption = (
        f"correlation x 100 of a dimension with itself and with others (root mean square), mean over seeds, {source}"
    )
    shown = shown.pivot_table(index=["backbone", "method"], columns="quantity", values="value", sort=False)
    return shown[["own", "others"]].style.format(precision=1).set_caption(caption)


def pairs(
    plan: Plan, frames: Mapping[str, pd.DataFrame], done: pd.DataFrame, *, paper: str, note: str
) -> tuple[pd.DataFrame, str]:
    """Publish single pairs of texts as <paper>_pairs, and return what profile small published, or these.

    Args:
        frames: table -> encoder, group, x, cosine. done: the encoders' runs, one for each, by the column method.

    Returns:
        table, backbone, encoder, group, x, cosine; and where they come from.
    """
    runs = done.set_index("method").run
    here = pd.concat([frame.assign(table=table) for table, frame in frames.items()], ignore_index=True)
    here["pair"] = here.groupby(["table", "encoder", "group"]).cumcount()
    of_run = {
        name: here.encoder.map(lambda who, name=name: runs[who].labels[name]) for name in ("backbone", "seed", "run_id")
    }
    here = here.assign(**of_run, value=100 * here.cosine).rename(columns={"encoder": "method"}).round({"x": 3})
    frame, source = measured(plan, here[PAIR_COLUMNS], f"{paper}_pairs", note)
    frame = frame.assign(cosine=frame.value / 100).rename(columns={"method": "encoder"})
    return frame[["table", "backbone", "encoder", "group", "x", "cosine"]], source


def cluster_map(
    plan: Plan, mapped: pd.DataFrame, *, paper: str, table: str, seed: int, run_ids: Mapping[str, str], texts: int = 600
) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Publish a map of texts (`maps.cluster_map`) as <paper>_map, and return what profile small published, or this one.

    Args:
        table: of the rows. seed: of training. run_ids: encoder -> its run; others are untrained.
        texts: how many of every encoder are published, the same ones.

    Returns:
        table and backbone, with encoder (and its V-measure and trustworthiness), label, cluster, x, y of each text.
    """
    columns = {"table": table, "backbone": store.encoder_name(next(iter(plan)).config.backbone), "seed": str(seed)}
    drawn = np.random.default_rng(0).permutation(mapped.index.nunique())[:texts]
    here = mapped[mapped.index.isin(drawn)]
    here = here.assign(**columns, method=here.encoder, run_id=here.encoder.map(run_ids).fillna(""), value=here.x)
    here = here.assign(text=here.index, cluster=here.cluster.astype(float)).round({"y": 2, "trust": 3, "v_measure": 1})
    here = here[MAP_COLUMNS]
    note = f"Places of {texts:,} of the texts on a map of all, and one K-Means."
    shown = measured(plan, here, f"{paper}_map", note)[0].astype({"cluster": int}).rename(columns={"value": "x"})
    quality = shown.v_measure.map("\nV-measure {:.0f}, ".format) + shown.trust.map("trust {:.2f}".format)
    shown["encoder"] = shown.method + quality
    columns = ["encoder", "label", "cluster", "x", "y"]
    return [(key, part[columns]) for key, part in shown.groupby(["table", "backbone"], sort=False)]


def dev_scores(
    plan: Plan, groups: Mapping[str, pd.DataFrame], *, paper: str, note: str, name: str = "dev"
) -> pd.DataFrame:
    """Publish the dev scores of groups of runs as <paper>_<name>, and set them beside those of profile small.

    Args:
        groups: table -> what `Plan.runs` gives, with a column method.

    Returns:
        Rows by table and method; a column for each encoder of profile small, and one for this run where it has runs: means
        over the seeds. Where a method has several, "NAME ±" beside the column NAME has their deviations.
    """
    done = pd.concat([frame.assign(table=table) for table, frame in groups.items()])
    here = pd.DataFrame(columns=store.ROW_COLUMNS)
    if len(done):
        here = store.dev_rows(done, paper=paper)
        plan.publish(here, f"{paper}_{name}", note)
    known = store.published("small", f"{paper}_{name}")
    known = known[known.table.isin(groups)].sort_values("backbone", kind="stable")
    known = known.assign(where="small, " + known.backbone)
    both = pd.concat([known, here.assign(where=f"this run, {plan.profile}")]).astype({"value": float})
    table = means(both, ["table", "method"])
    order = dict.fromkeys(
        [*zip(done.table, done.method, strict=True), *table.index]
    )  # this run's first, table by table
    order = sorted(order, key=lambda name: list(groups).index(name[0]))
    return table.reindex(order)


def beside(table: pd.DataFrame, name: str, *, caption: str, paper: Any = None) -> Styler | str:
    """One table of `dev_scores`, with the paper's values (a Series by method) as a further column; rows named by numbers
    come first, sorted; where some are named like "NAME, rate 0.001", all are sorted by name and rate; "mean ± deviation" where
    a method has several seeds. `dev_floors` stands in the caption. A sentence where there are neither."""
    if paper is None and name not in [key[0] for key in table.index]:
        return "not measured yet"
    one = table.loc[name].dropna(axis=1, how="all")
    one = with_deviations(one)
    if paper is not None:
        one = pd.concat([paper, one], axis=1).reindex(dict.fromkeys([*paper.index, *one.index]))
    numbers = pd.to_numeric(one.index.str.strip("%"), errors="coerce")
    one = one.iloc[np.argsort(numbers, kind="stable")]
    tried = one.index.str.extract(r"^(.*?)(?:, rate ([\d.e+-]+))?$")
    if tried[1].notna().any():
        one.index = pd.MultiIndex.from_arrays([tried[0], tried[1].astype(float)], names=["", "rate"])
        one = one.sort_index().rename(lambda rate: f"{rate:g}" if rate == rate else "", level="rate")
    shown = [name for name in ENCODERS if any(str(column).endswith(name) for column in one)]
    return one.style.format(precision=DECIMALS, na_rep="").set_caption(f"{caption}; {dev_floors(shown)}")


def means(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means of the column value, by `by` and, in columns, by `where`; "NAME ±" has the deviations of a column NAME in which
    a cell is the mean of several rows."""
    cells = rows.groupby([*by, "where"], sort=False).value
    table, spread = cells.mean().unstack(sort=False), cells.std().unstack(sort=False)
    return table.join(spread.dropna(axis=1, how="all").add_suffix(DEVIATION))


def with_deviations(table: pd.DataFrame) -> pd.DataFrame:
    """What `means` gives with deviations in the cells of their means: "64.55 ± 0.27"."""
    table = table.copy()
    for column in [column for column in table if column.endswith(DEVIATION)]:
        name, spread = column.removesuffix(DEVIATION), table.pop(column)
        text = table[name].map(f"{{:.{DECIMALS}f}}".format) + DEVIATION + spread.map(f" {{:.{DECIMALS}f}}".format)
        table[name] = table[name].astype(object).mask(spread.notna(), text)
    return table


def _styled(table: pd.DataFrame, decimals: int, caption: str) -> Styler:
    """A table with a column `seeds`; its cells get no ids, which would be much of what a notebook keeps of it."""
    plain = Styler(table, cell_ids=False).format(precision=decimals, na_rep="")
    return plain.format("{:.0f}", subset="seeds").set_caption(caption)


def _named(column: pd.Series) -> str:
    return ", ".join(map(str, column.unique()))
