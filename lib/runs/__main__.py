"""One training run from a parameter file, without a notebook."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

from lib import runs
from lib.batch.parameters import check, declared, notebook_of, read_assignment, read_file
from lib.checks import ConfigError, fit
from lib.command import DONE, FAILED, ended, say
from lib.config import RunConfig
from lib.distributed import processes
from lib.methods import REGISTRY, MethodSpec
from lib.training import NumericError


def read(file: Path, assignments: Sequence[str] = ()) -> RunConfig:
    """The run that a parameter file names, changed by `name=value`. Names that only the file's notebook reads (its sweeps) are
    checked and left out; raises ConfigError for no method, a name that nobody reads (of `name=value`: no run), or a wrong
    value."""
    values, notebook = read_file(file), notebook_of(file)
    given = [read_assignment({}, text)["method"] for text in assignments if text.startswith("method=")]
    if not (method := given[-1] if given else values.get("method")):
        raise ConfigError(f"{file} names no method: write `method: simcse` in it, or give -p method=simcse.")
    others = declared(notebook)[0] if notebook else {}
    kinds = get_type_hints(RunConfig)
    for name in MethodSpec.parse(fit("method", str, method)).names:
        kinds |= get_type_hints(REGISTRY[name].Arguments)
    values = check(others | kinds, values, str(file))
    for text in assignments:
        changed = check(others | kinds, read_assignment(others | kinds, text), "-p")
        if unread := sorted(set(changed) - set(kinds)):
            raise ConfigError(
                f"-p {text}: a run of {method} does not read {unread[0]}; give what it reads, such as seed=43."
            )
        values |= changed
    return RunConfig.from_parameters(values, others=others)


def main(argv: Sequence[str] | None = None) -> int:
    """`accelerate launch -m lib.runs -f params/paper/1_simcse.yaml`: train one run, also with several processes."""
    parser = argparse.ArgumentParser(prog="python -m lib.runs", description=main.__doc__)
    parser.add_argument("-f", "--file", type=Path, required=True, help="parameters in YAML")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="wins over FILE")
    args = parser.parse_args(argv)
    return ended(lambda: _train(args))


def _train(args: argparse.Namespace) -> int:
    try:
        run = runs.run(read(args.file, args.parameter))
    except NumericError as error:
        say(str(error))
        return FAILED
    if processes().is_main_process:
        print(f"{run.folder}  {json.dumps(run.metrics)}")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
