"""Which notebook runs with which parameters, and where the executed notebook goes."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from lib import paths
from lib.batch.parameters import check, declared, read_assignment, read_file, read_text
from lib.checks import ConfigError, check_choice

SWEEP = {"notebook": str, "base": str, "parameters": dict, "grid": dict[str, list], "runs": list[dict]}
MOST_COMBINATIONS = 10_000  # of a sweep
LONGEST_NAME = 100  # bytes of the values in the name of an output


@dataclass(frozen=True)
class Job:
    """One notebook to execute; `overrides` go to papermill, `parameters` is all the notebook then has."""

    notebook: Path
    overrides: dict[str, Any]
    parameters: dict[str, Any]
    output: Path


def folder(profile: str | None) -> Path:
    """The executed notebooks of a profile."""
    return paths.runs() / "notebooks" / (profile or "demo")


def _readable(values: Mapping[str, Any]) -> str:
    """seed=3-temperature=0.05, with a digest where that is no file name."""
    return _file_name("-".join(f"{name}={value}" for name, value in values.items()))


def _file_name(plain: str) -> str:
    safe = re.sub(r"[^\w.+=-]+", "_", plain)  # without commas, which separate what Snakemake hands to a job
    short = safe.encode()[:LONGEST_NAME].decode(errors="ignore")
    return short if short == plain else f"{short}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def single(
    notebook: Path,
    *,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    assignments: Sequence[str] = (),
    output: Path | None = None,
) -> Job:
    """One job: parameter files, then YAML texts, then `name=value`; later ones win, as in papermill.

    Raises:
        ConfigError: a file, a name or a type is wrong, or a file of the user's is at the place of the output.
    """
    kinds, defaults = declared(notebook)
    from_files, given = {}, {}
    for path in files:
        from_files |= check(kinds, read_file(path), str(path))
    for text in texts:
        given |= check(kinds, read_text(text, "the text after -y"), "-y")
    for text in assignments:
        given |= check(kinds, read_assignment(kinds, text), "-p")
    stems = "-".join([notebook.stem, *(path.stem for path in files if path.stem != notebook.stem)])
    name = f"{stems}-{_readable(given)}" if given else stems
    return _job(notebook, defaults, from_files | given, name, output)


def ending(path: Path) -> dict[str, Any]:
    """How the executed notebook in a file ended, as `lib.batch.execute` wrote it: status, reason, seconds, parameters.
    Empty for any other file."""
    return dict(_metadata(path).get("batch", {}))


def _metadata(path: Path) -> dict[str, Any]:
    """What a notebook says about itself; empty for any other file."""
    try:
        return nbformat.read(path, as_version=4).metadata
    except Exception:  # nbformat raises many kinds
        return {}


def _job(notebook: Path, defaults: dict[str, Any], overrides: dict[str, Any], name: str, output: Path | None) -> Job:
    parameters = defaults | overrides
    if "profile" in parameters:  # names a folder
        check_choice("profile", parameters["profile"], paths.PROFILES)
    output = output or folder(parameters.get("profile")) / f"{name}.ipynb"
    is_ours = paths.runs() / "notebooks" in output.parents  # what is there may be half a notebook, after a kill
    if not is_ours and os.path.lexists(output) and not {"papermill", "batch"} & {*_metadata(output)}:
        raise ConfigError(f"-o {output} is there already and is no executed notebook: choose another file.")
    return Job(notebook, overrides, parameters, output)


def expand(sweep: Path) -> list[Job]:
    """The jobs of a sweep file (see `python -m lib.batch --help`): the grid, then the runs, in their order.

    Raises:
        ConfigError: the file, or one of its combinations, is wrong.
    """
    spec = check(SWEEP, read_file(sweep), str(sweep), what="entry")
    if "notebook" not in spec:
        raise ConfigError(f"{sweep}: write `notebook: notebooks/name.ipynb`.")
    grid = spec.get("grid", {})
    if (count := math.prod(map(len, grid.values())) + len(spec.get("runs", []))) > MOST_COMBINATIONS:
        raise ConfigError(f"{sweep} has {count:,} combinations, at most {MOST_COMBINATIONS:,} are taken: split it.")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()) if values]
    combinations += spec.get("runs", [])
    if not combinations or not all(grid.values()):
        raise ConfigError(f"{sweep} has no combinations: give it runs, or a grid with values for every name.")

    notebook = paths.root() / spec["notebook"]
    kinds, defaults = declared(notebook)
    base = check(kinds, read_file(paths.root() / spec["base"]), spec["base"]) if "base" in spec else {}
    base |= check(kinds, spec.get("parameters", {}), f"{sweep}, parameters")
    jobs, folder_name = {}, _file_name(sweep.stem)
    for combination in combinations:
        name = _readable(combination) or "defaults"
        overrides = base | check(kinds, combination, f"{sweep}, {name}")
        jobs[name] = _job(notebook, defaults, overrides, f"{folder_name}/{name}", None)
    return list(jobs.values())
