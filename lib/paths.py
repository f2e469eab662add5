"""Where things are, whatever the working directory (papermill, nbval and JupyterLab each use another one)."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib.checks import ADVICE, DataError, refusal

SEAL = ".seal"  # file that says what the files of a folder, or the file of this name before it, hold
HASHED = 16 * 2**20  # bytes; larger files are hashed only where a check is to be thorough
PROBE = 2**20  # bytes that a disk must still take
PICKLED = (
    "has its weights in a pickle (pytorch_model.bin), which could run code and is not read: load it once where you trust it, "
    "and `save_pretrained` it as safetensors"
)
PROFILES = ("demo", "small", "paper")  # folders of the run store

_hashed: dict[tuple[int, ...], str] = {}  # device, inode, time and size of a large file -> its SHA-256


def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


def expanded(name: str | os.PathLike) -> Path:
    """A path with ~ spelled out.

    Raises:
        DataError: it names the home folder of somebody whom this machine does not know.
    """
    path = os.path.expanduser(name)
    if path.startswith("~") and not os.path.exists(path):
        raise DataError(f"{path} is in the home folder of nobody here: correct the name of the user.")
    return Path(path)


def _override(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(os.path.realpath(expanded(value))) if value else default


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
        if existing := [candidate for candidate in candidates if os.path.isdir(candidate)]:
            return existing[0].resolve()
        raise DataError(
            f"data_dir {str(given)!r} is not a folder (looked at {' and '.join(map(str, candidates))}): "
            "give an existing folder, or an empty data_dir for CSE_DATA or data/ in the repository."
        )
    path = _override("CSE_DATA", root() / "data")
    if os.environ.get("CSE_DATA") and not os.path.isdir(path):
        raise DataError(f"CSE_DATA names {path}, which is not a folder: correct or unset the variable.")
    return path


def model_folder(name: str) -> Path:
    """Where the files of a loaded model are: the folder of that name, or the hub's cache for a name of the hub.

    The folder in the hub's cache has the model's commit for a name and holds what was fetched so far.
    """
    from huggingface_hub import try_to_load_from_cache

    folder = expanded(name)
    cached = None if os.path.isdir(folder) else try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else folder


def read_json(path: Path, *, kind: type = dict) -> Any:
    """The object that a JSON file holds, or with kind `list` its list.

    Raises:
        DataError: the file cannot be read, or holds something else; it is named.
    """
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise DataError(refusal(error)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is no JSON ({error}).") from error
    if not isinstance(content, kind):
        expected = "names and values are" if kind is dict else "a list is"
        raise DataError(f"{path} is damaged: it holds a {type(content).__name__} where {expected} expected.")
    return content


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """What the system has against writing `path` (a full disk, a folder that is read-only, ...) becomes a DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        number = _error_number(error, path)
        if number not in ADVICE:
            raise
        raise DataError(refusal(OSError(number, "", str(path)))) from error


def _error_number(error: Exception, path: Path) -> int | None:
    """Of the system's error that hinders writing `path`. Not all libraries hand it on: those in Rust write it into their
    text, and where PyTorch's are silent a try shows whether the disk is full."""
    if isinstance(error, OSError) and error.errno is not None:
        here, place = os.path.abspath(path.parent), os.path.abspath(error.filename or path)
        return error.errno if place.startswith(here) or here.startswith(place) else None
    if found := re.search(r"\(os error (\d+)\)", str(error)):
        return int(found[1])
    if isinstance(error, OSError | RuntimeError):
        try:
            _probe(path.parent)
        except OSError as refused:
            return refused.errno
    return None


def _probe(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(PROBE))


def check_writable(folder: Path) -> None:
    """Write into the folder, or where it would be made, and leave nothing there.

    Raises:
        DataError: that cannot be done: a full disk, a file in the way, no permission.
    """
    place = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    try:
        _probe(place)
    except OSError as error:
        error.filename = str(place)
        raise DataError(refusal(error)) from error


def check_no_run_around(folder: Path) -> Path:
    """The place that is to be written. Raises DataError where it lies in a finished run."""
    for place in Path(os.path.realpath(folder)).parents:
        if all((place / name).is_file() for name in ("config.yaml", "metrics.json")):
            raise DataError(f"{folder} lies in the finished run {place}, which stays as it is: choose another place.")
    return folder


def foreign_shard(folder: Path) -> str:
    """Where a model's files send for weights elsewhere than to safetensors files beside them; empty: nowhere.

    The list of a model whose weights lie in several files may do that, and its configuration.
    """
    index, config = folder / "model.safetensors.index.json", folder / "config.json"
    try:
        if config.is_file() and read_json(config).get("transformers_weights") is not None:
            return f"{config} names a file of weights (transformers_weights), which is not read: take the entry out"
        if not index.is_file() or (folder / "model.safetensors").is_file():
            return ""
        content = read_json(index)
        names = [content["metadata"], *content["weight_map"].values()][1:]
        strangers = [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]
    except DataError as error:
        return str(error).rstrip(".")
    except (KeyError, AttributeError, TypeError):
        names, strangers = [], []
    if not names:
        return f"{index} is damaged: it needs `metadata` and a `weight_map` of names and files"
    if strangers:
        return f"{index} names {strangers[0]!r}: weights are read from safetensors files beside it alone"
    return ""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model in a folder; see `foreign_shard` for whether it names others."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    names = [] if whole.is_file() or not index.is_file() else read_json(index)["weight_map"].values()
    return [whole] if whole.is_file() else sorted({folder / name for name in names if (folder / name).is_file()})


