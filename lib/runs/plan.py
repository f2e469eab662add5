"""What a notebook is going to do, declared and checked before the first run trains; its cells take the runs by name."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib.checks import ConfigError, DataError, EncoderError, check_choice
from lib.config import RunConfig
from lib.data import Corpus, STSTask, load_sts
from lib.data.labelled import load_labelled
from lib.data.retrieval import load_retrieval
from lib.data.sts import STS_TASKS
from lib.data.transfer import TRANSFER_TASKS, load_transfer
from lib.distributed import processes
from lib.encoders import SentenceEncoder, ensemble, mini_bert
from lib.evaluation import RESULT_COLUMNS, evaluate_transfer, in_domain_retrieval
from lib.evaluation.clustering import LAYOUTS, evaluate_clustering
from lib.evaluation.interface import Encode
from lib.evaluation.mteb_tasks import BEIR_TASKS, FIGURE_5_TASKS, evaluate_mteb, load_mteb
from lib.evaluation.retrieval import evaluate_retrieval
from lib.evaluation.sts import evaluate_pair
from lib.progress import is_wanted, progress
from lib.runs import store, times
from lib.runs.prepare import Shared, preflight
from lib.runs.running import find, run
from lib.runs.scoring import Scores
from lib.runs.store import Run

EXPECTED_WEIGHT = 60.0  # seconds that a bar counts as gone by as expected, so that one slow first step does not decide
REST, SECONDS_OF_THE_REST = "rest of ", 60.0  # kernel, tables and figures; seconds where no notebook was measured yet


@dataclass(frozen=True, eq=False)
class Made:
    """A backbone that the notebook makes itself.

    name: for messages. make: gives its folder, from a cache or made now. is_made: whether the cache has it.
    stand_in: a folder with an encoder of the same shape, for the checks before it is made.
    """

    name: str
    make: Callable[[], Path]
    is_made: Callable[[], bool]
    stand_in: str


def made_from_text(text: Corpus, **shape: Any) -> Made:
    """A start that is built from the text when it is first needed; shape: see `mini_bert.start`."""
    folder, stand_in = mini_bert.start_folder(text, **shape), str(mini_bert.stand_in(text, **shape))
    return Made(folder.name, lambda: mini_bert.start(text, **shape), folder.is_dir, stand_in)


@dataclass(frozen=True, eq=False)
class Best:
    """The value that a parameter of RunConfig has in the run with the best dev score, the first of equal ones.

    trials: that differ in it. Until they are trained, the first one's value stands in (also in expected times).
    """

    parameter: str
    trials: Sequence[PlannedRun]

    @property
    def stand_in(self) -> Any:
        return getattr(self.trials[0].config, self.parameter)

    def value(self, finished: Sequence[Run]) -> Any:
        """finished: the trials, in their order."""
        best = max(range(len(finished)), key=lambda i: finished[i].metrics["dev"])
        return getattr(self.trials[best].config, self.parameter)


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a plan.

    labels: what names it in its group. config: the run, with a stand-in for all that the plan makes or chooses first.
    starts: parameter or argument -> the planned run, or Made, whose encoder it takes, or Best, which gives its value.
    """

    group: str
    labels: Mapping[str, Any]
    config: RunConfig
    starts: Mapping[str, PlannedRun | Made | Best] = field(default_factory=dict)

    @property
    def stand_in(self) -> str:
        return self.config.backbone

    @property
    def trial(self) -> RunConfig:
        """The run as it can be checked and timed now: a stand-in has no heads that its backbone will bring."""
        if "backbone" not in self.starts:
            return self.config
        values = self.config.method_arguments
        others = self.config.spec.without_saved_heads()
        return self.config.replace(**{name: other for name, other in others.items() if values[name] == "pretrained"})

    @property
    def identity(self) -> tuple:
        """Equal for plans of the same run in several groups."""
        origins = {name: getattr(start, "identity", start) for name, start in self.starts.items()}
        return (self.config, *sorted(origins.items(), key=lambda item: item[0]))

    @property
    def name(self) -> str:
        return ", ".join([self.group, *([_spelt(self.labels)] if self.labels else [])])


