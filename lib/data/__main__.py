"""`python -m lib.data fetch [wiki1m] [nli] [senteval]`: fill data_dir from the hub and say what is whole.

`count-words FILE...` prints the 300 most frequent words of text files as word,count; `check-pool FILE` says whether its
sentences can be a pool of 3R's: each of these words (--words: of another list) at least twice, at most 32 words each.
`write-pool FILE --endpoint URL --model NAME` asks a language model for such sentences, through OpenAI's chat protocol, with
the key in the variable that --key-variable names.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
from functools import partial
from pathlib import Path

from lib import paths
from lib.checks import ConfigError, DataError
from lib.command import DONE, REFUSED, ended, say
from lib.data import exemplars, hub, load_corpus, load_sts, load_transfer, pool_writer
from lib.data.files import manifest, read_lines
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


def count_words(files: list[str]) -> None:
    """Print the table."""
    lines = itertools.chain.from_iterable(read_lines(paths.expanded(file)) for file in files)
    csv.writer(sys.stdout, lineterminator="\n").writerows([("word", "count"), *exemplars.count_words(lines)])


def check_pool(file: str, words: str) -> str:
    """What a good pool is; raises DataError for a bad one."""
    pool, wanted = exemplars.load_pool(file), exemplars.load_words(words)
    if faults := exemplars.pool_faults(pool, wanted):
        raise DataError(f"{file}: {'; '.join(faults)}.")
    uses = sum(len(exemplars.words_of(sentence)) for sentence in pool)
    return (
        f"{file}: {len(pool)} sentences of {uses / len(pool):.0f} words, each of the {len(wanted)} words at least twice"
    )


def write_pool(arguments: argparse.Namespace) -> str:
    """Ask the user's endpoint until the pool is one; raises DataError when it cannot be."""
    if not (arguments.endpoint and arguments.model and len(arguments.names) == 1):
        raise DataError("write-pool needs one file, --endpoint and --model.")
    key, path = os.environ.get(arguments.key_variable, ""), paths.expanded(arguments.names[0])
    answer = partial(pool_writer.ask, arguments.endpoint, arguments.model, key=key, timeout=arguments.timeout)
    size = pool_writer.write_pool(path, exemplars.load_words(arguments.words), answer)
    return f"{path}: {size} sentences"


def main(argv: list[str] | None = None) -> int:
    names = list(manifest()["hub"]["files"])
    parser = argparse.ArgumentParser(prog="python -m lib.data", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = ["fetch", "check", "count-words", "check-pool", "write-pool"]
    parser.add_argument("command", choices=commands, help="fetch what is missing, or only check; or see above")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(names)}, all by default; or files")
    parser.add_argument("--data-dir", default="", help="default: CSE_DATA, else data/ in the repository")
    parser.add_argument("--words", default="", help="a table word,count for check-pool; default: the shipped one")
    parser.add_argument("--endpoint", default="", help="of write-pool: base URL, for example http://localhost:8000/v1")
    parser.add_argument("--model", default="", help="of write-pool: the model's name there")
    parser.add_argument("--key-variable", default="OPENAI_API_KEY", help="environment variable with the key, if any")
    parser.add_argument("--timeout", type=float, default=60.0, help="of write-pool: seconds for one answer")
    arguments = parser.parse_args(argv)
    return ended(lambda: _done(arguments, names))


def _done(arguments: argparse.Namespace, names: list[str]) -> int:
    if arguments.command in ("fetch", "check"):
        return _all_checked(arguments, names)
    if not arguments.names:
        raise ConfigError(f"{arguments.command} needs at least one file.")
    if arguments.command == "count-words":
        count_words(arguments.names)
    elif arguments.command == "write-pool":
        print(write_pool(arguments))
    else:
        for file in arguments.names:
            print(check_pool(file, arguments.words))
    return DONE


def _all_checked(arguments: argparse.Namespace, names: list[str]) -> int:
    """Fetch or check one after the other; a failure does not stop the rest."""
    code, data_dir = DONE, paths.data_dir(arguments.data_dir)
    for name in arguments.names or names:
        try:
            if arguments.command == "fetch":
                hub.fetch(name, data_dir)
            elif name not in names:
                raise DataError(f"{name!r} is not known: choose from {', '.join(names)}.")
            print(check(name, data_dir))
        except DataError as error:
            code = REFUSED
            say(str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())
