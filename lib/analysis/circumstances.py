"""Why a score differs when the evaluation does not explain it: the seed, the settings of the training, another model; and what
people write of their scores, read into numbers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from lib import results
from lib.analysis import papers
from lib.analysis.diagnose import AVERAGE
from lib.checks import ConfigError
from lib.data.files import manifest
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder

# what a column of measured settings calls a parameter of a training, where it has another name for it
PARAMETERS = {"batch": "batch_size", "rate": "learning_rate", "MLM weight": "mlm_weight"}
MEASURED = {*PARAMETERS.values(), "corpus_size", "temperature", "epochs", "dropout", "projection", "augmentation"}
KINDS = {  # model type, layers, hidden size -> encoder whose spread over seeds is known
    ("bert", 12, 768): "bert-base-uncased",
    ("bert", 24, 1024): "bert-large-uncased",
    ("roberta", 12, 768): "roberta-base",
    ("roberta", 24, 1024): "roberta-large",
    ("bert", 6, 384): "minilm-stripped",
    ("bert", 6, 256): "mini-bert",
}
ROUNDING = 0.2  # points by which other machines and versions differ


def seeds_needed(deviation: float, difference: float) -> int:
    """Seeds of each side with which a two-sided t-test (5 %) finds a difference of means with a power of 80 %, when both
    sides have this deviation over seeds."""
    for seeds in range(2, 10_000):
        freedom, shift = 2 * seeds - 2, difference / deviation * (seeds / 2) ** 0.5
        if stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, shift) >= 0.8:
            return seeds
    raise ConfigError(f"a difference of {difference} with a deviation of {deviation} needs more than 10,000 seeds.")


def seed_spreads(like: SentenceEncoder | str = "", score: float | None = None) -> pd.DataFrame:
    """How far the average of the seven STS tasks scatters over seeds of unsupervised SimCSE: an independent replication with
    fifty seeds (hppRC/simple-simcse), then what was measured here with five and more.

    Args:
        like: the encoder that was trained, or the name of one. score: its average, which is placed among the seeds of encoders
            of its type and size.

    Returns:
        encoder, source, seeds, mean, std, min, max, yours (`among_seeds`; empty for other encoders).
    """
    name = like if isinstance(like, str) else kind_of(like)
    wide = papers.wide("simcse", "Independent replication (50 seeds)")[AVERAGE]
    kinds = ["mean", "std", "min", "max"]
    models = dict.fromkeys(name.split()[0] for name in wide.index)
    lines = [(model, "replication", 50, *(wide[f"{model} {kind}"] for kind in kinds)) for model in models]
    found = results.rows("small", task=STS_TASKS, paper=["level", "simcse"], method="SimCSE")
    averages = results.averages(results.sts(found))
    averages = averages[averages.task == AVERAGE]
    given = averages.groupby(["backbone", "pooling", "sentences", "settings"], sort=False)
    for (backbone, pooling, sentences, settings), part in given:
        if len(part) >= 5:
            source = f"here, {pooling}, {int(sentences):,} sentences, settings {settings}"
            lines.append((backbone, source, len(part), *part.value.agg(kinds)))
    frame = pd.DataFrame(lines, columns=["encoder", "source", "seeds", *kinds])
    is_like = (frame.encoder == name) & (score is not None)
    placed = [among_seeds(score, row) if one else "" for one, (_, row) in zip(is_like, frame.iterrows(), strict=True)]
    return frame.assign(yours=placed)


def kind_of(encoder: SentenceEncoder) -> str:
    """The encoder of `seed_spreads` that has this one's type and size; "" where there is none."""
    config = encoder.backbone.config
    return KINDS.get((config.model_type, config.num_hidden_layers, config.hidden_size), "")


