"""Encoders by the names that people give: a folder, an ensemble, a run, or a model of the hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lib import paths
from lib.checks import ConfigError
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.pooling import POOLINGS
from lib.runs.measure import pooling_of
from lib.runs.prepare import encoder_name
from lib.runs.store import Run


def find_run(name: str) -> Run | None:
    """The finished run of this folder, of this id in the store, or whose encoder this folder is; None where there is none.

    Raises:
        ConfigError: the folder is a run that was not finished.
    """
    places = [paths.expanded(name), paths.root() / name]
    if len(Path(name).parts) == 1:
        places += [paths.runs() / profile / name for profile in paths.PROFILES]
    places = [place.parent if place.name == "encoder" else place for place in map(Path, map(os.path.realpath, places))]
    of_runs = (place for place in places if (place / "config.yaml").is_file() and not (place / "config.json").exists())
    run = next(map(Run, of_runs), None)
    if run and not run.is_finished:
        raise ConfigError(f"{run.folder} is a run without metrics.json: it was cut or copied in part, train it again.")
    return run


def open_encoders(names: Sequence[str]) -> dict[str, SentenceEncoder | ensemble.EncoderSum]:
    """What tables call them -> encoders, in evaluation mode. Two with one name, such as runs that differ in an argument,
    have what was given behind it.

    Args:
        names: folder of an encoder or of an ensemble, folder or id of a run, hub name, or `demo`; `:mean` behind it chooses
            one of POOLINGS, else it is what the encoder was saved with, else `cls`.

    Raises:
        ConfigError: no name, or one twice; or a run that was not finished.
        EncoderError: no such encoder, or it cannot be loaded.
    """
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"encoders {list(names)}: name at least one, and each of them once.")
    opened = {}
    for name in names:
        place, _, last = name.rpartition(":")
        place, how = (place, last) if place and last in POOLINGS else (name, None)
        run = find_run(place)
        encoder = run.encoder(pooling=how) if run else ensemble.load(place, pooling=how)
        called = (
            f"{run.labels['method']}, {run.labels['backbone']}, seed {run.labels['seed']}"
            if run
            else encoder_name(place)
        )
        called = f"{called} ({pooling_of(encoder)})"
        opened[f"{called}, {name}" if called in opened else called] = encoder.eval()
    return opened
