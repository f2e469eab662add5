"""The one training loop: schedule, dev evaluation, best checkpoint, exact resume, numeric guard."""

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
from torch.amp import GradScaler
from torch.optim import Optimizer
from transformers import get_scheduler

from lib import session
from lib.analysis import geometry
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.data import Batch, STSTask, TokenizedCorpus
from lib.data.sts import POSITIVE_GOLD
from lib.encoders import SentenceEncoder
from lib.encoders.precision import DTYPES
from lib.evaluation.sts import cosine, task_scores
from lib.methods import Method
from lib.paths import sweep, whole_file
from lib.progress import progress

CHECKPOINT_SECONDS = 60.0  # a killed run loses about this much work
CHECKPOINT_SHARE = 0.05  # saving takes at most this share of the time, however large the model or slow the disk
CHECKPOINT_LONGEST = 900.0  # seconds: one slow disk does not end it
TRACE_EVERY = 10  # steps between two geometry measurements while config.trace_until lasts
LENGTH_GROUP = 64  # batches that are sorted by length together, for methods that group lengths
RANDOM = {"cpu": torch, "cuda": torch.cuda, "mps": torch.mps}  # what reads and sets the random state of a device


class NumericError(Exception):
    """A loss term, the gradient or the dev score is not finite; the message names it and the step."""


@dataclass
class State:
    """What changes while training runs, apart from weights, optimiser and random state."""

    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    best_score: float = float("-inf")
    best_step: int = 0
    seconds: float = 0.0  # of all that `train` did, in this process and those that were killed
    commits: list[str] = field(default_factory=list)  # several where a killed run went on with other code