def seeds_by_difference(spreads: pd.DataFrame, yours: float = 0) -> pd.DataFrame:
    """`seeds_needed` over differences of 0.3 to 2 points, for `figures.curves`: some encoders, and the one that is placed.

    Args:
        spreads: what `seed_spreads` gives. yours: a difference of means; a line leads to it, on the curve of the encoder
            that is placed.
    """
    placed = spreads[spreads.yours != ""].encoder.head(1).tolist()
    marked = [round(yours, 2)] if placed and yours >= 0.1 else []
    known = spreads[spreads.encoder.isin(["bert-base-uncased", "roberta-base", "minilm-stripped", *placed])]
    deviations = known.drop_duplicates("encoder").set_index("encoder")["std"]
    lines = [
        (f"{results.NAMES.get(name, name)}, sd {deviation:.2f}", x, seeds_needed(deviation, x))
        for name, deviation in deviations.items()
        for x in sorted({0.3, 0.5, 0.75, 1.0, 1.5, 2.0, *marked})
    ]
    for x in marked:
        seeds = seeds_needed(deviations[placed[0]], x)
        lines += [(f"yours: {x:.2f} points, {seeds} seeds", at, seeds) for at in (0.3, x)]
    return pd.DataFrame(lines, columns=["encoder", "difference", "value"]).assign(metric="seeds")


def among_seeds(score: float, table: Mapping[str, float]) -> str:
    """Where a score lies among seeds that were published as mean, std, min and max."""
    away = (score - table["mean"]) / table["std"]
    share = 100 * stats.norm.cdf(away)
    where = "inside" if table["min"] <= score <= table["max"] else "outside"
    return f"{score:.2f} is {away:+.1f} deviations from the mean, {where} the range of the seeds; {share:.0f} % of seeds are lower"


def nearest_published(mine: Mapping[str, float], most: int = 5) -> pd.DataFrame:
    """The rows of the papers' tables that are nearest to a row of scores, by the root mean square over the tasks that both have.

    Returns:
        paper, table, method, setting, tasks (how many are compared), distance; the nearest first. Rows that share fewer than
        three tasks with `mine` are left out.
    """
    lines = []
    for paper in papers.sheets():
        for one in papers.load(paper)["tables"]:
            table = papers.table(paper, one["id"])
            table = table[table.column.isin([name for name in mine if name != AVERAGE])].dropna(subset="value")
            for key, row in table.groupby(["paper", "table", "method", "setting"], sort=False):
                apart = row.value.astype(float) - row.column.map(mine)
                lines.append((*key, len(row), float(np.sqrt((apart**2).mean()))))
    frame = pd.DataFrame(lines, columns=["paper", "table", "method", "setting", "tasks", "distance"])
    return frame[frame.tasks >= 3].sort_values("distance", kind="stable").head(most).reset_index(drop=True)


def apart(mine: Mapping[str, float], claimed: Mapping[str, float]) -> str:
    """What two rows of scores say without an encoder: STS-B and SICK-R have one subset each, so no aggregation changes them.
    Scores within ROUNDING are equal."""
    gaps = {name: mine[name] - claimed[name] for name in mine if name in claimed and name != AVERAGE}
    wide = {name: gap for name, gap in gaps.items() if abs(gap) > ROUNDING}
    whole = [name for name in gaps if name in manifest()["sts_tables"]]
    if not wide:
        return "equal" if gaps else "no task in common"
    if not whole:
        return "nothing: give STS-B or SICK-R"
    if set(wide).isdisjoint(whole):
        return f"the aggregation: equal on {' and '.join(whole)}, which no aggregation changes"
    moved = ", ".join(f"{name} {wide[name]:+.2f}" for name in whole if name in wide)
    return f"not the aggregation alone: {moved}"


def published_cases() -> pd.DataFrame:
    """Numbers that were published or reported, and the cause that was found in the end, beside what `nearest_published` and
    `apart` say of them.

    Returns:
        published, Avg., against, its Avg., nearest row of another table, distance, the rows say, cause that was found.
    """
    lines = []
    cases = yaml.safe_load((papers.FOLDER.parent / "diagnosed.yaml").read_text(encoding="utf8"))
    for published, against, cause in cases:
        mine, other = claim(published), claim(against)
        near = nearest_published(mine, most=50)
        near = near[~(near.paper + ", " + near.table).isin([", ".join(published.split(", ")[:2])])].iloc[0]
        where = f"{near.paper}, {near.table}, {near.method}"
        lines.append(
            (published, mine[AVERAGE], against, other[AVERAGE], where, near.distance, apart(mine, other), cause)
        )
    columns = ["published", "Avg.", "against", "its Avg.", "nearest row of another table", "distance", "the rows say"]
    return pd.DataFrame(lines, columns=[*columns, "cause that was found"])


