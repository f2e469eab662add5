"""`python -m lib.data fetch [wiki1m] [nli] [senteval]`: fill data_dir from the hub and say what is whole.

`check-pool FILE` says whether its sentences can be a pool of 3R's: each of the 300 shipped words (--words: of another list)
at least twice, at most 32 words each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib import paths
from lib.checks import DataError
from lib.command import DONE, REFUSED, ended, say
from lib.data import exemplars, hub, load_corpus, load_sts, load_transfer
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
    return f"{name}: {len(load_corpus(hub.file_of(name), data_dir)):,} rows"


def check_pool(file: str, words: str) -> str:
    """What a good pool is; raises DataError for a bad one."""
    pool, wanted = exemplars.load_pool(file), exemplars.load_words(words)
    if faults := exemplars.pool_faults(pool, wanted):
        raise DataError(f"{file}: {'; '.join(faults)}.")
    uses = sum(len(exemplars.words_of(sentence)) for sentence in pool)
    return (
        f"{file}: {len(pool)} sentences of {uses / len(pool):.0f} words, each of the {len(wanted)} words at least twice"
    )


def main(argv: list[str] | None = None) -> int:
    names = list(manifest()["hub"]["files"])
    parser = argparse.ArgumentParser(prog="python -m lib.data", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = ["fetch", "check", "check-pool"]
    parser.add_argument("command", choices=commands, help="fetch what is missing, or only check; or see above")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(names)}, all by default; or files")
    parser.add_argument("--data-dir", default="", help="default: CSE_DATA, else data/ in the repository")
    parser.add_argument("--words", default="", help="a table word,count for check-pool; default: the shipped one")
    arguments = parser.parse_args(argv)
    if arguments.command == "check-pool" and not arguments.names:
        parser.error("check-pool needs at least one file.")
    return ended(lambda: _done(arguments, arguments.names or names))


def _done(arguments: argparse.Namespace, names: list[str]) -> int:
    """One after the other; a failure does not stop the rest."""
    code, data_dir = DONE, paths.data_dir(arguments.data_dir)
    for name in names:
        try:
            if arguments.command == "check-pool":
                print(check_pool(name, arguments.words))
                continue
            if arguments.command == "fetch":
                hub.fetch(name, data_dir)
            print(check(name, data_dir))
        except DataError as error:
            code = REFUSED
            say(str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())
