"""What a notebook is going to do, declared and checked before the first run trains; its cells take the runs by name."""

import inspect
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lib import results
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.distributed import processes
from lib.progress import progress
from lib.runs.measure import Encoder, Evaluation, check_task, dev_pairs, dev_row, load_tasks, pooling_of, scores
from lib.runs.prepare import Shared, encoder_name, preflight
from lib.runs.running import find, run
from lib.runs.store import Run
from lib.runs.trials import Best, Trial

RUN_COLUMNS = ["method", "settings", "seed", "sentences", "steps", "best_step", "dev", "run_id", "run"]


class Plan:
    """Every run of a notebook by the name of its group, and what they are measured by.

        plan = Plan("demo")
        plan.add("dropout", config, {"SimCSE": {}, ("SimCSE", "no dropout"): {"dropout": 0.0}}, seeds=[1, 2])
        plan.tasks("sts", ["demo"], config.data_folder())
        plan.check()
        scores = plan.measure("dropout", table="Table 3")

    Args:
        publish: whether measured rows are written to results/<profile>/<paper>.csv; refused in the demo profile, whose
            numbers are not results.
        paper: of all rows.
    """

    def __init__(self, profile: str, publish: bool = False, paper: str = "") -> None:
        if publish and (profile == "demo" or not paper):
            raise ConfigError(
                "publish: the plan names no paper, or has the demo profile, whose numbers are not results."
            )
        results.forget()
        self.profile, self.publishes, self.paper = profile, publish, paper
        self._groups: dict[str, list[Trial]] = {}
        self._evaluations: dict[str, dict[str, Evaluation]] = {}
        self._finished: dict[str, Run | None] = {}  # None: not in the store
        self._table: pd.DataFrame | None = None  # what `check` gave, until something changes
        self._shared = Shared()

    def __iter__(self) -> Iterator[Trial]:
        return itertools.chain.from_iterable(self._groups.values())

    # --- Declaring ---

    def add(
        self,
        group: str,
        config: RunConfig,
        variants: Mapping[str | tuple[str, str], Mapping[str, Any]],
        seeds: Sequence[int],
        after: Mapping[str, Trial | Best | tuple[Mapping[Any, Trial], Any]] | None = None,
        *,
        method: str | None = None,
        settings: str = "given",
    ) -> dict[tuple[Any, int], Trial]:
        """Add a run for every variant and every seed, which draws the sentences too.

        Runs of a group that come to the same are one, under their first name. Without variants or seeds the group is empty.

        Args:
            variants: name -> parameters and arguments that differ from config's. A name is a method, or a pair (method,
                settings); with `method` it is the settings of that method.
            after: parameter -> what gives its value: a trial, by its encoder, or Best; or a pair, trials that `add` gave and
                the name of one: that with the same seed.
            settings: of all variants whose name does not say them.

        Raises:
            ConfigError: a wrong value, or a name that nobody knows.
        """
        self._table, added, known = None, {}, self._groups.setdefault(group, [])
        for name, change in variants.items():
            called = (method, name) if method else name if isinstance(name, tuple) else (name, settings)
            for seed in seeds:
                starts = {
                    parameter: start[0][start[1], seed] if isinstance(start, tuple) else start
                    for parameter, start in (after or {}).items()
                }
                try:
                    before = {parameter: start.stand_in for parameter, start in starts.items()}
                    changed = config.replace(**{"seed": seed, "corpus_seed": seed, **change, **before})
                except ConfigError as error:
                    raise ConfigError(f"{group}, {', '.join(called)}: {error}") from None
                trial = Trial(group, *called, seed, changed, starts)
                added[name, seed] = next((one for one in known if one.key == trial.key), trial)
                if added[name, seed] is trial:
                    known.append(trial)
        return added

    def tasks(self, kind: str, names: Sequence[str], data_dir: Path, **how: Any) -> None:
        """Declare what `measure` takes as `kind`, read and checked now. Errors as `load_tasks`.

        Args:
            kind: sts, transfer, retrieval, beir, in-domain retrieval, clusters, mteb or pair.
            names: of the tasks; without any, `measure` gives no rows.
            how: clusters: `clusters`, numbers of them, 0 for that of the labels, and `layouts`, of the maps that
                will be made. pair: `subset` and `line`.
        """
        loaded, self._table = load_tasks(kind, names, data_dir, **how), None
        self._evaluations.setdefault(kind, {}).update({one.name: one for one in loaded})

    def check(self) -> pd.DataFrame:
        """Check every run that differs in more than its seed (data, backbone, memory, that the method fits), that its backbone
        knows the words of the tasks, and look which are in the store. Nothing is trained or written.

        Returns:
            Index group, of those that have runs; methods, runs, found (finished earlier) and to train. The last row is the
            sum, in which runs of several groups count once; they are to train in the first.

        Raises:
            ConfigError: which run, and what is wrong.
        """
        if self._table is None:
            checked, tasks = set(), [(kind, one) for kind, named in self._evaluations.items() for one in named.values()]
            for trial in self:
                config = trial.checked
                alike = json.dumps(_signs(config.as_dict() | {"seed": 0, "corpus_seed": 0}), sort_keys=True)
                if alike not in checked:
                    checked.add(alike)
                    try:
                        encoder = preflight(config, self._shared)
                        for kind, one in tasks if config.backbone not in checked else ():
                            check_task(one, encoder, f"{kind} tasks")
                        checked.add(config.backbone)
                    except (ConfigError, DataError, EncoderError) as error:
                        raise ConfigError(f"{trial.group}, {trial.method}, {trial.settings}: {error}") from error
            self._table = self._state()
            self._shared.clear()  # a plan may wait for its turn beside many others
        return self._table.copy()

    # --- Doing ---

    def runs(self, group: str) -> pd.DataFrame:
        """The runs of a group, trained now or found: RUN_COLUMNS, a row each; `sentences` are the rows of the corpus, and
        `run` is the Run. Raises ConfigError where the plan has no such group."""
        if group not in self._groups:
            raise ConfigError(f"the plan has no runs called {group!r}, only {', '.join(self._groups) or 'none'}.")
        rows, trials = [], self._groups[group]
        missing = [trial for trial in trials if self._finished.get(trial.key) is None]
        with progress(total=len(missing), label=group, enabled=bool(missing) and processes().is_main_process) as bar:
            for trial in trials:
                done = self._run(trial, label=f"{group}, run {bar.n + 1} of {len(missing)}")
                bar.update(trial in missing)
                row = {"method": trial.method, "settings": trial.settings, "seed": trial.seed} | done.metrics
                rows.append(row | {"sentences": done.provenance["rows"], "run_id": done.id, "run": done})
        return pd.DataFrame(rows, columns=RUN_COLUMNS)

    def measure(
        self,
        group: str | pd.DataFrame,
        what: str | Callable[[Any], pd.DataFrame] = "sts",
        *,
        table: str,
        **encoders: Run | Encoder | Sequence[Run | Encoder],
    ) -> pd.DataFrame:
        """Measure runs and encoders; the rows are added to `lib.results.rows`, and published where the plan publishes.

        Args:
            group: name of a group, or rows of `runs` or `with_encoders`. Columns that are conditions of a row (method, settings,
                backbone, ...) label it; an encoder in the column `encoder` is measured in place of the run's. "" for none.
            what: a kind declared with `tasks`; "dev", the dev score (no row with dev_task none); or a function that gives a
                frame with the measured columns (metric, value, perhaps step, layer, x, y ...), of a Run if its parameter
                is called `run`, else of an encoder.
            table: of the rows.
            encoders: method, such as `untuned` -> an encoder, or several that are read differently.
        """
        done = group if isinstance(group, pd.DataFrame) else self.runs(group) if group else pd.DataFrame()
        asked = [
            {"method": method, "run" if isinstance(one, Run) else "encoder": one}
            for method, several in encoders.items()
            for one in (several if isinstance(several, list | tuple) else [several])
        ]
        asked, rows = asked + done.to_dict("records"), []
        with progress(total=len(asked), label=table, enabled=processes().is_main_process) as bar:
            for row in asked:
                rows.append(self._measured(row, what, table))
                bar.update()
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=results.SHAPES["scores"])

    def _measured(self, row: Mapping[str, Any], what: str | Callable[[Any], pd.DataFrame], table: str) -> pd.DataFrame:
        done = row["run"] if isinstance(row.get("run"), Run) else None  # a frame has NaN where it has none
        of = row["encoder"] if isinstance(row.get("encoder"), Encoder) else done
        first, labels = next((trial.config for trial in self), None), {}
        if of is not done:
            labels["pooling"] = pooling_of(of)
        if done is None:
            labels |= {"backbone": encoder_name(first.backbone) if first else "", "profile": self.profile}
        labels |= {name: row[name] for name in results.CONDITIONS if name in row}
        if callable(what):
            takes_run = next(iter(inspect.signature(what).parameters)) == "run"
            frame = what(done if takes_run else done.encoder() if of is done else of)
        elif what == "dev":
            frame = dev_row(done) if of is done else scores(of, dev_pairs(done.config if done else first))
            frame = frame[frame.aggregation == "all"]
        elif what in self._evaluations:
            frame = scores(of, [*self._evaluations[what].values()])
        else:
            raise ConfigError(f"the plan has no tasks of the kind {what!r}: declare them with plan.tasks.")
        return results.add(frame, done, publish=self.publishes, **labels | {"paper": self.paper, "table": table})

    # --- Inside ---

    def _run(self, trial: Trial, *, train: bool = True, label: str = "train") -> Run | None:
        """The finished run, trained now if need be; without `train` None where the store lacks it, or what it starts from."""
        if self._finished.get(trial.key) is None and (train or trial.key not in self._finished):
            values, done = {name: self._value(start, train) for name, start in trial.after.items()}, None
            if train:
                self._shared.clear()  # whole corpora: training needs the memory
                done, self._table = run(trial.config.replace(**values), label=label), None
            elif None not in values.values():
                done = find(trial.config.replace(**values), self._shared)
            self._finished[trial.key] = done
        return self._finished[trial.key]

    def _value(self, start: Trial | Best, train: bool) -> Any:
        """Of a parameter that waits for it; None where it is not there yet and nothing is to be trained."""
        if isinstance(start, Best):
            finished = [self._run(trial, train=train) for trial in start.trials]
            return None if None in finished else start.value(finished)
        done = self._run(start, train=train)
        return done and str(done.folder / "encoder")

    def _state(self) -> pd.DataFrame:
        missing, rows = set(), []
        self._finished = {key: done for key, done in self._finished.items() if done}
        for group, trials in [(group, trials) for group, trials in self._groups.items() if trials]:
            found = [trial.key for trial in trials if self._run(trial, train=False)]
            new = {trial.key for trial in trials} - {*found} - missing
            missing |= new
            methods = ", ".join(dict.fromkeys(trial.config.method for trial in trials))
            rows.append([group, methods, len(trials), len(found), len(new)])
        found = {trial.key for trial in self} - missing
        whole = ["all", "", len(found) + len(missing), len(found), len(missing)]
        columns = ["group", "methods", "runs", "found", "to train"]
        return pd.DataFrame([*rows, whole] if rows else [], columns=columns).set_index("group")


def _signs(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, of numbers with a fraction only whether they are 0: how large they are was checked before."""
    plain = {name: bool(value) if isinstance(value, float) else value for name, value in values.items()}
    return {name: _signs(value) if isinstance(value, Mapping) else value for name, value in plain.items()}