def is_pickled(folder: Path) -> bool:
    """Whether the weights of a model are there as a pickle alone, which could run code and is not read."""
    return bool(list(folder.glob("pytorch_model*.bin"))) and not list(folder.glob("*.safetensors"))


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

    Raises:
        DataError: it cannot be written: a full disk, a file in its place, no permission.
    """
    with _writing(folder):
        if os.path.lexists(folder) and not folder.is_dir():
            raise FileExistsError(errno.EEXIST, "", str(folder))
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
            if not folder.exists():
                os.replace(new, folder)
            elif not _exchange(new, folder):  # in two steps, and a kill between them is put right by `sweep`
                os.replace(folder, Path(temporary) / "old")
                try:
                    os.replace(new, folder)
                except OSError:
                    os.replace(Path(temporary) / "old", folder)
                    raise
        _to_disk(folder.parent)


def _exchange(new: Path, old: Path) -> bool:
    """Let two folders swap their names at once, where the system can do that (Linux); whether it did."""
    try:
        return not ctypes.CDLL(None).renameat2(-100, os.fsencode(new), -100, os.fsencode(old), 2)
    except (OSError, AttributeError, TypeError):
        return False


@contextmanager
def whole_file(path: Path, *, sealed: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when the block ends without an error: whole or not at all.

    Args:
        sealed: write what it holds into a small file beside it, for `check_seal`.

    Raises:
        DataError: it cannot be written: a full disk, a folder in its place, no permission.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    seal, partial_seal = seal_of(path), partial.with_name(f"{partial.name}{SEAL}")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            if not partial.exists():
                raise FileNotFoundError(f"nothing was written for {path}")
            _to_disk(partial)
            if sealed:
                partial_seal.write_text(json.dumps({path.name: _content(partial)}), encoding="utf8")
                _to_disk(partial_seal)
                seal.unlink(missing_ok=True)  # a file without a seal is taken as it is, one with another's is refused
            os.replace(partial, path)
            if sealed:
                os.replace(partial_seal, seal)
            _to_disk(path.parent)
        finally:
            partial.unlink(missing_ok=True)
            partial_seal.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file; a large one is read once per process, as long as it is not written again."""
    found = path.stat()
    version = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    if version in _hashed:
        return _hashed[version]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    if found.st_size > HASHED:
        _hashed[version] = digest.hexdigest()
    return digest.hexdigest()


def _content(path: Path) -> dict[str, int | str]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def seal_of(path: Path) -> Path:
    """Where it stands what a folder or a file holds."""
    return path / SEAL if path.is_dir() else path.with_name(f".{path.name}{SEAL}")


def check_seal(path: Path, *, thorough: bool = True) -> Path:
    """The path, whose content is what was written there; one without a seal is taken as it is.

    Args:
        thorough: hash the files of more than HASHED bytes too (a second for 0.5 GB), not only look at their lengths.

    Raises:
        DataError: a file of it is gone, cut or changed, or cannot be read.
    """
    folder, seal = path if path.is_dir() else path.parent, seal_of(path)
    seen = None
    while True:
        try:
            found = seal.stat() if seal.is_file() else None
            written = json.loads(seal.read_text(encoding="utf8")) if found else {}
            wrong = [name for name, content in written.items() if not _holds(folder / name, content, thorough)]
        except FileNotFoundError:  # replaced just now
            continue
        except OSError as error:
            raise DataError(refusal(error)) from error
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise DataError(f"{path} is damaged ({error}): delete it, and it is made again.") from error
        if not wrong:
            return path
        version = found.st_ino, found.st_mtime_ns
        if version == seen:  # nobody is writing it
            raise DataError(
                f"{folder / wrong[0]} was cut or changed since it was written: delete {path}, and it is made again."
            )
        seen = version


def _holds(path: Path, content: dict[str, int | str], thorough: bool) -> bool:
    """Whether a file is there and holds what its seal says."""
    size = path.stat().st_size if path.is_file() else -1
    is_hashed = "sha256" in content and (thorough or size <= HASHED)
    return size == content["bytes"] and (not is_hashed or sha256(path) == content["sha256"])


@contextmanager
def locked(path: Path, *, timeout: float = -1, waiting: str = "") -> Iterator[None]:
    """One process at a time is in such a block for a path; what a killed one left beside it is swept.

    Args:
        timeout: seconds; -1 waits as long as it takes.
        waiting: what is said when another process is in it.

    Raises:
        DataError: nothing can be written there.
        filelock.Timeout: another process was in it for so long.
    """
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if waiting:
                print(waiting, file=sys.stderr, flush=True)
            lock.acquire(timeout=timeout)
    try:
        sweep(path)
        yield
    finally:
        with suppress(OSError):
            place.unlink()  # who waits for it sees that, and makes a new one
        lock.release()


def sweep(path: Path) -> None:
    """Remove what killed processes left of their attempts to write `path`; for who holds its lock.

    Where such an attempt had just moved the old folder out of the way, that is put back.
    """
    leftover = re.compile(rf"\.{re.escape(path.name)}(-\w{{8}}|\.\d+({re.escape(SEAL)})?)")
    for other in [other for other in path.parent.glob(".*") if leftover.fullmatch(other.name)]:
        if (other / "old").is_dir() and not path.exists():
            os.replace(other / "old", path)
        with suppress(OSError):
            shutil.rmtree(other) if other.is_dir() else other.unlink()


def made_once(path: Path, make: Callable[[Path], object], *, folder: bool = False) -> Path:
    """`path`, which `make(new)` writes if it is not there yet; of several processes one writes, the others wait.

    Args:
        make: writes a file `new`, or into an existing empty folder `new`; whole or not at all.

    Raises:
        DataError: it was there, and was cut or changed since it was written; or it cannot be written.
    """
    if not path.exists():
        with locked(path):
            if not path.exists():
                with (whole_folder if folder else whole_file)(path, sealed=True) as new:
                    make(new)
    return check_seal(path)
