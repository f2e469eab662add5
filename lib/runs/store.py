"""Finished runs on disk, their result rows, and the rows that are published."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pandas.api.types import is_float_dtype, is_numeric_dtype

from lib import paths, session
from lib.checks import DataError, refusal
from lib.config import RunConfig
from lib.data.sts import protocol
from lib.distributed import processes
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.heads import load_training_head
from lib.encoders.saved import write_json
from lib.evaluation import RESULT_COLUMNS
from lib.runs.prepare import FORMAT, encoder_name

# what the files of a run say at least
NAMES = {
    "config.yaml": ("method", "profile", "seed", "backbone"),
    "metrics.json": ("steps", "best_step", "dev"),
    "provenance.json": ("corpus", "rows", "commit"),
}
ROW_COLUMNS = ["paper", "table", "method", "backbone", "profile", *RESULT_COLUMNS, "seed", "run_id"]


@dataclass(frozen=True)
class Run:
    """A finished run: <runs>/<profile>/<id>/ with config.yaml, metrics.json, history.csv, provenance.json, encoder/."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def is_finished(self) -> bool:
        return (self.folder / "metrics.json").is_file()

    @cached_property
    def config(self) -> RunConfig:
        """Raises ConfigError when the run is older than this code, which does not know one of its parameters."""
        return RunConfig.from_parameters(self._stored_config)

    @cached_property
    def _stored_config(self) -> dict[str, Any]:
        return self._read("config.yaml", lambda text: _mapping(yaml.safe_load(text), NAMES["config.yaml"]))

    @cached_property
    def labels(self) -> dict[str, Any]:
        """Who, where and how, for result rows; also of a run whose parameters this code no longer knows."""
        backbone = self.provenance.get("backbone") or encoder_name(self._stored_config["backbone"])
        return _labels(self._stored_config, backbone, self.id)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """steps, best_step, dev (Spearman x100 of the chosen step; None without a dev task)."""
        return self._read("metrics.json", lambda text: _mapping(json.loads(text), NAMES["metrics.json"]))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return self._read("provenance.json", lambda text: _mapping(json.loads(text), NAMES["provenance.json"]))

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per step, see lib.training.Trained."""
        return self._read("history.csv", lambda text: pd.read_csv(io.StringIO(text)))

    def _read(self, name: str, parse: Callable[[str], Any]) -> Any:
        """Raises DataError when the run is not as it was written."""
        try:
            return parse((self._checked / name).read_text(encoding="utf8"))
        except PermissionError as error:
            raise DataError(refusal(error)) from error
        except (
            OSError,
            ValueError,
            RecursionError,
            yaml.YAMLError,
        ) as error:  # those of json and pandas are ValueErrors
            raise DataError(
                f"{self.folder / name} is damaged ({' '.join(str(error).split())}): delete {self.folder}, and it is trained "
                "again."
            ) from error

    @cached_property
    def _checked(self) -> Path:
        return paths.check_seal(self.folder, thorough=False)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration, less where things lie and what differs between seeds: all runs behind one mean agree."""
        left_out = {"profile", "data_dir", "corpus", "corpus_seed", "backbone", "seed", "trace_until"}
        values = {name: value for name, value in self.config.as_dict().items() if name not in left_out}
        models, arguments = self.config.needs.encoders | self.config.needs.generators, values["method_arguments"]
        return values | {"method_arguments": {n: v for n, v in arguments.items() if n not in models}}

    def encoder(self, *, training_head: bool = False, **options: Any) -> SentenceEncoder | ensemble.EncoderSum:
        """The trained encoder, or sum of encoders.

        Args:
            training_head: read through the projection that only training uses (the papers' "cls", not
                "cls_before_pooler").
            options: as in SentenceEncoder.from_pretrained.

        Raises:
            EncoderError: the run has no such projection.
            DataError: a file of the run was cut or changed.
        """
        paths.check_seal(self.folder)
        if training_head:
            options["projection"] = load_training_head(self.folder / "encoder")
        return ensemble.load(self.folder / "encoder", **options).to(processes().device)

    def results_file(self, name: str, key: Any = None) -> Path:
        """Where `results` keeps rows."""
        if key is not None:
            name += "-" + hashlib.sha256(json.dumps([FORMAT, key]).encode()).hexdigest()[:8]
        return self.folder / "results" / f"{name}.csv"

    def results(
        self, name: str, compute: Callable[[], pd.DataFrame], *, key: Any = None, **labels: str
    ) -> pd.DataFrame:
        """Result rows of this run: read from results/<name>.csv of its folder, or computed once and kept there.

        Args:
            key: whatever else the rows depend on (the list of tasks): another key is another file.
            compute: gives the columns RESULT_COLUMNS.
            labels: values of columns where they differ from the run's.
        """
        path = paths.made_once(self.results_file(name, key), lambda new: compute().to_csv(new, index=False))
        return label_rows(read_rows(path), self.labels, **labels)


