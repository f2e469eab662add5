"""Why a score differs: an encoder read in every way that people read it, and which of them gives the score they got."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.checks import ConfigError
from lib.data import demo
from lib.data.sts import STSTask, Subset
from lib.data.tokenized import check_words
from lib.encoders import SentenceEncoder
from lib.encoders.kinds import longest_input
from lib.encoders.pooling import POOLINGS
from lib.encoders.sentence_encoder import in_mode, random_kept
from lib.evaluation.sts import cosine, task_scores

AVERAGE = "Avg."
AXES = ["pooling", "projection", "normalisation", "forward pass", "similarity", "aggregation", "correlation"]
MOST = 2  # changes of the papers' reading at a time
PER_CHANGE = 0.03  # points that a change must bring to be suspected: below it lie rounding and other machines
DROPOUT = "dropout on (read in bf16)"
SURE = {0.015: "reproduced", 0.1: "within 0.1", 0.5: "plausible"}  # distance that is left, at most -> how sure
SIMILARITIES = {
    "cosine": cosine,
    "dot product": lambda x, y: (x.astype(np.float64) * y).sum(1),
    "Euclid": lambda x, y: -np.linalg.norm(x.astype(np.float64) - y, axis=1),
}


def readings(
    encoder: SentenceEncoder,
    tasks: Sequence[STSTask],
    others: Sequence[STSTask] = (),
    *,
    projection: torch.nn.Module | None = None,
    lengths: Sequence[int] = (32, 64, 128),
) -> pd.DataFrame:
    """Scores of an encoder by every reading that differs from the papers' in at most MOST ways.

    One forward pass over the distinct texts serves four poolings, with and without projection, and all ways to score. Further
    passes: the prompt's, the texts that another length or lower case changes, and by the own pooling alone bf16, and dropout
    on. Dropout is read in bf16, which takes half the time of fp32 where the processor has it: the error of bf16 is small
    beside that of dropout's random numbers, and with fp32 all readings would take more than four times one evaluation.

    Args:
        tasks: what the papers score. others: another split of some of them, such as STS-B dev or all of SICK-R.
        projection: [N, D] -> [N, D'], the trained layer behind the pooling where one was saved.
        lengths: limits in tokens, shorter or longer than the encoder's own; those that change no text are left out.

    Returns:
        A row for each reading, the papers' first (own pooling and normalisation, no projection): AXES, "split of ..." for each
        of `others`, changes (in how many of these it is not as in the first row), a column a task (correlation x 100), and AVERAGE.

    Raises:
        ConfigError: a sum of encoders, whose vectors have no single pooling; one that subtracts its template's vector.
        DataError: most of the words are unknown to the tokenizer, see `lib.data.tokenized.check_words`.
    """
    if not isinstance(encoder, SentenceEncoder):
        raise ConfigError("a sum of encoders is read by its encoders: name one of those in its folder.")
    if encoder.denoised:
        raise ConfigError("an encoder that subtracts its template's vector is not read here: name pooling mask_prompt.")
    texts = list(dict.fromkeys(text for task in (*tasks, *others) for text in (*task.sentences1, *task.sentences2)))
    row_of = {text: row for row, text in enumerate(texts)}
    sides = [[[row_of[text] for text in side] for side in (t.sentences1, t.sentences2)] for t in (*tasks, *others)]
    first: tuple[str, ...] = ()
    rows = []
    for vectors_of, x in _all_vectors(encoder, texts, projection, lengths):
        for similarity, measure in SIMILARITIES.items():
            reading = (*vectors_of, similarity)
            first = first or reading
            left = MOST - sum(one != other for one, other in zip(reading, first, strict=True))  # changes still free
            scored = [*tasks, *others][: None if left > 0 else len(tasks) if left == 0 else 0]
            for task, (a, b) in zip(scored, sides, strict=False):
                predicted = measure(x[a], x[b])
                for correlation in ("Spearman", "Pearson")[: 1 + left]:
                    for aggregation, value in task_scores(task, predicted, ranks=correlation == "Spearman").items():
                        rows.append((*reading, aggregation, correlation, task.name, task.split, value))
    long = pd.DataFrame(rows, columns=[*AXES, "task", "split", "value"])
    wide = long.pivot_table("value", AXES, ["task", "split"], sort=False)
    splits = {task.name: [task.split, *(one.split for one in others if one.name == task.name)] for task in tasks}
    frames = []
    for chosen in product(*splits.values()):
        part = wide[list(zip(splits, chosen, strict=True))].droplevel("split", axis=1)
        of = {f"split of {name}": split for name, split in zip(splits, chosen, strict=True) if len(splits[name]) > 1}
        frames.append(part.assign(**{AVERAGE: part.mean(axis=1)}, **of).reset_index())
    frame = pd.concat(frames, ignore_index=True)
    axes = [*AXES, *(name for name in frame if name.startswith("split of "))]
    frame.insert(0, "changes", (frame[axes] != frame.loc[0, axes]).sum(axis=1))
    return frame[frame.changes <= MOST][[*axes, "changes", *splits, AVERAGE]].reset_index(drop=True)


def _all_vectors(
    encoder: SentenceEncoder, texts: list[str], projection: torch.nn.Module | None, lengths: Sequence[int]
) -> Iterator[tuple[tuple[str, str, str, str], np.ndarray]]:
    """(pooling, projection, normalisation, forward pass) and float32 [n, D], the papers' reading first."""
    plain, prompted = (copy.copy(encoder) for _ in range(2))
    plain.pooling, prompted.pooling = "cls", "mask_prompt"
    has_pooler = getattr(encoder.backbone, "pooler", None) is not None
    own = [encoder.pooling] if encoder.pooling != "mask_prompt" else []
    poolings = list(dict.fromkeys([*own, *POOLINGS]))
    left_out = {"mask_prompt", "last", *(() if has_pooler else ["pooler"])} - {*own}
    poolings = [name for name in poolings if name not in left_out]
    groups = [(plain, poolings)]
    if encoder.tokenizer.mask_token is not None:
        groups.insert(0 if not own else 1, (prompted, ["mask_prompt"]))
    for reader, names in groups:
        for how, found in _passes(reader, texts, names, lengths, names[0] == encoder.pooling):
            for pooling, x in found.items():
                by_layer = {"left out": torch.from_numpy(x)}
                if projection is not None:
                    with torch.no_grad():
                        by_layer["read"] = projection(by_layer["left out"].to(encoder.device)).float().cpu()
                for layer, vectors in by_layer.items():
                    if encoder.normalise:
                        yield (pooling, layer, "applied", how), encoder.finished(vectors).numpy()
                    yield (pooling, layer, "left out", how), vectors.numpy()


def _passes(
    encoder: SentenceEncoder, texts: list[str], poolings: Sequence[str], lengths: Sequence[int], is_own: bool
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What is done to the forward pass, and pooling -> vectors [n, H]: as it is, then each change by itself. is_own: whether
    the first pooling is the encoder's; lengths are tried with these poolings alone."""
    ids = encoder.tokenize(texts)
    if is_own:
        check_words(encoder, ids, len(ids), "the texts")
    plain = _vectors(encoder, ids, poolings)
    yield "as it is", plain
    limits = sorted({min(one, longest_input(encoder.backbone)) for one in lengths}, reverse=True) if is_own else []
    rows_of: dict[int | None, list[int]] = {
        limit: [row for row, one in enumerate(ids) if len(one) > min(limit, encoder.max_length - 1)] for limit in limits
    }
    rows_of[None] = [row for row, text in enumerate(texts) if text != text.lower()]
    for limit, rows in rows_of.items():
        again = [texts[row] if limit else texts[row].lower() for row in rows]
        tokens = encoder.tokenize(again, limit) if rows else []
        changed = {row: other for row, other in zip(rows, tokens, strict=True) if other != ids[row]}
        if changed:
            vectors = {name: x.copy() for name, x in plain.items()}
            for name, x in _vectors(encoder, list(changed.values()), poolings).items():
                vectors[name][list(changed)] = x
            yield f"{limit} tokens" if limit else "lower case", vectors
    if not is_own:
        return
    with random_kept(encoder.device):
        torch.manual_seed(0)
        yield DROPOUT, _vectors(encoder, ids, poolings[:1], training=True, dtype=torch.bfloat16)
    yield "bf16", _vectors(encoder, ids, poolings[:1], dtype=torch.bfloat16)


@torch.no_grad()
def _vectors(
    encoder: SentenceEncoder,
    ids: list[list[int]],
    poolings: Sequence[str],
    *,
    training: bool = False,
    dtype: torch.dtype | None = None,
) -> dict[str, np.ndarray]:
    """Pooling -> float32 [n, H] of tokenised texts, without any projection. training: with dropout; dtype: of autocast."""
    vectors = {name: np.zeros((len(ids), encoder.backbone.config.hidden_size), np.float32) for name in poolings}
    encoder.training_dtype = dtype
    # weights stay cast, where products are not rounded
    whole = torch.autocast(encoder.device.type, dtype=dtype, enabled=dtype is not None)
    with in_mode(encoder, training=training), whole:
        if dtype is not None:
            encoder.training = True  # of this reader alone, which takes dtype then; its parts, and dropout, stay
        for batch, *inputs in encoder.batches(ids):
            for name, x in encoder.readings(*inputs, poolings).items():
                vectors[name][batch] = x.float().cpu().numpy()
    return vectors


def check_scores(mine: Mapping[str, Any], tasks: Sequence[str]) -> None:
    """Raise ConfigError where no score is given, or one is of another task or no number from -100 to 100."""
    known, are_scores = {*tasks, AVERAGE}, [isinstance(x, int | float) and -100 <= x <= 100 for x in mine.values()]
    if not mine or not set(mine) <= known or not all(are_scores):
        raise ConfigError(f"mine {dict(mine)}: give scores from -100 to 100, x 100, of {', '.join(sorted(known))}.")


def explain(found: pd.DataFrame, mine: Mapping[str, float]) -> pd.DataFrame:
    """The readings by how well they explain a score, the best first.

    A reading's distance is the root mean square of its differences to the scores that are given; each change costs PER_CHANGE
    on top, so that a simple reading stands before a contrived one. A change beside dropout has to halve the distance: less may
    be the work of its random numbers. Readings with the same scores are one row.

    Args:
        found: what `readings` gives. mine: task -> score x 100, or AVERAGE alone.

    Returns:
        cause (what is changed; "" for the papers' reading), points (what that adds to the average), distance, sure (one of
        SURE or "not excluded"), same (other changes that give the same scores), and the scores.
    """
    tasks = [name for name in found if name not in (*AXES, "changes") and not name.startswith("split of ")]
    check_scores(mine, tasks)
    asked = [name for name in mine if name != AVERAGE] or [AVERAGE]
    apart = found[asked] - [mine[name] for name in asked]
    frame = found.assign(cause=causes(found), distance=np.sqrt((apart**2).mean(axis=1)))
    frame["points"] = frame[AVERAGE] - frame.loc[0, AVERAGE]
    weight = frame.changes.where(frame["forward pass"] == DROPOUT, 1)
    frame["cost"] = frame.distance * weight + PER_CHANGE * frame.changes
    frame = frame.sort_values(["changes", "cost"], kind="stable")
    equal = frame[asked].round(3).apply(tuple, axis=1)
    simplest = frame.groupby(equal, sort=False).changes.transform("min")
    frame = frame[frame.changes == simplest]
    groups = frame.groupby(equal, sort=False).cause
    frame["same"] = groups.transform(lambda one: "; ".join(list(one)[1:4]))
    frame = frame.loc[groups.head(1).index].sort_values("cost", kind="stable")
    frame["sure"] = [
        next((word for most, word in SURE.items() if one <= most), "not excluded") for one in frame.distance
    ]
    frame = frame[["cause", "points", "distance", "sure", "same", *tasks]]
    return frame.reset_index(drop=True).rename_axis(columns=None)


def causes(found: pd.DataFrame) -> list[str]:
    """What each reading changes, as text: "pooling mean, not cls"."""
    axes = [name for name in found if name in AXES or name.startswith("split of ")]
    first = found.loc[0, axes]
    return [
        " and ".join(f"{axis}: {row[axis]}, not {first[axis]}" for axis in axes if row[axis] != first[axis])
        for _, row in found[axes].iterrows()
    ]


def _levels(explained: pd.DataFrame, mine: Mapping[str, float], claimed: Mapping[str, float]) -> dict[str, float]:
    """Means over the tasks that were given: of the score, of the papers' reading, of the best one, and what is claimed (NaN where
    the claim has not these tasks)."""
    asked = [name for name in mine if name != AVERAGE] or [AVERAGE]
    tasks = list(explained.columns[explained.columns.get_loc("same") + 1 :])
    claim = np.nan
    if set(asked) <= set(claimed):
        claim = np.mean([claimed[name] for name in asked])
    elif set(asked) == set(tasks) - {AVERAGE}:  # a claim of the average alone
        claim = claimed.get(AVERAGE, np.nan)
    own = explained[explained.cause == ""].iloc[0]
    means = {"own": own[asked].mean(), "best": explained.loc[0, asked].mean()}
    return {"claimed": claim, "got": np.mean([mine[name] for name in asked])} | means


def verdict(explained: pd.DataFrame, mine: Mapping[str, float], claimed: Mapping[str, float]) -> str:
    """A sentence or two: what explains the score, how surely, and what it leaves. claimed: column -> score, may be empty."""
    best, levels = explained.iloc[0], _levels(explained, mine, claimed)
    head = "read as the papers read it, this encoder has {own:.2f}, and you got {got:.2f}"
    if best.sure == "not excluded":
        text = f"No reading explains your score: {head}. The nearest one leaves {{rest:+.2f}} points ({{nearest}})."
    elif best.cause:
        text = f"Your evaluation differs: {head}. Best explanation ({{sure}}): {{nearest}}."
    else:
        text = f"Nothing is wrong with the evaluation: {head} ({{sure}})."
    rest, nearest = levels["got"] - levels["best"], best.cause or "the papers' own"
    text = text.format(**levels, rest=rest, nearest=nearest, sure=best.sure)
    if set(mine) == {AVERAGE}:
        near = int((explained.distance <= 0.1).sum())
        text += f" An average alone fits {near} readings within 0.1: give the tasks to tell them apart."
    apart = levels["claimed"] - levels["own"]
    if abs(apart) >= 0.05:
        text += f" The other {apart:+.2f} points to the {levels['claimed']:.2f} that is claimed are the encoder, not the evaluation."
    return text


def steps(explained: pd.DataFrame, mine: Mapping[str, float], claimed: Mapping[str, float]) -> pd.DataFrame:
    """From what is claimed (else from the papers' reading of the encoder) to the score, for `figures.waterfall`: name, value."""
    levels, cause = _levels(explained, mine, claimed), explained.cause[0]
    lines = [("claimed", levels["claimed"]), ("the encoder itself", levels["own"] - levels["claimed"])]
    if np.isnan(levels["claimed"]):
        lines = [("read as the papers do", levels["own"])]
    lines += [(cause.replace(" and ", "\n"), levels["best"] - levels["own"])] * bool(cause)
    lines += [("not explained", levels["got"] - levels["best"]), ("yours", levels["got"])]
    return pd.DataFrame(lines, columns=["name", "value"])


def demo_tasks() -> list[STSTask]:
    """The demo's pairs as a task for each topic, dev and test as its two subsets; no benchmark."""
    pairs, tasks = pd.read_csv(demo.ASSETS / "similarity.csv"), []
    for topic, some in pairs.groupby("topic"):
        parts = {
            split: Subset(tuple(part.sentence1), tuple(part.sentence2), part.score.to_numpy(float))
            for split, part in some.groupby("split")
        }
        tasks.append(STSTask(str(topic), "all", "demo pairs", parts))
    return tasks