class Plan:
    """Every run of a notebook by the name of its group, and the evaluations that follow.

        plan = Plan("demo")
        plan.grid("dropout", config, {"dropout": [0.0, 0.1], "seed": [1, 2]})
        plan.preflight()
        frame = plan.runs("dropout")

    Args:
        profile: of the notebook.
        publish: whether `publish` writes; refused in the demo profile, whose numbers are not results.
    """

    def __init__(self, profile: str, *, publish: bool = False) -> None:
        if publish and profile == "demo":
            raise ConfigError("publish: the numbers of the demo profile are not results; take profile small or paper.")
        self.profile, self.publishes = profile, publish
        self._scores = Scores([])
        self._to_score = 0  # encoders that are still to be scored
        self._groups: dict[str, list[PlannedRun]] = {}
        self._finished: dict[PlannedRun, Run] = {}
        self._expected: dict[PlannedRun, float] | None = None  # seconds of the runs that were missing at first
        self._per_score: float | None = None  # seconds expected
        self._total = self._done = 0.0  # of the bar, in expected seconds
        self._spent = self._given = 0.0  # seconds that what is done took; expected seconds of what was found instead
        self._shared = Shared()

    # --- Declaring ---

    def run(
        self,
        group: str,
        config: RunConfig,
        *,
        starts: Mapping[str, PlannedRun | Made | Best] | None = None,
        **labels: Any,
    ) -> PlannedRun:
        """Add one run.

        Args:
            labels: columns of the group's table; seed where nothing is given.
            starts: parameter or argument (backbone, teacher, ...) -> what makes the encoder that it names, or chooses
                its value.

        Raises:
            ConfigError: the group has a run of this name, or this very run, already.
        """
        starts = dict(starts or {})
        if starts:
            config = config.replace(**{name: start.stand_in for name, start in starts.items()})
        planned = PlannedRun(group, labels or {"seed": config.seed}, config, starts)
        for other in self._groups.get(group, []):
            if other.labels == planned.labels or (other.config == config and other.starts == starts):
                raise ConfigError(f"the plan names the same run twice: {other.name}; and again: {planned.name}.")
        self._groups.setdefault(group, []).append(planned)
        return planned

    def grid(
        self,
        group: str,
        config: RunConfig,
        values: Mapping[str, Sequence[Any]],
        *,
        starts: Mapping[str, PlannedRun | Made | Best] | None = None,
        **labels: Any,
    ) -> list[PlannedRun]:
        """Add one run for every combination of values: parameter or method argument -> values; none without parameters.

        Raises:
            ConfigError: an empty list, a wrong value, or a value twice.
        """
        self._groups.setdefault(group, [])
        if empty := [name for name, several in values.items() if not len(several)]:
            raise ConfigError(f"{group}: the list of values for {empty[0]} is empty; give at least one.")
        planned = []
        for chosen in itertools.product(*values.values()) if values else ():
            varied = dict(zip(values, chosen, strict=True))
            try:
                changed = config.replace(**varied)
            except ConfigError as error:
                raise ConfigError(f"{group}, {_spelt(varied)}: {error}") from None
            planned.append(self.run(group, changed, starts=starts, **labels | varied))
        return planned

    def variants(
        self,
        group: str,
        config: RunConfig,
        changes: Mapping[str, Mapping[str, Any]],
        seeds: Sequence[int],
        *,
        starts: Mapping[str, PlannedRun | Made | Best] | None = None,
        distinct: bool = False,
        **labels: Any,
    ) -> list[PlannedRun]:
        """Add one run for every named change of the configuration and every seed, which draws the sentences too.

        Args:
            changes: name, which becomes the label `method` -> parameters and arguments that differ from config's.
            seeds: without any, or without changes, the group has no run: it is left out.
            starts: see `run`.
            distinct: leave out changes that come to the same as an earlier one, in place of refusing them: switches to
                what the parameters say already.

        Raises:
            ConfigError: a wrong value, or one run twice.
        """
        self._groups.setdefault(group, [])
        planned, earlier = [], set()
        for name, change in changes.items():
            same = []
            for seed in seeds:
                varied = {"method": name} | labels | {"seed": seed}
                try:
                    changed = config.replace(**change, seed=seed, corpus_seed=seed)
                except ConfigError as error:
                    raise ConfigError(f"{group}, {_spelt(varied)}: {error}") from None
                if changed not in earlier:
                    planned.append(self.run(group, changed, starts=starts, **varied))
                same.append(changed)
            earlier.update(same if distinct else [])
        return planned

    def values(
        self,
        group: str,
        config: RunConfig,
        parameter: str,
        values: Sequence[Any],
        seeds: Sequence[int],
        *,
        spelt: str = "{}",
        also: Mapping[str, Mapping[str, Any]] | None = None,
        **how: Any,
    ) -> list[PlannedRun]:
        """Add one run for every value of a parameter or argument, and every seed, which draws the sentences too.

        Args:
            values: repeated ones count once; numbers are sorted; without any the group has no run. spelt: the label
                `method` of a value. also: changes (see `variants`) that stand in the same table.
            how: see `variants`.
        """
        values = list(dict.fromkeys(values))
        if all(isinstance(value, int | float) for value in values):
            values = sorted(values)
        changes = {spelt.format(value): {parameter: value} for value in values}
        if changes:
            changes |= also or {}
        return self.variants(group, config, changes, seeds, **how)

    def rates(
        self,
        group: str,
        config: RunConfig,
        methods: Mapping[str, Mapping[str, Any]],
        rates: Mapping[str, Sequence[float]] | Sequence[float],
        seeds: Sequence[int],
        *,
        tried: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        size: int = 0,
        **how: Any,
    ) -> list[PlannedRun]:
        """Add one run for every method, each of its learning rates, and every seed: what a rate is chosen by.

        Args:
            methods: name -> parameters and arguments that differ from config's. rates: of all methods, or by name.
            tried: name of a method -> further changes, each at every rate; values that differ stand in the label.
            size: sentences of these runs, then in the label too; 0: config's.
            how: see `variants`.
        """
        suffix = f", {size:,} sentences" if size else ""
        config, changes = config.replace(corpus_size=size or config.corpus_size), {}
        for name, change in methods.items():
            method = config.replace(**change)
            for further in ({}, *(tried or {}).get(name, ())):
                values = [f"{value}" for knob, value in further.items() if method.replace(**{knob: value}) != method]
                for rate in sorted(set(rates[name] if isinstance(rates, Mapping) else rates)):
                    label = f"{', '.join([name, *values])}{suffix}, rate {rate:g}"
                    changes[label] = {**change, **further, "learning_rate": rate}
        return self.variants(group, config, changes, seeds, **how)

    def few_shot(
        self,
        group: str,
        config: RunConfig,
        methods: Mapping[str, Mapping[str, Any]],
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> list[PlannedRun]:
        """Add one run for every number of sentences, method and seed, all with as many steps as config's sentences take.

        Args:
            methods: see `rates`. sizes: besides config's own. The label `sentences` names the size.

        Raises:
            ConfigError: a size below 1.
        """
        if any(size < 1 for size in sizes):
            raise ConfigError(f"few_shot_sizes {list(sizes)}: give numbers of sentences, from 1.")
        whole = times.steps(config.replace(max_steps=0))
        planned = []
        for size in sorted({*sizes, config.corpus_size}):
            change = {"corpus_size": size, "epochs": -(-whole // -(-size // config.batch_size)), "max_steps": whole}
            few = config if size == config.corpus_size else config.replace(**change)
            planned += self.variants(group, few, methods, seeds, sentences=size)
        return planned

    def sts(self, names: Sequence[str], data_dir: Path, *, encoders: int) -> list[STSTask]:
        """The STS tasks (test) that `score` takes, read now.

        Args:
            encoders: how many the notebook scores, for the expected time; a sum of encoders scored before it is none.

        Raises:
            ConfigError: no task, one twice, or several without the average that tables quote.
            DataError: unknown, missing or truncated.
        """
        several = len(names) != 1 and not set(STS_TASKS) <= set(names)  # they would have no average
        if several or len(set(names)) < len(names):
            seven = ", ".join(STS_TASKS)
            raise ConfigError(f"evaluation_tasks {list(names)}: give one task, or {seven}, each once.")
        self._scores.tasks, self._to_score = [load_sts(data_dir, name) for name in names], encoders
        return self._scores.tasks

    def transfer(self, names: Sequence[str], data_dir: Path) -> None:
        """The transfer tasks that `evaluate` takes as `transfer`, checked now.

        Raises:
            ConfigError: one is unknown, or named twice.
            DataError: missing or truncated.
        """
        self._check_once("transfer_tasks", names)
        for name in names:
            check_choice("transfer_tasks", name, TRANSFER_TASKS)
            load_transfer(data_dir, name)
            self._evaluation("transfer", name, name, partial(evaluate_transfer, data_dir=data_dir, tasks=(name,)))

    def retrieval(self, names: Sequence[str], data_dir: Path, *, beir: Sequence[str] = (), pairs: str = "") -> None:
        """What `evaluate` takes as `retrieval`, `BEIR` and `in-domain retrieval`, read now.

        Args:
            names: collections below data_dir.
            beir: sets of BEIR_TASKS.
            pairs: the STS task among whose test pairs partners are searched, with both kinds of queries; empty: none.

        Raises:
            ConfigError: a name twice, or unknown.
            DataError: missing, truncated, or a set of BEIR that cannot be fetched.
        """
        self._check_once("retrieval_tasks", names)
        for task in [load_retrieval(data_dir, name) for name in names]:
            self._evaluation("retrieval", task.name, task.fingerprint(), partial(evaluate_retrieval, task=task))
        self._check_once("beir_tasks", beir)
        for name, task in load_mteb(beir, BEIR_TASKS, "beir_tasks", data_dir).items():
            self._evaluation("BEIR", name, task.key(), partial(evaluate_mteb, tasks={name: task}))
        if pairs:
            task = load_sts(data_dir, pairs)
            sides = {"sentences1": task.sentences1, "sentences2": task.sentences2, "gold": task.gold}
            for queries in ("first", "both"):
                ask = partial(in_domain_retrieval, queries=queries, **sides)
                self._evaluation("in-domain retrieval", queries, task.fingerprint(), ask)

    def pair(self, name: str, subset: str, line: int, data_dir: Path) -> None:
        """One test pair of an STS task, whose cosine `evaluate` takes as `pair`: see `evaluation.sts.evaluate_pair`."""
        task = load_sts(data_dir, name)
        ask = partial(evaluate_pair, task=task, subset=subset, line=line)
        self._evaluation("pair", f"{name}-{subset}-{line}", task.fingerprint(), ask)

    def mteb(self, names: Sequence[str], data_dir: Path) -> None:
        """Tasks of FIGURE_5_TASKS that `evaluate` takes as `MTEB`, read now.

        Raises:
            ConfigError: a name twice, or unknown.
            DataError: a task that cannot be fetched.
        """
        self._check_once("mteb_tasks", names)
        for name, task in load_mteb(names, FIGURE_5_TASKS, "mteb_tasks", data_dir).items():
            self._evaluation("MTEB", name, task.key(), partial(evaluate_mteb, tasks={name: task}))

    def clustering(
        self, names: Sequence[str], data_dir: Path, *, clusters: Sequence[int] = (0,), layouts: Sequence[str] = ()
    ) -> None:
        """The texts whose clusters `evaluate` compares with their labels as `clustering`, read now.

        Args:
            names: see `load_labelled`. clusters: k of K-Means; 0 is the number of labels. layouts: of maps, to check.

        Raises:
            ConfigError: a name twice, a k that is none for one of them, or an unknown layout.
            DataError: unknown, missing or truncated.
        """
        self._check_once("clustering_tasks", names)
        for layout in layouts:
            check_choice("layouts", layout, LAYOUTS)
        tasks = [load_labelled(data_dir, name) for name in names]
        self._check_once("clustering_tasks", [task.name for task in tasks])
        self._check_once("clusters", clusters)
        if not len(clusters):
            raise ConfigError("clusters is empty: give at least one number, 0 for the number of labels.")
        for task in tasks:
            for k in clusters:
                if k and not 2 <= k <= len(task):
                    raise ConfigError(
                        f"clusters {k}: {task.name} has {len(task):,} texts, ask for 2 to {len(task)}, or 0."
                    )
            cluster = partial(evaluate_clustering, task=task, clusters=tuple(clusters))
            self._evaluation("clustering", task.name, [task.fingerprint(), *clusters], cluster)

    def _check_once(self, parameter: str, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            raise ConfigError(f"{parameter} {list(names)} names one twice.")

    def _evaluation(self, kind: str, name: str, key: str, evaluate: Callable[[Encode], pd.DataFrame]) -> None:
        self._scores.evaluations.setdefault(kind, {})[f"{kind.replace(' ', '-')}-{name}"] = key, evaluate

    # --- Asking ---

    def __iter__(self) -> Iterator[PlannedRun]:
        return itertools.chain.from_iterable(self._groups.values())

    def preflight(self) -> None:
        """Check every run that differs in more than its seed: data, backbone, memory, and that the method fits.

        Raises:
            ConfigError: one sentence saying which run, what is wrong and what to do.
        """
        asked = set()
        for planned in self:
            alike = json.dumps(_signs(planned.config.as_dict() | {"seed": 0, "corpus_seed": 0}), sort_keys=True)
            if alike not in asked:
                asked.add(alike)
                try:
                    preflight(planned.trial, self._shared)
                except (ConfigError, DataError, EncoderError) as error:
                    raise ConfigError(f"{planned.name}: {error}") from error
        self._shared.clear()  # a plan may wait for its turn beside many others

    def table(self) -> pd.DataFrame:
        """Group -> how many runs, and their methods; runs that several groups share count once, in the first."""
        seen, rows = set(), []
        for group, several in self._groups.items():
            new = {planned.identity for planned in several} - seen
            seen |= new
            methods = ", ".join(dict.fromkeys(p.config.method for p in several))
            rows.append({"group": group, "method": methods, "runs": len(several), "new here": len(new)})
        return pd.DataFrame(rows, columns=["group", "method", "runs", "new here"]).set_index("group")

    def state(self) -> pd.DataFrame:
        """Group -> runs that are `found` in the store and `to train`, and the `seconds` expected for these."""
        expected = self._estimate()
        rows = []
        for group, several in self._groups.items():
            missing = [planned for planned in several if planned in expected]
            row = {"group": group, "runs": len(several), "found": sum(p in self._finished for p in several)}
            rows.append(row | {"to train": len(missing), "seconds": sum(expected[p] for p in missing)})
        return pd.DataFrame(rows, columns=["group", "runs", "found", "to train", "seconds"]).set_index("group")

    def seconds(self, notebook: str) -> float:
        """What the plan is expected to take on this machine: training, scoring, and the rest of this notebook."""
        known = times.read()
        rest = [seconds for kind, seconds in known.items() if kind.startswith(REST)]
        usual = statistics.median(rest) if rest else SECONDS_OF_THE_REST
        work = sum(self._estimate().values()) + self._to_score * self._score_seconds()
        self._shared.clear()  # whole corpora, which nothing needs until the kernel reads its own
        return work + known.get(self.rest_of(notebook), usual)

    def rest_of(self, notebook: str) -> str:
        """The kind of time (see lib.runs.times) that a notebook takes beside training and scoring."""
        return f"{REST}{notebook}, {self.profile}"

    # --- Doing ---

    def runs(self, group: str) -> pd.DataFrame:
        """The runs of a group, trained now or found.

        Returns:
            One row per run: its labels, seed, steps, dev, best_step, run_id, and the Run itself in column `run`; empty
            where the group has none.

        Raises:
            ConfigError: the plan has no such group.
        """
        if group not in self._groups:
            known = ", ".join(self._groups) or "none"
            raise ConfigError(f"the plan has no runs called {group!r}: declare them in the plan cell (it has {known}).")
        rows = []
        for planned in self._groups[group]:
            done = self._do(planned)
            rows.append(
                {"seed": planned.config.seed} | dict(planned.labels) | done.metrics | {"run_id": done.id, "run": done}
            )
        return pd.DataFrame(rows, columns=None if rows else ["method", "seed", "dev", "run"])

    def score(self, encoder: Run | SentenceEncoder | ensemble.EncoderSum, **labels: Any) -> pd.DataFrame:
        """Result rows (ROW_COLUMNS) of the tasks of `sts` for a run or an encoder: see `lib.runs.scoring.Scores`.

        Args:
            labels: values of columns where they differ from the run's, or from those of the plan's first run.
        """
        if not self._scores.tasks:
            raise ConfigError("the plan has no STS tasks: declare them with plan.sts in the plan cell.")
        names = [task.name for task in self._scores.tasks]
        counted = not isinstance(encoder, ensemble.EncoderSum)
        pieces = max(len(self._scores.to_read(encoder)), counted) if self._shows_bar else 1
        with self._bar(
            f"score {', '.join(names)}",
            lambda: pieces * self._score_seconds(),
            pieces=pieces,
            unplanned=lambda: (pieces - counted) * self._score_seconds(),
        ) as on_share:
            rows = self._scores.of(encoder, self._labels(), on_share=on_share, **labels)
        self._to_score = max(0, self._to_score - counted)
        return rows

    def evaluate(self, kind: str, encoder: Run | SentenceEncoder | ensemble.EncoderSum, **labels: Any) -> pd.DataFrame:
        """Result rows (ROW_COLUMNS) of the evaluations declared as `transfer`, `retrieval`, `BEIR`, `in-domain
        retrieval`, `clustering`, `pair` or `MTEB`; none where none was declared. Labels as in `score`."""
        return self._scores.of_kind(kind, encoder, self._labels(), **labels)

    def publish(self, frame: pd.DataFrame, name: str, note: str) -> None:
        """Write measured rows to results/<profile>/<name>.csv where the notebook was started with publish=true.

        Rows that were published before and not measured again stay. See `lib.runs.publish`.
        """
        if self.publishes and len(frame):
            store.publish(frame, self.profile, name, note)

    # --- Inside ---

    def _labels(self) -> dict[str, Any]:
        """Of rows that belong to no run."""
        first = next(iter(self), None)
        unknown = {name: "" for name in store.ROW_COLUMNS if name not in RESULT_COLUMNS}
        known = store.config_labels(first.config) if first else unknown
        return known | {"profile": self.profile}

    def _found(self, planned: PlannedRun) -> Run | None:
        """The finished run, if the store has it and everything that it starts from."""
        if planned not in self._finished:
            config = self._actual(planned)
            if config is None or times.translates(config):  # nothing is translated only to find a name
                return None
            if (done := find(config, self._shared)) is not None:
                self._finished[planned] = done
        return self._finished.get(planned)

    def _actual(self, planned: PlannedRun, *, make: bool = False) -> RunConfig | None:
        """The configuration with all that it starts from; None where something is not there and not to be made."""
        places = {}
        for name, start in planned.starts.items():
            if isinstance(start, Best):
                done = [self._do(trial) if make else self._found(trial) for trial in start.trials]
                place = None if None in done else start.value(done)
            elif isinstance(start, Made):
                place = start.make() if make or start.is_made() else None
            else:
                done = self._do(start) if make else self._found(start)
                place = done and done.folder / "encoder"
            if place is None:
                return None
            places[name] = str(place) if isinstance(place, Path) else place
        return planned.config.replace(**places) if places else planned.config

    def _do(self, planned: PlannedRun) -> Run:
        if planned not in self._finished:
            config = self._actual(planned, make=True)
            with self._bar(planned.name, lambda: self._estimate().get(planned, 0.0)) as on_share:
                self._shared.clear()  # whole corpora: training needs the memory
                self._finished[planned] = run(config, on_share=on_share)
        return self._finished[planned]

    # --- Time ---

    def _score_seconds(self) -> float:
        """Of one encoder of the kind that the plan trains first."""
        if self._per_score is None:
            first, tasks = next(iter(self), None), self._scores.tasks
            self._per_score = times.of_score(tasks, first.config, self._shared) if first and tasks else 0.0
        return self._per_score

    def _estimate(self) -> dict[PlannedRun, float]:
        """Seconds expected for each run that is not in the store; a run of several groups counts in the first."""
        if self._expected is None:
            self._expected, seen = {}, set()
            for planned in self:
                if self._found(planned) is None and planned.identity not in seen:
                    seen.add(planned.identity)
                    self._expected[planned] = times.of_training(planned.trial, self._shared)
        return {planned: seconds for planned, seconds in self._expected.items() if planned not in self._finished}

    @property
    def _shows_bar(self) -> bool:
        return is_wanted() and processes().is_main_process

    @contextmanager
    def _bar(
        self,
        label: str,
        expected: Callable[[], float],
        *,
        pieces: int = 1,
        unplanned: Callable[[], float] = float,
    ) -> Iterator[Callable[..., None] | None]:
        """A bar of the whole plan; yields what advances it, by shares of each of the pieces, which take `expected`
        seconds together. The time left follows from the pace of the whole plan.

        Args:
            unplanned: seconds of it that the total does not count yet.
        """
        if not self._shows_bar:
            yield None
            return
        seconds, start = expected(), self._done
        self._total = self._total or sum(self._estimate().values()) + self._to_score * self._score_seconds()
        self._total += unplanned()
        bar = progress(total=self._total, label=label, initial=start, percent=True)
        bar.initial, bar.start_t = self._given - EXPECTED_WEIGHT, bar.start_t - self._spent - EXPECTED_WEIGHT
        began, worked, given = time.monotonic(), False, 0.0

        def advance(share: float, *, resumed: bool = False, **values: float) -> None:
            nonlocal worked, given
            worked = True
            if resumed:  # an earlier process took the time
                given += share * seconds / pieces
                bar.initial += share * seconds / pieces
            self._done = min(self._done + share * seconds / pieces, start + seconds)
            bar.update(self._done - bar.n, **values)

        try:
            yield advance
        except BaseException:
            self._done = start
            raise
        else:
            self._done = start + seconds
            self._given += given if worked else seconds
            self._spent += (time.monotonic() - began) * worked
        finally:
            bar.close()


def _signs(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, of numbers with a fraction only whether they are 0: how large they are was checked before."""
    plain = {name: bool(value) if isinstance(value, float) else value for name, value in values.items()}
    return {name: _signs(value) if isinstance(value, Mapping) else value for name, value in plain.items()}


def _spelt(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
