"""The Hugging Face hub, only where the user named it; a file that already lies in data_dir is never fetched."""

import shutil
import tarfile
import tempfile
from pathlib import Path

from lib import paths
from lib.checks import DataError
from lib.data.files import manifest

FILES: dict[str, str] = manifest()["hub"]["files"]  # wiki1m, nli, senteval


def fetch(name: str, data_dir: Path) -> Path:
    """Bring one of FILES from SimCSE's data set repository into data_dir, once; DataError: no network, a damaged archive."""
    is_archive = name == "senteval"
    bring = _unpack if is_archive else shutil.copy
    target = data_dir / ("senteval/downstream" if is_archive else FILES[name])
    return paths.made_once(target, lambda new: bring(_download(FILES[name]), new), folder=is_archive)


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


def _download(file: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(manifest()["hub"]["repository"], file, repo_type="dataset"))
    except Exception as error:  # the hub client raises a dozen kinds; all mean the same to the user
        raise DataError(
            f"{file} could not be fetched from the hub ({type(error).__name__}): with no network, copy the file into "
            "data_dir by hand."
        ) from error
