"""The first call of every notebook: quiet libraries, plot style, versions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import platform
import subprocess
import sys
import warnings
from typing import Any

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


def _palette_png(figure: Any) -> bytes:
    """The figure as a PNG of at most 128 colours: a third of the size in a notebook, the same to the eye."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.canvas.print_figure(whole, format="png", bbox_inches="tight", dpi=figure.dpi)
    Image.open(whole).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def _table_html(table: Any) -> str:
    """A styled table whose ids follow from what it shows: pandas draws them, and an executed notebook would never repeat."""
    return table.set_uuid(hashlib.sha256(table.to_string().encode()).hexdigest()[:5])._repr_html_()


def _repeatable_outputs() -> None:
    """In a notebook, show figures by `_palette_png` and styled tables by `_table_html`, with their text beside it."""
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

    shell.run_line_magic("matplotlib", "inline")  # its own formatter is set now, and not later over this one
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type(Figure, _palette_png)
    formatters["text/html"].for_type(Styler, _table_html)
    formatters["text/plain"].for_type(
        Styler, lambda table, printer, _: printer.text(table.to_string(sparse_index=True))
    )


def setup(*, profile: str) -> None:
    """Quiet libraries, one plot style, and a line each for profile, device and versions."""
    quiet()
    from lib import figures

    _repeatable_outputs()
    figures.set_style()
    found = versions()
    print(f"profile  {profile}")
    print(f"device   {device_name()}")
    print("versions " + ", ".join(f"{name} {version}" for name, version in found.items()))
    print(f"commit   {git_commit()}")
    sys.stdout.flush()
