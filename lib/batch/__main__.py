"""Notebooks without a browser: papermill, with every parameter checked before a kernel starts.

    python -m lib.batch run notebooks/1_simcse.ipynb -f params/paper/1_simcse.yaml -p seeds=[3]
    python -m lib.batch run notebooks/1_simcse.ipynb -f params/paper/1_simcse.yaml --dry-run
    python -m lib.batch sweep params/grids/simcse_seeds.yaml
    python -m lib.batch all --profile demo --report
    python -m lib.batch report --profile demo

Executed notebooks, also failed ones, are kept in runs/notebooks/<profile>/. A sweep file runs one notebook
with many parameters; its paths start at the repository:

    notebook: notebooks/0_start_here.ipynb
    base: params/demo/0_start_here.yaml                    # for all, from a file (optional)
    parameters: {corpus_size: 256}                         # for all (optional)
    grid: {seed: [1, 2], learning_rate: [1.0e-4, 5.0e-4]}  # every combination

Exit codes: 0 done, 1 a cell failed, 2 a wrong parameter or file (nothing was started), 130 interrupted,
138 the kernel was killed (of several notebooks: 1).
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from lib import paths
from lib.batch import report
from lib.batch.execute import execute, execute_all, finished, plan_of
from lib.batch.jobs import Job, expand, folder, single
from lib.checks import ConfigError, check_range
from lib.command import DONE, ended, say


def _run(args: Namespace) -> int:
    job = single(args.notebook, files=args.files, texts=args.texts, assignments=args.assignments, output=args.output)
    plan = plan_of(job)
    if not args.dry_run:
        return execute(job)
    print(plan.check().to_string() if plan and any(plan) else f"{job.notebook.name} trains nothing")
    return DONE


def _check(jobs: Sequence[Job], side_by_side: int) -> None:
    check_range("--jobs", side_by_side, 1)
    for job in jobs if side_by_side == 1 else ():  # side by side, each checks its own
        plan_of(job)


def _sweep(args: Namespace) -> int:
    jobs = expand(args.sweep)
    _check(jobs, args.jobs)
    remaining = [job for job in jobs if not finished(job)]
    for job in jobs:
        print(f"{'to run' if job in remaining else 'skipped':<12}{job.output}", flush=True)
    return DONE if args.dry_run else execute_all(remaining, args.jobs)


def _all(args: Namespace) -> int:
    jobs = []
    for notebook in sorted((paths.root() / "notebooks").glob("*.ipynb")):
        file = paths.root() / "params" / args.profile / f"{notebook.stem}.yaml"
        if not file.is_file() and args.profile != "demo":  # the defaults of a notebook are the demo
            say(f"{notebook.name} is skipped: there is no {file}")
            continue
        jobs.append(single(notebook, files=[file] if file.is_file() else []))
    _check(jobs, args.jobs)
    code = execute_all(jobs, args.jobs)
    if args.report:
        _report(args)
    return code


def _report(args: Namespace) -> int:
    executed = sorted(folder(args.profile).glob("*.ipynb"))
    if not executed:
        command = f"python -m lib.batch all --profile {args.profile}"
        raise ConfigError(f"{folder(args.profile)} has no executed notebook yet: start with `{command}`.")
    print(f"Report: {report.write(args.profile, executed)}")
    return DONE


def _parser() -> ArgumentParser:
    parser = ArgumentParser("python -m lib.batch", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    several = {"action": "append", "default": []}

    run = commands.add_parser("run", help="execute one notebook")
    run.add_argument("notebook", type=Path)
    run.add_argument("-f", dest="files", metavar="FILE", type=Path, **several, help="parameters in YAML")
    run.add_argument("-y", dest="texts", metavar="YAML", **several, help="parameters as YAML, wins over -f")
    run.add_argument("-p", dest="assignments", metavar="NAME=VALUE", **several, help="wins over -f and -y")
    run.add_argument("-o", dest="output", metavar="OUT.ipynb", type=Path, help="the executed notebook")
    run.add_argument("--dry-run", action="store_true", help="check, and list the runs")
    sweep = commands.add_parser("sweep", help="execute one notebook with many combinations of parameters")
    sweep.add_argument("sweep", metavar="SWEEP.yaml", type=Path)
    sweep.add_argument("--dry-run", action="store_true", help="check and list the combinations, run none")
    everything = commands.add_parser("all", help="execute every notebook")
    everything.add_argument("--report", action="store_true", help="write the HTML report afterwards")
    pages = commands.add_parser("report", help="write the executed notebooks as HTML")

    for command in (sweep, everything):
        command.add_argument(
            "--jobs", type=int, default=1, metavar="N", help="so many side by side, each in its process"
        )
    for command in (everything, pages):
        command.add_argument("--profile", choices=paths.PROFILES, default="demo")
    for command, function in {run: _run, sweep: _sweep, everything: _all, pages: _report}.items():
        command.set_defaults(function=function)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = _parser().parse_args(argv)
    return ended(lambda: args.function(args))


if __name__ == "__main__":
    sys.exit(main())
