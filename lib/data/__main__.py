"""`python -m lib.data fetch [wiki1m] [nli] [senteval]`: fill data_dir from the hub and say what is whole."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib import paths
from lib.checks import DataError
from lib.data import hub, load_corpus, load_sts, load_transfer
from lib.data.files import manifest
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS


def check(name: str, data_dir: Path) -> str:
    """Count what lies in data_dir under this name; raises DataError when it is not whole."""
    if name == "senteval":
        pairs = sum(len(load_sts(data_dir, task).gold) for task in STS_TASKS)
        for task in TRANSFER_TASKS:
            load_transfer(data_dir, task)
        return f"senteval: {len(STS_TASKS)} STS tasks with {pairs:,} scored pairs, {len(TRANSFER_TASKS)} transfer tasks"
    return f"{name}: {len(load_corpus(manifest()['hub']['files'][name], data_dir)):,} rows"


def main(argv: list[str] | None = None) -> int:
    names = list(manifest()["hub"]["files"])
    parser = argparse.ArgumentParser(prog="python -m lib.data", description=__doc__)
    parser.add_argument("command", choices=["fetch", "check"], help="fetch what is missing, or only check")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(names)}; all by default")
    parser.add_argument("--data-dir", default="", help="default: CSE_DATA, else data/ in the repository")
    arguments = parser.parse_args(argv)
    failed = False
    try:
        data_dir = paths.data_dir(arguments.data_dir)
    except DataError as error:
        parser.exit(2, f"{error}\n")
    for name in arguments.names or names:
        try:
            if arguments.command == "fetch":
                hub.fetch(name, data_dir)
            elif name not in names:
                raise DataError(f"{name!r} is not known: choose from {', '.join(names)}.")
            print(check(name, data_dir))
        except DataError as error:
            failed = True
            print(error, file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
