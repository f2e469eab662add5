"""Progress that suits where it is shown: a bar in a terminal or JupyterLab, otherwise a line every few seconds."""

from __future__ import annotations

import os
import sys

from tqdm import tqdm


class _Bar(tqdm):
    def update(self, n: int = 1, **values: float) -> None:
        if values:
            self.set_postfix({name: f"{value:.3f}" for name, value in values.items()}, refresh=False)
        super().update(n)


class _Lines(_Bar):
    """Where nobody looks: lines instead of a bar."""

    percent = False

    def display(self, msg: str | None = None, pos: int | None = None) -> None:  # msg is "" when the counter is closed
        done = self.n - self.initial
        if msg is None and done > 0 and self.n < self.total:
            left = self.format_dict["elapsed"] / done * (self.total - self.n)
            time = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
            share = f"{self.n / self.total:.0%}" if self.percent else f"{self.n}/{self.total}"
            values = f"  {self.postfix}" if self.postfix else ""
            print(f"{self.desc} {share}{values}  about {time} left", file=sys.stderr, flush=True)


def is_wanted() -> bool:
    """Whether progress is shown at all: not with the environment variable CSE_PROGRESS=off."""
    return os.environ.get("CSE_PROGRESS") != "off"


def progress(
    *, total: float, label: str, enabled: bool = True, initial: float = 0, seconds: float = 10.0, percent: bool = False
) -> tqdm:
    """A counter with `update(n, **values)` and `close()`.

    Args:
        total: amount of work.
        label: what is counted.
        enabled: False shows nothing.
        initial: work that an earlier process did.
        seconds: shortest time between two lines where no bar can be drawn.
        percent: the share that is done, not how much of how much.
    """
    options = {
        "total": total,
        "desc": label,
        "initial": initial,
        "leave": False,
        "disable": not (enabled and is_wanted()),
    }
    if sys.stderr.isatty() or "JPY_SESSION_NAME" in os.environ:  # JupyterLab; papermill and nbval do not set it
        if percent:  # the pace is that of all work so far
            options |= {"bar_format": "{desc} {percentage:3.0f}%|{bar}| {remaining} left{postfix}"}
            options |= {"smoothing": 0, "miniters": 0}
        return _Bar(**options, mininterval=0.5)
    lines = _Lines(**options, mininterval=seconds, delay=seconds, miniters=0 if percent else 1)
    lines.percent = percent
    return lines
