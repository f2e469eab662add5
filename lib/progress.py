"""Progress that suits where it is shown: a bar in a terminal or JupyterLab, otherwise a line every few seconds."""

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

    def display(self, msg: str | None = None, pos: int | None = None) -> None:  # msg is "" when the counter is closed
        done = self.n - self.initial
        if msg is None and done > 0 and self.n < self.total:
            left = self.format_dict["elapsed"] / done * (self.total - self.n)
            time = f"{left:.0f} s" if left < 100 else f"{left / 60:.0f} min"
            values = f"  {self.postfix}" if self.postfix else ""
            print(f"{self.desc} {self.n}/{self.total}{values}  about {time} left", file=sys.stderr, flush=True)


def progress(*, total: int, label: str, enabled: bool = True, initial: int = 0, seconds: float = 10.0) -> tqdm:
    """A counter of `total` with `update(n, **values)` and `close()`, also for `with`; the environment variable
    CSE_PROGRESS=off shows none.

    Args:
        initial: work that an earlier process did.
        seconds: shortest time between two lines where no bar can be drawn.
    """
    options = {
        "total": total,
        "desc": label,
        "initial": initial,
        "leave": False,
        "disable": not enabled or os.environ.get("CSE_PROGRESS") == "off",
        "position": 0,  # a counter inside another one takes its line: JupyterLab has no line above
    }
    in_lab = "JPY_SESSION_NAME" in os.environ  # JupyterLab; papermill and nbval do not set it
    if in_lab or sys.stderr.isatty():  # JupyterLab paints what comes by stderr red, also when the bar is gone
        return _Bar(**options, mininterval=0.5, file=sys.stdout if in_lab else sys.stderr)
    return _Lines(**options, mininterval=seconds, delay=seconds, miniters=1)
