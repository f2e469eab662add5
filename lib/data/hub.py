"""The Hugging Face hub, only where the user named it; a file that already lies in data_dir is never fetched."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lib import paths
from lib.checks import DataError
from lib.data.files import manifest


def file_of(name: str) -> str:
    """The file that is called `wiki1m`, `nli` or `senteval`; DataError for another name."""
    files = manifest()["hub"]["files"]
    if name not in files:
        raise DataError(f"{name!r} is not known: choose from {', '.join(files)}.")
    return files[name]


def fetch(name: str, data_dir: Path) -> Path:
    """Bring `wiki1m`, `nli` or `senteval` of SimCSE's data set repository into data_dir; return where it lies.

    DataError: unknown name, no network, or a file that is not whole.
    """
    repository, file, is_archive = manifest()["hub"]["repository"], file_of(name), name == "senteval"
    target = data_dir / ("senteval/downstream" if is_archive else file)
    bring = _unpack if is_archive else shutil.copy
    return paths.made_once(target, lambda new: bring(_download(repository, file), new), folder=is_archive)


def _unpack(downloaded: Path, folder: Path) -> None:
    """Put the archive's folder `downstream` in the place of the empty `folder`."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as whole:
        try:
            with tarfile.open(downloaded) as archive:
                archive.extractall(whole, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise DataError(f"{downloaded} is truncated or damaged ({error}): delete it and fetch again.") from error
        downstream = min((path for path in Path(whole).rglob("downstream") if path.is_dir()), default=None)
        if downstream is None:
            raise DataError(f"{downloaded}: no folder 'downstream' in the archive.")
        folder.rmdir()
        downstream.rename(folder)


def _download(repository: str, file: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, file, repo_type="dataset"))
    except Exception as error:  # the hub client raises a dozen kinds; all mean the same to the user
        raise DataError(
            f"{file} of {repository} could not be fetched ({type(error).__name__}): with no network, copy the file "
            "into data_dir by hand."
        ) from error


def load_columns(name: str, columns: Sequence[str]) -> list[list[str]]:
    """S x n strings: columns of the train split of a hub data set, the first one where none is named.

    A missing value is a single space. DataError: not found, no network, or columns that are not there.
    """
    import datasets

    try:
        table = datasets.load_dataset(name, split="train")
    except Exception as error:
        raise DataError(f"hub data set {name!r} could not be loaded ({type(error).__name__}: {error}).") from error
    columns = list(columns) or table.column_names[:1]
    if not set(columns) <= set(table.column_names):
        raise DataError(f"hub data set {name!r} has columns {table.column_names}; asked for {columns}.")
    return [[" " if value is None else str(value) for value in table[column]] for column in columns]