def training_differences(settings: Mapping[str, Any], reference: Mapping[str, Any]) -> pd.DataFrame:
    """Settings of a training that are not the reference's, with what each was measured to change: SimCSE, STS-B dev, pairs of
    runs that differ in nothing else, seed included; mean of the encoders' means.

    Returns:
        setting, yours, reference, effect (points on STS-B dev; NaN: not measured), sd (over the pairs), pairs (of runs); the
        largest effect first.

    Raises:
        ConfigError: a setting that the reference does not have.
    """
    if unknown := sorted(set(settings) - set(reference)):
        raise ConfigError(f"settings {unknown} are unknown: choose from {', '.join(sorted(reference))}.")
    about = {"method": "SimCSE", "split": "dev", "metric": "spearman", "task": "STS-B"}
    rows = results.rows("small", paper=["simcse", "level"], **about)
    rows = rows.assign(known=[_known(*of) for of in zip(rows.settings, rows.sentences, strict=True)])
    lines = []
    for name, value in settings.items():
        if value != reference[name]:
            some = rows[[name in known for known in rows.known]]
            rest = [str({one: x for one, x in known.items() if one != name}) for known in some.known]
            some = some.assign(rest=rest, value_of=[known[name] for known in some.known])
            scores = some.pivot_table("value", ["backbone", "table", "pooling", "device", "seed", "rest"], "value_of")
            apart = scores.reindex(columns=[reference[name], value]).diff(axis=1)[value].dropna()
            effect = apart.groupby("backbone").mean().mean()
            lines.append((name, str(value), str(reference[name]), effect, apart.std(), len(apart)))
    frame = pd.DataFrame(lines, columns=["setting", "yours", "reference", "effect", "sd", "pairs"])
    return frame.sort_values("effect", key=lambda one: -one.abs(), kind="stable", na_position="last", ignore_index=True)


def _known(settings: str, sentences: float) -> dict[str, Any]:
    """ "rate 0.0002, batch 32" of 10,000 sentences -> learning_rate 0.0002, batch_size 32, corpus_size 10000; {} where something
    else was changed."""
    known = {"corpus_size": sentences}
    for part in settings.split(", ") if settings != "given" else []:
        name, _, value = part.rpartition(" ")
        known[PARAMETERS.get(name, name)] = _value(value)
    return known if set(known) <= MEASURED else {}


def named(pairs: Sequence[str], what: str) -> dict[str, Any]:
    """["STS12: 68.4", "learning_rate=3e-5"] -> {"STS12": 68.4, "learning_rate": 3e-05}; numbers are numbers.

    Raises:
        ConfigError: a text that is not name: value; `what` names the parameter.
    """
    parts = [re.split("[:=]", pair, maxsplit=1) for pair in pairs]
    if wrong := [pair for pair, part in zip(pairs, parts, strict=True) if len(part) < 2 or not part[1].strip()]:
        raise ConfigError(f"{what} has {wrong[0]!r}: write each as name: value.")
    return {name.strip(): _value(text.strip()) for name, text in parts}


def _value(text: str) -> Any:
    """As YAML reads it, but that 3e-5 is a number too."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def claim(text: str) -> dict[str, float]:
    """What is claimed, column -> score: of a published row ("simcse, Table 5, SimCSE-BERT-base"; of several with this name the
    first, unless its setting stands behind it), of a number (the average), or nothing of an empty text.

    Raises:
        ConfigError: neither a number nor a known paper, table and method; the known ones are listed.
    """
    if not text or isinstance(_value(text), int | float):
        return {AVERAGE: float(text)} if text else {}
    known: Sequence[str] = papers.sheets()
    paper, _, rest = text.partition(", ")
    if paper in known:
        known = [one["id"] for one in papers.load(paper)["tables"]]
        name = next((one for one in sorted(known, key=len, reverse=True) if rest.startswith(f"{one}, ")), "")
        if name:
            table = papers.table(paper, name).dropna(subset="value")
            wanted, whole = rest.removeprefix(f"{name}, "), (table.method + ", " + table.setting).str.removesuffix(", ")
            known = list(dict.fromkeys(whole))
            found = table[(table.method == wanted) | (whole == wanted)].drop_duplicates("column")
            if len(found):
                columns = found.column.str.removeprefix("7 ")  # "7 Avg." of JTCSE's tables
                return {column: float(value) for column, value in zip(columns, found.value, strict=True)}
    raise ConfigError(
        f"claimed {text!r} is no number and no published row (paper, table, method). Known there: {', '.join(known)}."
    )
