"""This process and what it runs on: quiet libraries, versions, commit, device."""

import ctypes
import functools
import importlib.metadata
import os
import platform
import subprocess
import warnings
from contextlib import suppress

from lib import paths

profile = "demo"  # whose folder the figures of this process go to; `lib.setup` sets it
REPORTED = ("torch", "transformers", "accelerate", "numpy", "scipy", "scikit-learn")


def quiet() -> None:
    """Switch off the progress bars and notices of the libraries; their warnings about errors stay."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # nothing here forks, and unset it warns
    warnings.filterwarnings("ignore", message=".*IProgress not found.*")  # bars are text here, widgets are not used
    warnings.filterwarnings("ignore", message="The figure layout has changed to tight")  # by seaborn's own panels
    import huggingface_hub
    import transformers

    if "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
        huggingface_hub.utils.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def versions() -> dict[str, str]:
    """Python and package versions, as they go into every run's provenance."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in REPORTED}


@functools.cache
def git_commit() -> str:
    """Short commit of the repository, with '+' when the files of `lib` differ from it; 'unknown' outside git. As it was
    when this process first asked: what is committed later is not the code that runs here."""
    git, options = ["git", "-C", str(paths.root())], {"text": True, "stderr": subprocess.DEVNULL}
    try:
        commit = subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD"], **options).strip()
        changed = subprocess.check_output([*git, "status", "--porcelain", "-uno", "--", "lib"], **options)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+" if changed else commit


def give_back_memory() -> None:
    """Hand freed heap memory back to the system. glibc does that when asked; elsewhere nothing happens."""
    with suppress(AttributeError, TypeError):  # another C library has no such function, Windows no such handle
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def device_name() -> str:
    """Name of the processor that training uses."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "Apple GPU"
    return f"CPU, {torch.get_num_threads()} threads"
