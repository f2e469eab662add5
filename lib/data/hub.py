"""The Hugging Face hub, only where the user named it; a file that already lies in data_dir is never fetched."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from filelock import FileLock

from lib.data.corpus import Corpus, _corpus, _read
from lib.data.errors import DataError
from lib.data.files import manifest


def fetch(name: str, data_dir: Path) -> Path:
    """Bring `wiki1m`, `nli` or `senteval` of SimCSE's data set repository into data_dir; return where it lies.

    Raises:
        DataError: unknown name, no network, or a file that is not whole.
    """
    source = manifest()["hub"]
    if name not in source["files"]:
        raise DataError(f"{name!r} is not known: choose from {', '.join(source['files'])}.")
    file = source["files"][name]
    target = data_dir / ("senteval/downstream" if name == "senteval" else file)
    if target.exists():
        return target
    data_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(data_dir / f".{name}.lock"):
        if not target.exists():
            downloaded = _download(source["repository"], file)
            with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{name}-") as partial:
                _bring(downloaded, Path(partial), target)
    return target


def _bring(downloaded: Path, partial: Path, target: Path) -> None:
    """Copy or unpack beside the target, then move it there in one go."""
    if tarfile.is_tarfile(downloaded):
        try:
            with tarfile.open(downloaded) as archive:
                archive.extractall(partial, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise DataError(f"{downloaded} is truncated or damaged ({error}): delete it and fetch again.") from error
        found = next(iter(sorted(partial.rglob("downstream"))), None)
        if found is None:
            raise DataError(f"{downloaded}: no folder 'downstream' in the archive.")
    else:
        found = Path(shutil.copy(downloaded, partial / target.name))
    target.parent.mkdir(exist_ok=True)
    found.rename(target)


def _download(repository: str, file: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, file, repo_type="dataset"))
    except Exception as error:  # the hub client raises a dozen kinds; all mean the same to the user
        raise DataError(
            f"{file} of {repository} could not be fetched ({type(error).__name__}): with no network, copy the file "
            "into data_dir by hand."
        ) from error


def load(spec: str, data_dir: Path) -> Corpus:
    """`<file>` of SimCSE's repository, or `<user>/<data set>[:<columns>]` through `datasets` (train split).

    Raises:
        DataError: not found, no network, or columns that are not there.
    """
    files = {file: name for name, file in manifest()["hub"]["files"].items() if name != "senteval"}
    if spec in files:
        return _read([fetch(files[spec], data_dir)])
    name, _, columns = spec.partition(":")
    import datasets

    try:
        table = datasets.load_dataset(name, split="train")
    except Exception as error:
        raise DataError(f"hub data set {name!r} could not be loaded ({type(error).__name__}: {error}).") from error
    wanted = columns.split(",") if columns else table.column_names[:1]
    missing = [column for column in wanted if column not in table.column_names]
    if missing or len(wanted) > 3:
        raise DataError(f"hub data set {name!r} has columns {table.column_names}; asked for {wanted} (1 to 3 of them).")
    return _corpus(name, [[" " if x is None else str(x) for x in table[column]] for column in wanted])
