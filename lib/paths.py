"""Where things are, whatever the working directory (papermill, nbval and JupyterLab each use another one)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from lib.checks import DataError

SEAL = ".seal"  # file that says what the files of a folder, or the file of this name before it, hold
HASHED = 16 * 2**20  # bytes; of larger files the length alone is kept
PROFILES = ("demo", "small", "paper")  # folders of the run store


def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


def expanded(name: str | os.PathLike) -> Path:
    """A path with ~ spelled out; where it names a user whom nobody knows, as it is."""
    return Path(os.path.expanduser(name))


def _override(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return expanded(value).resolve() if value else default


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
        path = expanded(given)
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

    folder = expanded(name)
    cached = None if folder.is_dir() else try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else folder


def _to_disk(path: Path) -> None:
    """What a file or the list of a folder holds survives a power cut."""
    if path.is_dir() and os.name != "posix":  # elsewhere folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_folder(folder: Path, *, sealed: bool = False) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an error.

    So `folder` is there whole or not at all, and what was there before stays if something goes wrong.

    Args:
        sealed: write what its files hold into one more file, for `check_seal`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        yield new
        if sealed:
            files = sorted(path for path in new.rglob("*") if path.is_file() and not path.is_symlink())
            contents = {path.relative_to(new).as_posix(): _content(path) for path in files}
            (new / SEAL).write_text(json.dumps(contents), encoding="utf8")
        for path in [*new.rglob("*"), new]:
            _to_disk(path)
        if folder.exists():
            os.replace(folder, Path(temporary) / "old")
        os.replace(new, folder)
    _to_disk(folder.parent)


@contextmanager
def whole_file(path: Path, *, sealed: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when the block ends without an error: whole or not at all.

    Args:
        sealed: write what it holds into a small file beside it, for `check_seal`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        _to_disk(partial)
        seal = path.with_name(f".{path.name}{SEAL}")
        if sealed:
            seal.unlink(missing_ok=True)  # a file without a seal is taken as it is, one with another's is refused
            contents = json.dumps({path.name: _content(partial)})
        os.replace(partial, path)
        if sealed:
            seal.write_text(contents, encoding="utf8")
        _to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _content(path: Path) -> dict[str, int | str]:
    """Length of a file, and its SHA-256 where that takes no time."""
    size = path.stat().st_size
    return {"bytes": size} | ({"sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if size <= HASHED else {})


def check_seal(path: Path) -> Path:
    """The path, whose content is what was written there; one without a seal is taken as it is.

    Raises:
        DataError: a file of it is gone, cut or changed.
    """
    folder = path if path.is_dir() else path.parent
    seal = path / SEAL if path.is_dir() else path.with_name(f".{path.name}{SEAL}")
    try:
        written = json.loads(seal.read_text(encoding="utf8")) if seal.is_file() else {}
        wrong = [name for name, content in written.items() if _content(folder / name) != content]
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error}): delete it, and it is made again.") from error
    if wrong:
        raise DataError(
            f"{folder / wrong[0]} was cut or changed since it was written: delete {path}, and it is made again."
        )
    return path


def made_once(path: Path, make: Callable[[Path], object], *, folder: bool = False) -> Path:
    """`path`, which `make(new)` writes if it is not there yet; of several processes one writes, the others wait.

    Args:
        make: writes a file `new`, or into an existing empty folder `new`; whole or not at all.

    Raises:
        DataError: it was there, and was cut or changed since it was written.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not path.exists():
                with (whole_folder if folder else whole_file)(path, sealed=True) as new:
                    make(new)
    return check_seal(path)
