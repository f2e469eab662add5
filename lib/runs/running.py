"""Train a run, or find it in the store."""

import os
import shutil
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import yaml
from accelerate.utils import set_seed

from lib import paths, session
from lib.checks import DataError
from lib.config import RunConfig
from lib.data import tokenize_corpus
from lib.distributed import processes
from lib.encoders.precision import DTYPES, is_rounded
from lib.encoders.saved import write_json
from lib.methods import Method
from lib.runs.card import CARD, model_card
from lib.runs.prepare import Prepared, Shared, build, check_machine, encoder_name, prepare
from lib.runs.store import Run
from lib.training import Trained, train

FILES = {"config.yaml", "metrics.json", "provenance.json", "history.csv", "encoder", "results"}  # of a run


def find(config: RunConfig, shared: Shared | None = None) -> Run | None:
    """The finished run with this configuration, if the store has it. Raises as `prepare` does."""
    stored = Run(paths.runs() / config.profile / prepare(config, shared=shared).id, config)
    return stored if stored.is_finished else None


def run(config: RunConfig, *, label: str = "train") -> Run:
    """The finished run with this configuration: from the store, or trained now; a killed one resumes exactly.

    Two processes that ask for the same run do not train it twice: the second waits and takes the result. Under
    `accelerate launch` all processes call this and train together. label: of the progress bar.

    Raises:
        ConfigError, DataError, EncoderError: before training starts; DataError also when the disk is full.
        lib.training.NumericError: a loss term is not finite.
    """
    prepared = prepare(config)
    stored = Run(paths.runs() / config.profile / prepared.id, config)
    working = paths.runs() / ".unfinished" / prepared.id
    if stored.is_finished:
        shutil.rmtree(working, ignore_errors=True)  # of a process that was killed just when it had finished
        return stored
    check_machine(config, prepared.encoder, prepared.corpus, columns=len(prepared.corpus.roles))
    group = processes()
    if group.is_main_process:
        _check_place(stored.folder)
    waiting = f"another process is at work on run {stored.id}: waiting for it."
    with paths.locked(working, waiting=waiting) if group.is_main_process else nullcontext():
        if group.is_main_process:
            paths.sweep(stored.folder)
        group.wait_for_everyone()
        if not stored.is_finished:
            method, trained = _train(config, prepared, working / "checkpoint.pt", label)
            if group.is_main_process:
                _finish(stored.folder, config, prepared, method, trained)
                shutil.rmtree(working, ignore_errors=True)
            group.wait_for_everyone()
    return stored


def _check_place(folder: Path) -> None:
    """Raise DataError where the store cannot be written, or a file of the user's would be lost when the run is trained."""
    paths.check_writable(folder.parent)
    if os.path.lexists(folder) and not folder.is_dir():
        raise DataError(f"{folder} is in the way of the run of this name: move it.")
    if strangers := sorted(path.name for path in folder.glob("[!.]*") if path.name not in FILES):
        raise DataError(f"{folder / strangers[0]} lies where a run is to be trained again: move it, it would be lost.")


def _train(config: RunConfig, prepared: Prepared, checkpoint: Path, label: str) -> tuple[Method, Trained]:
    """The method, trained from its seed, or from the checkpoint that a killed process left."""
    corpus, encoder, index = prepared.corpus, prepared.encoder, processes().process_index
    set_seed(config.seed)  # the heads that a method adds are drawn with it, equal on all processes
    method = build(config, encoder)
    if index:
        set_seed(config.seed + 1000 * index)  # but every process has its own dropout masks
    tokens = tokenize_corpus(corpus, encoder, max_length=config.max_length, split=config.needs.pretraining)
    tokens = replace(tokens, extra=method.row_data(corpus, config.max_length))
    return method, train(method, tokens, config, dev=prepared.dev, checkpoint=checkpoint, label=label)


def _finish(folder: Path, config: RunConfig, prepared: Prepared, method: Method, trained: Trained) -> None:
    rounded = is_rounded(processes().device, DTYPES.get(config.precision))
    with paths.whole_folder(folder) as path:
        method.save(path / "encoder")
        (path / "config.yaml").write_text(yaml.safe_dump(config.as_dict(), sort_keys=False), encoding="utf8")
        trained.history.to_csv(path / "history.csv", index=False)
        provenance = {
            "corpus": prepared.corpus.name,
            "rows": len(prepared.corpus),
            "backbone": encoder_name(config.backbone),
            "checksums": prepared.checksums,
            "seconds": round(trained.state.seconds, 3),
            "processes": processes().num_processes,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "device": session.device_name() + (", bf16 by rounding" if rounded else ""),
            "commit": ", ".join(trained.state.commits),
            "versions": session.versions(),
        }
        write_json(path / "provenance.json", provenance)
        write_json(path / "metrics.json", trained.metrics)
        (path / "encoder" / CARD).write_text(model_card(Run(path), name=folder.name), encoding="utf8")
