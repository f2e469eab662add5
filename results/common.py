"""What the scripts beside this file share: their arguments, and the configuration that all runs start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lib import paths
from lib.config import RunConfig


def parser(description: str, *, corpus: str, seeds: tuple[int, ...]) -> argparse.ArgumentParser:
    """--data-dir, --corpus and --seeds; the description is the script's doc string."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data-dir", required=True, help="folder with senteval/ and wiki/")
    made.add_argument("--corpus", default=corpus)
    made.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    return made


def small_config(arguments: argparse.Namespace, **values: Any) -> tuple[RunConfig, Path]:
    """The configuration in profile small with the checkpoint chosen on STS-B dev, and the data folder."""
    data_dir = paths.data_dir(arguments.data_dir)
    base = {"profile": "small", "data_dir": str(data_dir), "corpus": arguments.corpus, "dev_task": "STS-B"}
    return RunConfig(**(base | values)), data_dir
