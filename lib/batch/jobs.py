"""Which notebook runs with which parameters, and where the executed notebook goes."""

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from lib import paths
from lib.batch.parameters import check, declared, read_assignment, read_file, read_text
from lib.checks import ConfigError, check_choice

SWEEP = {"notebook": str, "base": str, "parameters": dict, "grid": dict[str, list]}
LONGEST_NAME = 100  # bytes of the values in the name of an output


@dataclass(frozen=True)
class Job:
    """One notebook to execute, with a value for every parameter that it declares."""

    notebook: Path
    parameters: dict[str, Any]
    output: Path


def folder(profile: str | None) -> Path:
    """The executed notebooks of a profile."""
    return paths.runs() / "notebooks" / (profile or "demo")


def metadata(path: Path) -> dict[str, Any]:
    """Of a notebook: under `batch` how it ended, under `papermill` parameters and seconds. Empty for any other file."""
    try:
        return nbformat.read(path, as_version=4).metadata
    except Exception:  # nbformat raises many kinds
        return {}


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
    job = _job(notebook, defaults | from_files | given, f"{stems}-{_readable(given)}" if given else stems)
    if output is None:
        return job
    is_ours = paths.runs() / "notebooks" in output.parents  # what is there may be half a notebook, after a kill
    if output.exists() and not is_ours and "papermill" not in metadata(output):
        raise ConfigError(f"-o {output} is there already and is no executed notebook: choose another file.")
    return Job(notebook, job.parameters, output)


def expand(sweep: Path) -> list[Job]:
    """The jobs of a sweep file (see `python -m lib.batch --help`); ConfigError when it, or a combination, is wrong."""
    spec = {"grid": {}, "parameters": {}} | check(SWEEP, read_file(sweep), str(sweep), what="entry")
    if "notebook" not in spec:
        raise ConfigError(f"{sweep}: write `notebook: notebooks/name.ipynb`.")
    grid = spec["grid"]
    if not grid or not all(grid.values()):
        raise ConfigError(f"{sweep} has no combinations: give it a grid with values for every name.")

    notebook = paths.root() / spec["notebook"]
    kinds, parameters = declared(notebook)
    if "base" in spec:
        parameters |= check(kinds, read_file(paths.root() / spec["base"]), spec["base"])
    parameters |= check(kinds, spec["parameters"], f"{sweep}, parameters")
    jobs = {}
    for values in itertools.product(*grid.values()):
        combination = dict(zip(grid, values, strict=True))
        name = _readable(combination)
        changed = check(kinds, combination, f"{sweep}, {name}")
        jobs[name] = _job(notebook, parameters | changed, f"{_file_name(sweep.stem)}/{name}")
    return list(jobs.values())


def _job(notebook: Path, parameters: dict[str, Any], name: str) -> Job:
    if "profile" in parameters:  # names a folder
        check_choice("profile", parameters["profile"], paths.PROFILES)
    return Job(notebook, parameters, folder(parameters.get("profile")) / f"{name}.ipynb")


def _readable(values: Mapping[str, Any]) -> str:
    """seed=3-temperature=0.05, with a digest where that is no file name."""
    return _file_name("-".join(f"{name}={value}" for name, value in values.items()))


def _file_name(plain: str) -> str:
    safe = re.sub(r"[^\w.+=-]+", "_", plain)  # without commas, which separate what Snakemake hands to a job
    short = safe.encode()[:LONGEST_NAME].decode(errors="ignore")
    return short if short == plain else f"{short}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
