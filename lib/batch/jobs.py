"""Which notebook runs with which parameters, and where the executed notebook goes."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from lib import paths
from lib.batch.parameters import check, declared, read_assignment, read_file, read_text
from lib.checks import ConfigError, check_choice, check_range, fit

SWEEP = {"notebook": str, "base": str, "parameters": dict, "grid": dict[str, list], "runs": list[dict]}
MOST_COMBINATIONS = 10_000  # of a sweep
LONGEST_VALUES = LONGEST_STEMS = 100  # bytes in the name of an output: of the values, and of the files that gave them


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
    return _file_name("-".join(f"{name}={value}" for name, value in values.items()), LONGEST_VALUES)


def _file_name(plain: str, longest: int) -> str:
    safe = re.sub(r"[^\w.+=-]+", "_", plain)  # without commas, which separate what Snakemake hands to a job
    short = safe.encode()[:longest].decode(errors="ignore")
    return short if short == plain else f"{short}-{hashlib.sha256(os.fsencode(plain)).hexdigest()[:8]}"


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
        ConfigError: a file, a name or a type is wrong.
        DataError: `output` cannot be written.
    """
    kinds, defaults = declared(notebook)
    from_files, given = {}, {}
    for path in files:
        from_files |= check(kinds, read_file(path), str(path))
    for text in texts:
        given |= check(kinds, read_text(text, "the text after -y"), "-y")
    for text in assignments:
        given |= check(kinds, read_assignment(kinds, text), "-p")
    if output:
        _check_output(output, notebook)
    stems = "-".join([notebook.stem, *(path.stem for path in files if path.stem != notebook.stem)])
    stems = stems if len(os.fsencode(stems)) <= LONGEST_STEMS else _file_name(stems, LONGEST_STEMS)
    name = f"{stems}-{_readable(given)}" if given else stems
    return _job(notebook, defaults, from_files | given, name, output)


def _check_output(output: Path, notebook: Path) -> None:
    if str(output) == "-":
        raise ConfigError("-o -: an executed notebook goes into a file, name one.")
    if os.path.realpath(output) == os.path.realpath(notebook):
        raise ConfigError(f"-o {output} is the notebook itself: choose another file.")
    with suppress(FileNotFoundError, NotADirectoryError):
        output.lstat()  # a name that is too long shows
        if not ending(output) and not _was_killed(output):
            raise ConfigError(f"-o {output} is there already and is no executed notebook: choose another file.")
    paths.check_writable(output.parent)


def ending(path: Path) -> dict[str, Any] | None:
    """How the executed notebook in a file ended, as `lib.batch.execute` wrote it: status, reason, seconds, parameters.
    None for any other file."""
    try:
        how = dict(_metadata(path)["batch"])
        for name, kind in (("status", str), ("reason", str), ("seconds", float), ("parameters", str)):
            how[name] = fit(name, kind, how.get(name, ""))
        check_range("seconds", how["seconds"], 0, 1e9)
        return how
    except Exception:  # nbformat raises many kinds; a folder, a text, a cut notebook, somebody else's
        return None


def _was_killed(output: Path) -> bool:
    """Whether a file is the output of a command that was killed before it could write how it ended."""
    try:
        started = _metadata(output)["papermill"]
        return started["end_time"] is None and os.path.realpath(started["output_path"]) == os.path.realpath(output)
    except Exception:
        return False


def _metadata(path: Path) -> Any:
    if not path.is_file():  # reading a pipe would wait for ever
        raise FileNotFoundError(path)
    return nbformat.read(path, as_version=4).metadata


def _job(notebook: Path, defaults: dict[str, Any], overrides: dict[str, Any], name: str, output: Path | None) -> Job:
    parameters = defaults | overrides
    if "profile" in parameters:  # names a folder
        check_choice("profile", parameters["profile"], paths.PROFILES)
    if output is None:
        output = folder(parameters.get("profile")) / f"{name}.ipynb"
        if _is_the_users(output):
            raise ConfigError(f"{output} is there already and is no executed notebook: move it, its place is needed.")
    return Job(notebook, overrides, parameters, output)


def _is_the_users(output: Path) -> bool:
    """Whether something is at the usual place of an output that no command of ours wrote. A notebook that was cut is what
    a kill in the midst of writing left."""
    if not os.path.lexists(output):
        return False
    if output.is_symlink() or not output.is_file():
        return True
    with output.open("rb") as file:
        start = file.read(2**12)
    try:
        metadata = _metadata(output)
    except Exception:  # of many kinds
        return bool(start) and not (start.startswith(b"{") and b'"cells"' in start)
    return "papermill" not in metadata and "batch" not in metadata


def expand(sweep: Path) -> list[Job]:
    """The jobs of a sweep file (see `python -m lib.batch --help`): the grid, then the runs, in their order.

    Raises:
        ConfigError: the file, or one of its combinations, is wrong.
    """
    spec = check(SWEEP, read_file(sweep), str(sweep), what="entry")
    if "notebook" not in spec:
        raise ConfigError(f"{sweep}: write `notebook: notebooks/name.ipynb`.")
    grid = spec.get("grid", {})
    if empty := [name for name, values in grid.items() if not values]:
        raise ConfigError(f"{sweep}: the list of values for {empty[0]} is empty; give at least one.")
    if (count := math.prod(map(len, grid.values())) + len(spec.get("runs", []))) > MOST_COMBINATIONS:
        raise ConfigError(f"{sweep} has {count:,} combinations, at most {MOST_COMBINATIONS:,} are taken: split it.")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()) if values]
    combinations += spec.get("runs", [])
    if not combinations:
        raise ConfigError(f"{sweep} has no combinations: give it a grid or runs.")

    notebook = paths.root() / spec["notebook"]
    kinds, defaults = declared(notebook)
    base = check(kinds, read_file(paths.root() / spec["base"]), spec["base"]) if "base" in spec else {}
    base |= check(kinds, spec.get("parameters", {}), f"{sweep}, parameters")
    jobs, folder_name = {}, _file_name(sweep.stem, LONGEST_STEMS)
    for combination in combinations:
        name = _readable(combination) or "defaults"
        overrides = base | check(kinds, combination, f"{sweep}, {name}")
        jobs[name] = _job(notebook, defaults, overrides, f"{folder_name}/{name}", None)
    return list(jobs.values())
