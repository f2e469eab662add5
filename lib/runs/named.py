"""Encoders by the names that people give: a folder, an ensemble, a run, or a model of the hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib import paths
from lib.checks import ConfigError
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.pooling import POOLINGS
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
    runs = [
        Run(place) for place in places if (place / "config.yaml").is_file() and not (place / "config.json").exists()
    ]
    run = next(iter(runs), None)
    if run and not run.is_finished:
        raise ConfigError(f"{run.folder} is a run without metrics.json: it was cut or copied in part, train it again.")
    return run


def open_encoders(names: Sequence[str], **options: Any) -> dict[str, SentenceEncoder | ensemble.EncoderSum]:
    """What tables call them -> encoders; see `open_encoder`. Two with one name, such as runs that differ in an argument,
    have what was given behind it.

    Raises:
        ConfigError: no name, or one twice; and as `open_encoder`.
    """
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"encoders {list(names)}: name at least one, and each of them once.")
    opened = {}
    for name in names:
        called, encoder = open_encoder(name, **options)
        opened[f"{called}, {name}" if called in opened else called] = encoder
    return opened


def open_encoder(
    name: str, *, pooling: str | None = None, **options: Any
) -> tuple[str, SentenceEncoder | ensemble.EncoderSum]:
    """What tables call an encoder, and the encoder, in evaluation mode.

    Args:
        name: folder of an encoder or of an ensemble, folder or id of a run, hub name, or `demo`; `:mean` behind it
            chooses the pooling.
        pooling: one of POOLINGS; None takes what the encoder was saved with, else `cls`.
        options: as in SentenceEncoder.from_pretrained.

    Raises:
        ConfigError: two poolings, or a run that was not finished.
        DataError: a run that was cut or changed since.
        EncoderError: no such encoder, or it cannot be loaded.
    """
    place, _, last = name.rpartition(":")
    if place and last in POOLINGS:
        if pooling not in (None, last):
            raise ConfigError(f"{name} asks for the pooling {last}, and another place for {pooling}: keep one of them.")
        name, pooling = place, last
    run = find_run(name)
    if run is None:
        encoder, called = ensemble.load(name, pooling=pooling, **options), encoder_name(name)
    else:
        encoder = run.encoder(pooling=pooling, **options)
        called = f"{run.labels['method']}, {run.labels['backbone']}, seed {run.labels['seed']}"
    read = dict.fromkeys(part.pooling for part in ensemble.parts(encoder))
    return f"{called} ({', '.join(read)})", encoder.eval()