@dataclass
class Trained:
    """What training leaves behind: the method carries the chosen weights. history: a row per step with step, loss, every
    term, what the method logs, learning_rate, gradient_norm (not finite: a step that fp16 left out), dev, alignment,
    uniformity."""

    history: pd.DataFrame
    metrics: dict[str, Any]  # steps, best_step, dev
    state: State


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
    last one if the method needs that (`pretraining`).

    The order of the rows depends on the seed alone; a batch is `config.batch_size` rows over all processes, the last
    partial batch of an epoch is kept (with W processes, its rows beyond a multiple of W are left out).

    Args:
        dev: pairs for the choice of the checkpoint and for alignment and uniformity; None keeps the last step.
        checkpoint: file for exact resume, written about once a minute, read when it exists.
        label: of the progress bar; empty: none is shown.

    Raises:
        NumericError: a loss term, the gradient norm or the dev score is not finite.
        ConfigError: the number of processes does not divide batch_size, chunk_size does not work on this device, or the
            checkpoint cannot be resumed here.
    """
    accelerator = Accelerator(mixed_precision="no")  # precision is the encoder's, whatever `accelerate config` says
    if config.batch_size % accelerator.num_processes:
        raise ConfigError(f"batch_size {config.batch_size} cannot be shared by {accelerator.num_processes} processes.")
    if config.chunk_size and accelerator.device.type == "mps":
        raise ConfigError("chunk_size needs random numbers that can be drawn again, which mps has not: set it to 0.")
    steps_per_epoch = -(-len(corpus) // config.batch_size)
    steps = min(config.epochs * steps_per_epoch, config.max_steps or float("inf"))
    method.to(accelerator.device)
    for module in method.modules():
        if isinstance(module, SentenceEncoder):  # losses stay in float32 whatever the backbone computes in
            module.training_dtype = DTYPES.get(config.precision)
    optimizer, scheduler = _optimizer(method, config, steps)
    scaler = GradScaler(accelerator.device.type, enabled=config.precision == "fp16")
    model = accelerator.prepare_model(method)
    state, best, saved = State(), {}, None
    if checkpoint is not None:
        resumable = {"method": method, "optimizer": optimizer, "scheduler": scheduler}
        resumable |= {"scaler": scaler} if scaler.is_enabled() else {}
        saved = _Checkpoint(checkpoint, resumable, accelerator)
        state, best = saved.load() if checkpoint.exists() else (state, best)
    if session.git_commit() not in state.commits:
        state.commits.append(session.git_commit())

    earlier, started = state.seconds, time.monotonic()
    if state.step == 0 and dev is not None:
        place = (method.encoder.fingerprint(), dev.fingerprint(), str(accelerator.device))
        if place not in _first_metrics:
            _first_metrics[place] = _measure(method, dev, state, accelerator)
        state.rows.append({"step": 0, **_first_metrics[place]})

    bar = progress(total=steps, label=label, enabled=bool(label) and accelerator.is_main_process, initial=state.step)
    ordered_epoch = -1
    while state.step < steps:
        epoch, position = divmod(state.step, steps_per_epoch)
        if epoch != ordered_epoch:
            order, ordered_epoch = _order(corpus, config, epoch, config.needs.pretraining), epoch
        rows = _own_share(order[position * config.batch_size : (position + 1) * config.batch_size], accelerator)
        state.step += 1
        row = {"step": state.step, "learning_rate": scheduler.get_last_lr()[0]}
        if len(rows):
            batch, scale = corpus.batch(rows).to(accelerator.device), scaler.get_scale()
            row |= _step(model, batch, optimizer, scaler, config, state.step)
            method.after_step()
            logged = method.logged()  # gradients as they came back, scaled in fp16
            row |= {name: value / scale if name.endswith("_gradient") else value for name, value in logged.items()}
        scheduler.step()

        is_candidate = state.step % config.eval_every == 0 or state.step == steps
        is_trace = state.step <= config.trace_until and state.step % TRACE_EVERY == 0
        if dev is not None and (is_candidate or is_trace):
            row |= _measure(method, dev, state, accelerator)
            if is_candidate and not config.needs.pretraining and row["dev"] > state.best_score:
                state.best_score, state.best_step = row["dev"], state.step
                best = {k: v.detach().cpu().clone() for k, v in method.kept().state_dict().items()}
        state.rows.append(row)
        state.seconds = earlier + time.monotonic() - started
        bar.update(1, loss=row.get("loss", float("nan")))
        if saved is not None and state.step < steps:
            saved.save_if_due(state, best)
    bar.close()
    if best:
        method.kept().load_state_dict(best)
    best_step, score = (state.best_step, state.best_score) if best else (steps, state.rows[-1].get("dev"))
    metrics = {"steps": steps, "best_step": best_step, "dev": score}
    return Trained(pd.DataFrame(state.rows), metrics, state)


def _optimizer(method: Method, config: RunConfig, steps: int) -> tuple[Optimizer, Any]:
    """AdamW and its schedule."""
    optimizer = torch.optim.AdamW(method.parameter_groups(config), lr=config.learning_rate, fused=True)
    schedule = "linear" if config.schedule == "linear" else "constant_with_warmup"
    warmup = round(config.warmup_ratio * steps)
    return optimizer, get_scheduler(schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)


def _order(corpus: TokenizedCorpus, config: RunConfig, epoch: int, groups_lengths: bool) -> np.ndarray:
    """All rows in the order of this epoch [n], a function of the seed alone. With groups_lengths, every LENGTH_GROUP
    batches are sorted by length, and the batches then shuffled."""
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


def _own_share(rows: np.ndarray, accelerator: Accelerator) -> np.ndarray:
    """The rows of a batch that this process takes; those beyond a multiple of the processes are left out."""
    share = len(rows) // accelerator.num_processes
    return rows[accelerator.process_index * share : (accelerator.process_index + 1) * share]


def _step(
    model: torch.nn.Module, batch: Batch, optimizer: Optimizer, scaler: GradScaler, config: RunConfig, step: int
) -> dict[str, float]:
    """Forward, guard, backward, clip, update; the values of this step for the history. Where a scaled gradient (fp16) is not
    finite, there is no update, and the next scale is smaller."""
    model.train()
    terms = model(batch, config.chunk_size)
    values = dict(zip(terms, torch.stack([t.detach().float() for t in terms.values()]).tolist(), strict=True))
    for name, value in values.items():
        if not np.isfinite(value):
            raise NumericError(
                f"loss term {name!r} is {value} at step {step}: lower learning_rate (now {config.learning_rate:g}) or "
                "raise temperature; nothing after the last checkpoint is kept."
            )
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(sum(terms.values())).backward()
    scaler.unscale_(optimizer)
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip or float("inf")))
    if not np.isfinite(norm) and scaler.get_scale() <= 1:  # 1 where nothing is scaled
        raise NumericError(f"the gradient norm is {norm} at step {step} with loss terms {values}: lower learning_rate.")
    scaler.step(optimizer)
    scaler.update()
    return {"loss": sum(values.values()), **values, "gradient_norm": norm}


def _measure(method: Method, dev: STSTask, state: State, accelerator: Accelerator) -> dict[str, float]:
    """The dev metrics of the encoder, which the first process computes for all."""
    metrics = dev_metrics(method.encoder.encode, dev) if accelerator.is_main_process else {}
    metrics = broadcast_object_list([metrics])[0]  # so that all processes stop
    if not np.isfinite(metrics["dev"]):
        raise NumericError(
            f"the dev score is {metrics['dev']} at step {state.step}: all vectors of {dev.name} dev are equal or not "
            "finite, or its gold scores are; take another backbone, a lower learning_rate, or look at the dev file."
        )
    return metrics


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


class _Checkpoint:
    """One file for exact resume, replaced in one go: a kill at any moment leaves the old one or the new one."""

    def __init__(self, path: Path, resumable: dict[str, Any], accelerator: Accelerator) -> None:
        self.path, self.resumable, self.accelerator = path, resumable, accelerator
        self.saved, self.seconds = time.monotonic(), 0.0  # when, and how long it took

    def save_if_due(self, state: State, best: dict[str, Tensor]) -> None:
        pause = min(max(CHECKPOINT_SECONDS, self.seconds / CHECKPOINT_SHARE), CHECKPOINT_LONGEST)
        before = time.monotonic()
        if broadcast_object_list([before - self.saved >= pause])[0]:  # clocks differ: the first process decides
            self.save(state, best)
            self.saved = time.monotonic()
            self.seconds = self.saved - before

    def save(self, state: State, best: dict[str, Tensor]) -> None:
        device = self.accelerator.device.type
        random_states = {name: RANDOM[name].get_rng_state() for name in {"cpu", device}}
        content = {"progress": vars(state), "best": best, "device": device}
        content["random"] = gather_object([random_states])  # of all processes
        if self.accelerator.is_main_process:
            with whole_file(self.path) as new:
                torch.save(content | {name: part.state_dict() for name, part in self.resumable.items()}, new)
        self.accelerator.wait_for_everyone()

    def load(self) -> tuple[State, dict[str, Tensor]]:
        """State and best weights; method, optimizer, scheduler and random state are set. Raises ConfigError where the file
        is damaged, of another version of this code, or written by another number of processes or on another device."""
        present = self.accelerator.num_processes, self.accelerator.device.type
        try:
            sweep(self.path)
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            written, state = (len(content["random"]), content["device"]), State(**content["progress"])
            if written == present:
                for name, part in self.resumable.items():
                    part.load_state_dict(content[name])
                for device, random_state in content["random"][self.accelerator.process_index].items():
                    RANDOM[device].set_rng_state(random_state)
        except Exception as error:  # no torch file, one that was cut, or one of another version of this code
            why = f"is damaged, or of another version of this code ({type(error).__name__})"
            raise ConfigError(f"{self.path} {why}: delete it, and training begins anew.") from error
        if written != present:
            why = f"was written by {written[0]} process(es) on {written[1]}, this is {present[0]} on {present[1]}"
            raise ConfigError(f"{self.path} {why}: resume as it was started, or delete the file.")
        return state, dict(content["best"])
