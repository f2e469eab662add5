"""Progress that suits where it is shown: a bar in a terminal or JupyterLab, otherwise a line every few seconds."""

from __future__ import annotations

import os
import sys
import time


def _interactive() -> bool:
    """A person is looking: a terminal, or a kernel that a Jupyter server started (papermill and nbval have none)."""
    return sys.stderr.isatty() or "JPY_SESSION_NAME" in os.environ


class _Lines:
    """One line at most every `seconds`, nothing for work that is quickly done."""

    def __init__(self, total: int, label: str, initial: int, seconds: float) -> None:
        self.total, self.label, self.seconds = total, label, seconds
        self.done = self.initial = initial
        self.start = time.monotonic()
        self.last = self.start

    def update(self, n: int = 1, **values: float) -> None:
        self.done += n
        now = time.monotonic()
        if now - self.last >= self.seconds:
            self.last = now
            left = (now - self.start) / max(1, self.done - self.initial) * (self.total - self.done)
            shown = "".join(f"  {name} {value:.3f}" for name, value in values.items())
            print(
                f"{self.label} {self.done}/{self.total}{shown}  about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, total: int, label: str, initial: int) -> None:
        from tqdm import tqdm

        self.bar = tqdm(total=total, desc=label, initial=initial, leave=False, mininterval=0.5)

    def update(self, n: int = 1, **values: float) -> None:
        if values:
            self.bar.set_postfix({k: f"{v:.3f}" for k, v in values.items()}, refresh=False)
        self.bar.update(n)

    def close(self) -> None:
        self.bar.close()


class _Silent:
    def update(self, n: int = 1, **values: float) -> None:
        pass

    def close(self) -> None:
        pass


def progress(
    *, total: int, label: str, enabled: bool = True, initial: int = 0, seconds: float = 10.0
) -> _Lines | _Bar | _Silent:
    """A counter with `update(n, **values)` and `close()`.

    Args:
        total: amount of work.
        label: what is counted.
        enabled: False shows nothing, and so does the environment variable CSE_PROGRESS=off.
        initial: work that an earlier process did.
        seconds: shortest time between two lines where no bar can be drawn.
    """
    if not enabled or os.environ.get("CSE_PROGRESS") == "off":
        return _Silent()
    return _Bar(total, label, initial) if _interactive() else _Lines(total, label, initial, seconds)
