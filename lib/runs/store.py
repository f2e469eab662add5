"""Finished runs on disk, and the rows that were measured of them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lib import paths
from lib.checks import ConfigError, DataError
from lib.config import RunConfig
from lib.distributed import processes
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import RESULT_COLUMNS
from lib.runs.prepare import FORMAT, as_before, encoder_name


@dataclass(frozen=True)
class Run:
    """A finished run: <runs>/<profile>/<id>/ with config.yaml, metrics.json, history.csv, provenance.json, encoder/."""

    folder: Path
    asked: RunConfig | None = field(default=None, compare=False)  # says where its data lie now

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def is_finished(self) -> bool:
        return (self.folder / "metrics.json").is_file()

    @cached_property
    def config(self) -> RunConfig:
        """Raises ConfigError when the run is older than this code, which does not know one of its parameters."""
        if self.asked:
            return self.asked
        return RunConfig.from_parameters(yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf8")))

    @cached_property
    def labels(self) -> dict[str, Any]:
        """method, backbone and seed."""
        backbone = self.provenance.get("backbone") or encoder_name(self.config.backbone)
        return {"method": self.config.method, "backbone": backbone, "seed": self.config.seed}

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """steps, best_step, dev (Spearman x100 of the chosen step; None without a dev task)."""
        return paths.read_json(self.folder / "metrics.json")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return paths.read_json(self.folder / "provenance.json")

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per step, see lib.training.Trained; dev, alignment and uniformity are NaN without a dev task."""
        frame = pd.read_csv(self.folder / "history.csv")
        return frame.reindex(columns=frame.columns.union(["dev", "alignment", "uniformity"], sort=False))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration, less where things lie and what differs between seeds: all runs behind one mean agree."""
        left_out = {"profile", "data_dir", "corpus", "corpus_seed", "backbone", "seed", "trace_until"}
        values = as_before({name: value for name, value in self.config.as_dict().items() if name not in left_out})
        models, arguments = self.config.needs.encoders | self.config.needs.generators, values["method_arguments"]
        return values | {"method_arguments": {n: v for n, v in as_before(arguments).items() if n not in models}}

    def encoder(self, **options: Any) -> SentenceEncoder | ensemble.EncoderSum:
        """The trained encoder, or sum of encoders; options and errors as in SentenceEncoder.from_pretrained."""
        return ensemble.load(self.folder / "encoder", **options).to(processes().device)

    def results(self, name: str, compute: Callable[[], pd.DataFrame], *, key: Any = None) -> pd.DataFrame:
        """RESULT_COLUMNS of this run: read from results/<name>.csv of its folder, or computed once and kept there.

        key: whatever else the rows depend on (the list of tasks): another key is another file.
        """
        if key is not None:
            name += "-" + paths.digest([FORMAT, key])[:8]
        return kept_rows(self.folder / "results" / f"{name}.csv", compute)


def find_run(name: str) -> Run | None:
    """The finished run of this folder, of this id in the store, or whose encoder this folder is; None where there is none.
    Raises ConfigError where the folder is a run that was not finished."""
    places = [Path(name).expanduser(), paths.root() / name]
    if len(Path(name).parts) == 1:
        places += [paths.runs() / profile / name for profile in paths.PROFILES]
    places = [place.parent if place.name == "encoder" else place for place in map(Path, map(os.path.realpath, places))]
    of_runs = (place for place in places if (place / "config.yaml").is_file() and not (place / "config.json").exists())
    run = next(map(Run, of_runs), None)
    if run and not run.is_finished:
        raise ConfigError(f"{run.folder} is a run without metrics.json: it was cut or copied in part, train it again.")
    return run


def read_rows(path: Path) -> pd.DataFrame:
    """RESULT_COLUMNS that were kept; raises DataError where the file holds no such rows."""
    try:  # an empty label is no number
        rows = pd.read_csv(path, keep_default_na=False, na_values={"value": [""]}, dtype={"value": float})
        if rows.empty or not {*RESULT_COLUMNS} <= {*rows}:
            raise ValueError(f"it has the columns {', '.join(map(str, rows))}")
    except ValueError as error:  # pandas' and those of the encoding among them
        raise DataError(f"{path} is damaged ({error}): delete it, and it is measured again.") from error
    return rows[RESULT_COLUMNS]


def kept_rows(path: Path, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """RESULT_COLUMNS from this file, or computed once and kept there."""
    return read_rows(paths.made_once(path, lambda new: compute().to_csv(new, index=False)))
