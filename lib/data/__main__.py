"""`python -m lib.data fetch [wiki1m] [nli] [senteval]`: fill data_dir from the hub and say what is whole."""

import argparse
import sys
from pathlib import Path

from lib import paths
from lib.checks import DataError, check_choice
from lib.command import DONE, REFUSED, ended, say
from lib.data import hub, load_corpus, load_sts, load_transfer
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS


def count(name: str, data_dir: Path) -> str:
    """What lies in data_dir under this name; DataError when it is not whole."""
    if name != "senteval":
        return f"{name}: {len(load_corpus(hub.FILES[name], data_dir)):,} rows"
    pairs = sum(len(load_sts(data_dir, task).gold) for task in STS_TASKS)
    for task in TRANSFER_TASKS:
        load_transfer(data_dir, task)
    return f"senteval: {len(STS_TASKS)} STS tasks with {pairs:,} scored pairs, {len(TRANSFER_TASKS)} transfer tasks"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lib.data", description=__doc__)
    parser.add_argument("command", choices=["fetch", "check"], help="fetch what is missing, or only check")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(hub.FILES)}; all by default")
    parser.add_argument("--data-dir", default="", help="default: CSE_DATA, else data/ in the repository")
    arguments = parser.parse_args(argv)
    return ended(lambda: _done(arguments.command, arguments.names or list(hub.FILES), arguments.data_dir))


def _done(command: str, names: list[str], data_dir: str) -> int:
    """One after the other; a failure does not stop the rest."""
    code, folder = DONE, paths.data_dir(data_dir)
    for name in names:
        check_choice("the name", name, hub.FILES)
    for name in names:
        try:
            if command == "fetch":
                hub.fetch(name, folder)
            print(count(name, folder))
        except DataError as error:
            code = REFUSED
            say(str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())
