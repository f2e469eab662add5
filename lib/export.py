"""A run's encoder to give away, with a model card that has all scores that the run has by now.

    python -m lib.export simcse-0123456789ab my-encoder

RUN is the folder or the id of a run. The new folder loads in sentence-transformers, as its README.md says, and can be
uploaded to the hub as it is. Exit codes: 0 done, 2 something is wrong with what was given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.checks import ConfigError
from lib.command import DONE, ended
from lib.runs import export, find_run


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser("python -m lib.export", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    args = parser.parse_args(argv)
    return ended(lambda: _export(args))


def _export(args: argparse.Namespace) -> int:
    if (run := find_run(args.run)) is None:
        raise ConfigError(f"{args.run} is neither the folder of a run nor the id of one in the store.")
    print(export(run, args.folder))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
