"""The first call of every notebook: quiet libraries, plot style, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import warnings

from lib import paths

REPORTED = ("torch", "transformers", "accelerate", "numpy", "scipy", "scikit-learn")


def quiet() -> None:
    """Switch off the progress bars and notices of the libraries; their warnings about errors stay."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # nothing here forks, and unset it warns
    warnings.filterwarnings("ignore", message=".*IProgress not found.*")  # bars are text here, widgets are not used
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def versions() -> dict[str, str]:
    """Python and package versions, as they go into every run's provenance."""
    found = {"python": platform.python_version()}
    for name in REPORTED:
        found[name] = importlib.metadata.version(name)
    return found


def git_commit() -> str:
    """Short commit of the repository, with '+' when the work tree differs from it; 'unknown' outside git."""
    run = ["git", "-C", str(paths.root())]
    try:
        commit = subprocess.run([*run, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
        if commit.returncode:
            return "unknown"
        dirty = subprocess.run(
            [*run, "status", "--porcelain", "--untracked-files=no", "--", "lib"],
            capture_output=True,
            text=True,
        )
        return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except OSError:
        return "unknown"


def device_name() -> str:
    """Name of the processor that training uses."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "Apple GPU"
    return f"CPU, {torch.get_num_threads()} threads"


def setup(*, profile: str) -> None:
    """Quiet libraries, one plot style, and a line each for profile, device and versions."""
    quiet()
    from lib import figures

    figures.set_style()
    found = versions()
    print(f"profile  {profile}")
    print(f"device   {device_name()}")
    print("versions " + ", ".join(f"{name} {version}" for name, version in found.items()))
    print(f"commit   {git_commit()}")
    sys.stdout.flush()