def _mapping(content: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} where names and values are expected")
    if missing := [name for name in names if name not in content]:
        raise ValueError(f"it has no {missing[0]}")
    return content


def read_rows(path: Path) -> pd.DataFrame:
    """Result rows that were kept.

    Raises:
        DataError: the file holds no such rows.
    """
    try:
        rows = pd.read_csv(path, keep_default_na=False, na_values={"value": [""]})  # an empty label is no number
        if rows.empty or not {*RESULT_COLUMNS} <= {*rows}:
            raise ValueError(f"it has the columns {', '.join(map(str, rows))}")
        if not is_numeric_dtype(rows["value"]):
            raise ValueError("a value is no number")
    except (ValueError, pd.errors.ParserError) as error:  # pandas' and those of the encoding among them
        raise DataError(f"{path} is damaged ({error}): delete it, and it is measured again.") from error
    return rows


def _labels(config: Mapping[str, Any], backbone: str, run_id: str) -> dict[str, Any]:
    values = {name: config[name] for name in ("method", "profile", "seed")}
    return values | {"paper": config["method"], "table": "", "backbone": backbone, "run_id": run_id}


def config_labels(config: RunConfig) -> dict[str, Any]:
    """The labels of rows that belong to no run, for example of an untuned backbone."""
    return _labels(config.as_dict(), encoder_name(config.backbone), "")


def label_rows(frame: pd.DataFrame, labels: Mapping[str, Any], **changes: Any) -> pd.DataFrame:
    """Evaluation rows with the tidy columns ROW_COLUMNS: `labels` (Run.labels, `config_labels`), then `changes`."""
    return frame.assign(**(dict(labels) | changes))[ROW_COLUMNS]


def dev_rows(done: pd.DataFrame, **labels: Any) -> pd.DataFrame:
    """The dev scores of the checkpoints of runs as result rows.

    Args:
        done: what `Plan.runs` gives; its columns backbone, method and table, where it has them, label the rows.
        labels: as in `label_rows`.
    """
    rows = []
    for one in done.to_dict("records"):
        run, columns = one["run"], {name: one[name] for name in ("backbone", "method", "table") if name in one}
        task = run.config.dev_task
        row = [task, "dev", protocol(task, "dev"), "all", "spearman", run.metrics["dev"]]
        rows.append(label_rows(pd.DataFrame([row], columns=RESULT_COLUMNS), run.labels, **labels | columns))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=ROW_COLUMNS)


def histories(done: pd.DataFrame) -> pd.DataFrame:
    """The histories of runs below each other, with the columns method and seed. done: what `Plan.runs` gives."""
    return pd.concat([row.run.history.assign(method=row.method, seed=row.seed) for row in done.itertuples()])


