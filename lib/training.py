"""The one training loop: schedule, dev evaluation, best checkpoint, exact resume, numeric guard."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from transformers import get_scheduler

from lib import session
from lib.analysis import geometry
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.data import Batch, STSTask, TokenizedCorpus
from lib.data.sts import POSITIVE_GOLD
from lib.encoders import SentenceEncoder
from lib.evaluation.sts import cosine, task_scores
from lib.methods import Method
from lib.paths import sweep, whole_file
from lib.progress import progress

CHECKPOINT_SECONDS = 60.0  # a killed run loses about this much work
CHECKPOINT_SHARE = 0.05  # saving takes at most this share of the time, however large the model or slow the disk,
CHECKPOINT_LONGEST = 900.0  # unless more than this would be lost: one slow save (a laptop that slept) is no reason
TRACE_EVERY = 10  # steps between two geometry measurements while config.trace_until lasts
LENGTH_GROUP = 64  # batches that are sorted by length together, for methods that group lengths
RANDOM = {"cpu": torch, "cuda": torch.cuda, "mps": torch.mps}  # what reads and sets the random state of a device


class NumericError(Exception):
    """A loss term, the gradient or the dev score is not finite; the message names it and the step."""


@dataclass
class Progress:
    """What changes while training runs, apart from weights, optimiser and random state."""

    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    best_score: float = float("-inf")
    best_step: int = 0
    seconds: float = 0.0  # of all that `train` did, in this process and those that were killed
    dev_seconds: float = 0.0  # of it for dev evaluations
    commits: list[str] = field(default_factory=list)  # several where a killed run went on with other code


@dataclass
class Trained:
    """What training leaves behind: the method carries the chosen weights."""

    # per step: step, loss, every term, what the method logs, learning_rate, gradient_norm, dev, alignment, uniformity
    history: pd.DataFrame
    metrics: dict[str, Any]  # steps, best_step, dev
    progress: Progress


_first_metrics: dict[tuple[str, ...], dict[str, float]] = {}  # of encoders before training: runs share them


def train(
    method: Method,
    corpus: TokenizedCorpus,
    config: RunConfig,
    *,
    dev: STSTask | None,
    checkpoint: Path | None = None,
    label: str = "",
) -> Trained:
    """Train `method` in place and leave it with the weights of the best dev step (strictly better replaces), or of the
    last one if the method needs that (`keeps_last`).

    The order of the rows depends on the seed alone; a batch is `config.batch_size` rows over all processes, the last
    partial batch of an epoch is kept (with W processes, its rows beyond a multiple of W are left out).

    Args:
        method: on CPU; moved to the device of this process.
        corpus: token ids.
        dev: pairs for the choice of the checkpoint and for alignment and uniformity; None keeps the last step.
        checkpoint: file for exact resume, written about once a minute, read when it exists.
        label: of the progress bar; empty: none is shown.

    Raises:
        NumericError: a loss term or the gradient norm is not finite.
        ConfigError: batch_size does not fit the corpus or the number of processes, or the checkpoint is another run's.
    """
    needs = config.needs
    accelerator = Accelerator(mixed_precision="no")  # precision is the encoder's, whatever `accelerate config` says
    world, batch_size = accelerator.num_processes, config.batch_size
    if len(corpus) < batch_size:
        raise ConfigError(f"the corpus has {len(corpus)} rows, less than one batch of {batch_size}: lower batch_size.")
    if batch_size % world:
        raise ConfigError(f"batch_size {batch_size} cannot be divided among {world} processes.")
    steps_per_epoch = -(-len(corpus) // batch_size)
    steps = min(config.epochs * steps_per_epoch, config.max_steps or float("inf"))
    method.to(accelerator.device)
    for module in method.modules():
        if isinstance(module, SentenceEncoder):  # losses stay in float32 whatever the backbone computes in
            module.training_dtype = torch.bfloat16 if config.precision == "bf16" else None
    optimizer = torch.optim.AdamW(method.parameter_groups(config), lr=config.learning_rate, fused=True)
    schedule = "linear" if config.schedule == "linear" else "constant_with_warmup"
    warmup = round(config.warmup_ratio * steps)
    scheduler = get_scheduler(schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    model = accelerator.prepare_model(method)
    resumable = {"method": method, "optimizer": optimizer, "scheduler": scheduler}
    state, best = Progress(), {}
    if checkpoint is not None and checkpoint.exists():
        state, best = _load(checkpoint, resumable, accelerator)
        if best and set(best) != set(method.kept().state_dict()):
            raise ConfigError(f"{checkpoint} was written by another version of this code: delete it.")
    if session.git_commit() not in state.commits:
        state.commits.append(session.git_commit())

    def measure() -> dict[str, float]:
        """The dev metrics of the encoder, which the first process computes for all."""
        before = time.monotonic()
        metrics = dev_metrics(method.encoder.encode, dev) if accelerator.is_main_process else {}
        state.dev_seconds += time.monotonic() - before
        metrics = broadcast_object_list([metrics])[0]  # so that all processes stop
        if not np.isfinite(metrics["dev"]):
            raise NumericError(
                f"the dev score is {metrics['dev']} at step {state.step}: all vectors of {dev.name} dev are equal or not "
                "finite, or its gold scores are; take another backbone, a lower learning_rate, or look at the dev file."
            )
        return metrics

    started = saved = time.monotonic()
    if state.step == 0 and dev is not None:
        place = (method.encoder.fingerprint(), dev.fingerprint(), str(accelerator.device))
        if place not in _first_metrics:
            _first_metrics[place] = measure()
        state.rows.append({"step": 0, **_first_metrics[place]})

    save_seconds = 0.0
    bar = progress(total=steps, label=label, enabled=bool(label) and accelerator.is_main_process, initial=state.step)
    ordered_epoch = -1
    while state.step < steps:
        epoch, position = divmod(state.step, steps_per_epoch)
        if epoch != ordered_epoch:
            order, ordered_epoch = _order(corpus, config, epoch, needs.groups_lengths), epoch
        rows = order[position * batch_size : (position + 1) * batch_size]
        share = len(rows) // world
        rows = rows[accelerator.process_index * share : (accelerator.process_index + 1) * share]
        state.step += 1
        row = {"step": state.step, "learning_rate": scheduler.get_last_lr()[0]}
        if share:
            batch = corpus.batch(rows).to(accelerator.device)
            row |= _step(model, batch, optimizer, config, state.step)
            method.after_step()
            row |= method.logged()
        scheduler.step()

        is_candidate = state.step % config.eval_every == 0 or state.step == steps
        is_trace = state.step <= config.trace_until and state.step % TRACE_EVERY == 0
        if dev is not None and (is_candidate or is_trace):
            row |= measure()
            if is_candidate and not needs.keeps_last and row["dev"] > state.best_score:
                state.best_score, state.best_step = row["dev"], state.step
                best = {k: v.detach().cpu().clone() for k, v in method.kept().state_dict().items()}
        state.rows.append(row)
        bar.update(1, loss=row.get("loss", float("nan")))
        if checkpoint is not None and state.step < steps:
            pause = min(max(CHECKPOINT_SECONDS, save_seconds / CHECKPOINT_SHARE), CHECKPOINT_LONGEST)
            is_due = time.monotonic() - saved >= pause
            if broadcast_object_list([is_due])[0]:  # the clocks of the processes differ: the first one decides
                state.seconds += time.monotonic() - started
                started = time.monotonic()
                _save(checkpoint, state, best, resumable, accelerator)
                saved = time.monotonic()
                save_seconds = saved - started
    bar.close()
    state.seconds += time.monotonic() - started
    if best:
        method.kept().load_state_dict(best)
    best_step, score = (state.best_step, state.best_score) if best else (steps, state.rows[-1].get("dev"))
    metrics = {"steps": steps, "best_step": best_step, "dev": score}
    return Trained(pd.DataFrame(state.rows), metrics, state)


def _order(corpus: TokenizedCorpus, config: RunConfig, epoch: int, groups_lengths: bool) -> np.ndarray:
    """All rows in the order of this epoch [n], a function of the seed alone.

    With groups_lengths, every LENGTH_GROUP batches are sorted by length, and the batches then shuffled.
    """
    random = np.random.default_rng([config.seed, epoch])
    order = random.permutation(len(corpus))
    if groups_lengths:
        lengths = corpus.lengths().sum(1)
        block = LENGTH_GROUP * config.batch_size
        blocks = [order[i : i + block] for i in range(0, len(order), block)]
        order = np.concatenate([rows[np.argsort(lengths[rows], kind="stable")] for rows in blocks])
        full = len(order) // config.batch_size * config.batch_size  # the last partial batch stays the last
        batches = order[:full].reshape(-1, config.batch_size)
        order = np.concatenate([batches[random.permutation(len(batches))].ravel(), order[full:]])
    return order


def _step(
    model: torch.nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, config: RunConfig, step: int
) -> dict[str, float]:
    """Forward, guard, backward, clip, update; the values of this step for the history."""
    model.train()
    terms = model(batch)
    values = dict(zip(terms, torch.stack([t.detach().float() for t in terms.values()]).tolist(), strict=True))
    for name, value in values.items():
        if not np.isfinite(value):
            raise NumericError(
                f"loss term {name!r} is {value} at step {step}: lower learning_rate (now {config.learning_rate:g}) or "
                "raise temperature; nothing after the last checkpoint is kept."
            )
    optimizer.zero_grad(set_to_none=True)
    sum(terms.values()).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip or float("inf")))
    if not np.isfinite(norm):
        raise NumericError(f"the gradient norm is {norm} at step {step} with loss terms {values}: lower learning_rate.")
    optimizer.step()
    return {"loss": sum(values.values()), **values, "gradient_norm": norm}


def dev_metrics(encode: Callable[[list[str]], np.ndarray], task: STSTask) -> dict[str, float]:
    """dev (Spearman x100, all), alignment (pairs with gold above 4) and uniformity (all sentences) of one task."""
    vectors = encode([*task.sentences1, *task.sentences2])
    first, second = np.split(vectors, 2)
    positive = task.gold > POSITIVE_GOLD
    return {
        "dev": task_scores(task, cosine(first, second))["all"],
        "alignment": float(geometry.alignment(first[positive], second[positive])),
        "uniformity": float(geometry.uniformity(vectors)),
    }


def _save(
    path: Path, state: Progress, best: dict[str, Tensor], resumable: dict[str, Any], accelerator: Accelerator
) -> None:
    """One file, replaced in one go: a kill at any moment leaves the old one or the new one."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    random_states = {device: RANDOM[device].get_rng_state() for device, is_there in present.items() if is_there}
    content = {"progress": vars(state), "best": best, "device": accelerator.device.type}
    content["random"] = gather_object([random_states])  # of all processes
    if accelerator.is_main_process:
        with whole_file(path) as new:
            torch.save(content | {name: part.state_dict() for name, part in resumable.items()}, new)
    accelerator.wait_for_everyone()


def _load(path: Path, resumable: dict[str, Any], accelerator: Accelerator) -> tuple[Progress, dict[str, Tensor]]:
    present = accelerator.num_processes, accelerator.device.type
    try:
        sweep(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        written = len(content["random"]), content["device"]
        state = Progress(**content["progress"])
        if written == present:
            for name, part in resumable.items():
                part.load_state_dict(content[name])
            for device, random_state in content["random"][accelerator.process_index].items():
                RANDOM[device].set_rng_state(random_state)
            return state, dict(content["best"])
    except Exception as error:  # no torch file, one that was cut, or one that holds something else
        raise ConfigError(
            f"{path} is damaged ({type(error).__name__}): delete it, and training begins anew."
        ) from error
    raise ConfigError(
        f"{path} was written by {written[0]} process(es) on {written[1]}, this is {present[0]} on {present[1]}: resume as it "
        "was started, or delete the file."
    )
