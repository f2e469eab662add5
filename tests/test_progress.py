"""lib.progress: lines where nobody looks, nothing for quick work, a bar in a terminal, and how to switch it off."""

import io
import re
import sys

import pytest

from lib.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch):
    monkeypatch.delenv("CSE_PROGRESS", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


@pytest.fixture
def shown(monkeypatch):
    """Function (stderr, seconds, steps, options) -> what a counter shows of `steps` updates by 1, `seconds` apart."""
    clock = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])

    def show(stderr: io.StringIO, seconds: float, steps: int = 4, **options) -> str:
        monkeypatch.setattr(sys, "stderr", stderr)
        counter = progress(**({"total": 4, "label": "train", "seconds": 2.0} | options))
        for step in range(steps):
            clock[0] += seconds
            counter.update(1, loss=1 / (step + 1))
        counter.close()
        return stderr.getvalue()

    return show


LINES = [f"train {n}/4  loss={1 / n:.3f}  about {2 * (4 - n)} s left" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"seconds": 2.0}, LINES),
        ({"seconds": 1.0}, ["train 2/4  loss=0.500  about 2 s left"]),  # none sooner than asked
        ({"seconds": 0.1}, []),  # quick work
        ({"seconds": 2.0, "steps": 1}, LINES[:1]),  # work that stops early adds none
        # work of an earlier process is not in the estimate
        ({"seconds": 2.0, "steps": 1, "total": 100, "initial": 90}, ["train 91/100  loss=1.000  about 18 s left"]),
    ],
)
def test_lines_without_a_terminal(shown, options, lines):
    assert shown(io.StringIO(), **options).splitlines() == lines


@pytest.mark.parametrize("stderr", [io.StringIO, Terminal])
def test_switched_off(shown, monkeypatch, stderr):
    assert shown(stderr(), seconds=2.0, enabled=False) == ""
    monkeypatch.setenv("CSE_PROGRESS", "off")
    assert shown(stderr(), seconds=2.0) == ""


def test_a_bar_in_a_terminal_and_in_jupyterlab(shown, monkeypatch, capsys):
    text = shown(Terminal(), seconds=2.0)
    assert re.search(r"train:  50%\|.*2/4 .*loss=0\.500", text) and "s left" not in text
    assert text.endswith("\r")  # the bar is wiped when the work is done
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook")
    assert not shown(io.StringIO(), seconds=2.0) and "train:  50%" in capsys.readouterr().out  # stderr is red there