def publish(frame: pd.DataFrame, profile: str, name: str, note: str) -> Path:
    """Write measured rows to results/<profile>/<name>.csv, values to two decimals, with a provenance file beside it.

    Rows that were published under this name and are not measured again stay, with their provenance (a long series of
    runs may be made on several machines, and every encoder is measured by itself).

    Args:
        frame: value and further columns with a fraction are measured, all others but run_id tell rows apart.
        note: one sentence for the provenance: what was measured; those of rows that stay are kept.

    Raises:
        DataError: the file has other columns, two rows differ in measured values alone, a run is not in the store, or a
            mean over seeds would mix runs of different settings.
    """
    path = _published_file(profile, name)
    beside = path.with_suffix(".provenance.json")
    frame = frame.assign(value=frame.value.astype(float).round(2)).astype({"seed": str, "run_id": str})
    if len(unlabelled := [name for name in RESULT_COLUMNS if name != "value" and is_float_dtype(frame.get(name))]):
        raise DataError(f"{path.name}: {unlabelled[0]} is missing, or a number, in every row; nothing was published.")
    same = [column for column in frame if column != "run_id" and not is_float_dtype(frame[column])]
    frame = frame.drop_duplicates()
    if len(twice := frame[frame.duplicated(same)]):
        called = ", ".join(map(str, twice[same].iloc[0]))
        raise DataError(f"{name}: two rows with other values are both called {called}; nothing was published.")
    measured = [Run(paths.runs() / profile / run_id) for run_id in sorted({*frame.run_id} - {""})]
    if gone := [run.id for run in measured if not run.is_finished]:
        raise DataError(f"{gone[0]} is not in the store: rows are published where their runs are.")
    sources, notes = {}, []
    path.parent.mkdir(parents=True, exist_ok=True)
    with paths.locked(path):
        if path.is_file():
            text = [column for column in frame if not is_numeric_dtype(frame[column])]  # "1" is read back as a number
            earlier = published(profile, name, columns=list(frame)).astype(dict.fromkeys(text, str))
            both = pd.concat([earlier, frame], ignore_index=True)
            frame = both.groupby(same, sort=False, as_index=False, dropna=False).last(skipna=False)[list(both)]
            provenance = paths.read_json(beside)
            sources, notes = provenance["runs"], [other for other in provenance["notes"] if other != note]
        sources |= {run.id: run.provenance | {"settings": run.settings} for run in measured}
        sources = {run_id: sources[run_id] for run_id in sorted({*frame.run_id} - {""})}
        _check_settings(frame, sources, path)
        text = frame.to_csv(index=False, lineterminator="\n")
        digest = hashlib.sha256(text.encode()).hexdigest()
        with paths.whole_file(beside) as new:
            write_json(new, {"notes": [*notes, note], "sha256": digest, **session.environment(), "runs": sources})
        with paths.whole_file(path) as new:
            new.write_text(text, encoding="utf8", newline="\n")
    return path


def _check_settings(frame: pd.DataFrame, sources: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Raise DataError where rows with the same labels, which tables average, come from runs of different settings."""
    labels = [name for name in ("paper", "table", "method", "encoder", "backbone") if name in frame]
    for who, rows in frame[frame.run_id != ""].groupby(labels, sort=False):
        known = [{"rows": source["rows"]} | source.get("settings", {}) for source in map(sources.get, {*rows.run_id})]
        for name in sorted(set.union(*map(set, known))):
            values = {json.dumps(settings[name], sort_keys=True) for settings in known if name in settings}
            if len(values) > 1:
                raise DataError(
                    f"{path}: the rows {', '.join(filter(None, who))} would come from runs with different {name} "
                    f"({' and '.join(sorted(values))}): measure every seed again with the same settings, or delete these "
                    "rows first."
                )


def published(profile: str, name: str, *, columns: Sequence[str] = tuple(ROW_COLUMNS)) -> pd.DataFrame:
    """Rows that `publish` wrote earlier; an empty frame with these columns when there are none.

    Raises:
        DataError: the file was changed by hand, or has other columns.
    """
    path = _published_file(profile, name)
    beside = path.with_suffix(".provenance.json")
    if not path.is_file():
        if beside.exists() or path.exists():
            raise DataError(f"{path} is gone, and {beside.name} says that it was published: restore both from git.")
        return pd.DataFrame(columns=list(columns))
    try:
        written = paths.read_json(beside)["sha256"]
    except (DataError, KeyError) as error:
        raise DataError(f"{beside} does not say what was published ({error}): restore it from git.") from error
    if written != hashlib.sha256(path.read_bytes()).hexdigest():
        raise DataError(f"{path} was cut or changed since it was published: restore it and {beside.name} from git.")
    frame = pd.read_csv(path, keep_default_na=False)
    if list(frame) != list(columns):
        raise DataError(
            f"{path} has the columns {', '.join(map(str, frame))}, and {', '.join(columns)} were expected: it is another "
            "version's file or was edited; restore it from git, or delete it and publish again."
        )
    return frame


def _published_file(profile: str, name: str) -> Path:
    return paths.root() / "results" / profile / f"{name}.csv"
