"""Where things are, whatever the working directory (papermill, nbval and JupyterLab each use another one)."""

import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib.checks import DataError, refusal

PROBE = 2**20  # bytes that a disk must still take
PROFILES = ("demo", "small", "paper")  # folders of the run store


def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


def _override(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(os.path.realpath(Path(value).expanduser())) if value else default


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
    if not str(given) and not os.environ.get("CSE_DATA"):
        return root() / "data"
    named = Path(given).expanduser()
    places = [Path.cwd() / named, root() / named] if str(given) else [_override("CSE_DATA", root())]
    for folder in filter(os.path.isdir, places):
        return folder.resolve()
    name = f"data_dir {str(given)!r}" if str(given) else f"CSE_DATA names {places[0]}, which"
    raise DataError(f"{name} is not a folder: give an existing one, or none for data/ in {root()}.")


def read_json(path: Path) -> Any:
    """What a JSON file holds; raises DataError with its name where it cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise DataError(refusal(error)) from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: it is no JSON ({error}).") from error


def digest(content: Any) -> str:
    """SHA-256 of something that JSON can hold, in hexadecimal digits; the order of a mapping's names does not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """What the system has against writing `path` (a full disk, a folder that is read-only, ...) becomes a DataError."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a library, about something else
            raise
        if not error.filename or path.parent in Path(os.fsdecode(error.filename)).parents:
            error.filename = str(path)
        raise DataError(refusal(error)) from error


def check_writable(folder: Path) -> None:
    """Write into the folder, or where it would be made, and leave nothing there. Raises DataError where that fails."""
    place = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    with _refusals(place), tempfile.TemporaryFile(dir=place) as file:
        file.write(bytes(PROBE))


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, on the same disk, that is gone when the block ends."""
    with _refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
            try:
                yield Path(folder)
            except Exception:
                check_writable(path.parent)  # of a full disk, PyTorch and libraries in Rust do not say that it is full
                raise
        _to_disk(path.parent)


def _to_disk(path: Path) -> None:
    """What a file or the list of a folder holds survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into, which takes the place of `folder` when the block ends without an error: whole or not
    at all.

    Raises:
        DataError: it cannot be written: a full disk, a file in its place, no permission.
    """
    with _beside(folder) as place:
        new = place / "new"
        new.mkdir()
        yield new
        for path in [*new.rglob("*"), new]:
            _to_disk(path)
        if folder.is_dir():  # a folder does not replace one that holds something
            os.replace(folder, place / "old")
        os.replace(new, folder)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when the block ends without an error: whole or not at all.

    Raises:
        DataError: it cannot be written: a full disk, a folder in its place, no permission; or nothing was written.
    """
    with _beside(path) as place:
        new = place / path.name
        yield new
        _to_disk(new)
        os.replace(new, path)


@contextmanager
def locked(path: Path, *, waiting: str = "") -> Iterator[None]:
    """One process at a time is in such a block for a path; what a killed one left beside it is swept.

    waiting: what is said when another process is in it. Raises DataError where nothing can be written.
    """
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place)
    with _refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if waiting:
                print(waiting, file=sys.stderr, flush=True)
            lock.acquire()
    try:
        sweep(path)
        yield
    finally:
        with suppress(OSError):
            place.unlink()  # who waits for it sees that, and makes a new one
        lock.release()


def sweep(path: Path) -> None:
    """Remove what killed processes left of their attempts to write `path`; for who holds its lock."""
    for left in path.parent.glob(f".{glob.escape(path.name)}-{'[a-z0-9_]' * 8}"):  # as tempfile names them
        shutil.rmtree(left, ignore_errors=True)


def made_once(path: Path, make: Callable[[Path], object], *, folder: bool = False) -> Path:
    """`path`, which `make(new)` writes if it is not there yet; of several processes one writes, the others wait.

    Args:
        make: writes a file `new`, or into an existing empty folder `new`; whole or not at all.

    Raises:
        DataError: it cannot be written.
    """
    if not path.exists():
        with locked(path):
            if not path.exists():
                with (whole_folder if folder else whole_file)(path) as new:
                    make(new)
    return path
