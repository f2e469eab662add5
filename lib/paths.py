"""Where things are, whatever the working directory (papermill, nbval and JupyterLab each use another one)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from lib.checks import DataError

PROFILES = ("demo", "small", "paper")  # folders of the run store


def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


def _override(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(value).expanduser().resolve() if value else default


def runs() -> Path:
    """Finished runs, executed notebooks, reports. Environment variable CSE_RUNS, else runs/ in the repository."""
    return _override("CSE_RUNS", root() / "runs")


def cache() -> Path:
    """Tokenised corpora and other things that can be made again. CSE_CACHE, else .cache/ in the repository."""
    return _override("CSE_CACHE", root() / ".cache")


def figures(profile: str = "demo") -> Path:
    """runs/figures/<profile>/; CSE_FIGURES overrides. The committed figures/ are what `make notebooks` draws."""
    return _override("CSE_FIGURES", runs() / "figures" / profile)


def data_dir(given: str | os.PathLike = "") -> Path:
    """The folder with the data sets: the argument, else the environment variable CSE_DATA, else data/ in the
    repository. A relative argument is looked up from the working directory, then from the repository.

    Raises:
        DataError: the folder was named (argument or variable) and does not exist.
    """
    if str(given):
        path = Path(os.path.expanduser(given))  # leaves the name of an unknown user as it is
        candidates = [path] if path.is_absolute() else [Path.cwd() / path, root() / path]
        if existing := [candidate for candidate in candidates if candidate.is_dir()]:
            return existing[0].resolve()
        raise DataError(
            f"data_dir {str(given)!r} is not a folder (looked at {' and '.join(map(str, candidates))}): "
            "give an existing folder, or an empty data_dir for CSE_DATA or data/ in the repository."
        )
    path = _override("CSE_DATA", root() / "data")
    if os.environ.get("CSE_DATA") and not path.is_dir():
        raise DataError(f"CSE_DATA names {path}, which is not a folder: correct or unset the variable.")
    return path


def model_folder(name: str) -> Path:
    """Where the files of a loaded model are: the folder of that name, or the hub's cache for a name of the hub.

    The folder in the hub's cache has the model's commit for a name and holds what was fetched so far.
    """
    from huggingface_hub import try_to_load_from_cache

    folder = Path(name).expanduser()
    cached = None if folder.is_dir() else try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an error.

    So `folder` is there whole or not at all, and what was there before stays if something goes wrong.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, Path(temporary) / "old")
        os.replace(new, folder)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when the block ends without an error: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def made_once(path: Path, make: Callable[[Path], object], *, folder: bool = False) -> Path:
    """`path`, which `make(new)` writes if it is not there yet; of several processes one writes, the others wait.

    Args:
        make: writes a file `new`, or into an existing empty folder `new`; whole or not at all.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not path.exists():
                with (whole_folder if folder else whole_file)(path) as new:
                    make(new)
    return path
