"""What a plan is made of: trials, and what they start from."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lib import paths
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.runs.store import Run


class Best:
    """The value of a parameter that dev chose among trials, given as `Plan.add` gives them: the highest mean dev score over
    their seeds, the first of equal ones. Until they are trained, the value of the first stands in."""

    def __init__(self, parameter: str, trials: Mapping[Any, Trial]) -> None:
        self.parameter, self.trials = parameter, list(trials.values())

    @property
    def stand_in(self) -> Any:
        if not self.trials:
            raise ConfigError(f"there are no trials to choose {self.parameter} from.")
        if self.trials[0].config.dev_task == "none":
            raise ConfigError(
                f"dev_task 'none' has no pairs to choose {self.parameter} by: give demo, STS-B or a file."
            )
        return self._of(self.trials[0].config)

    def value(self, finished: Sequence[Run]) -> Any:
        """finished: the runs of the trials, in their order."""
        runs = defaultdict(list)
        for trial, done in zip(self.trials, finished, strict=True):
            runs[trial.method, trial.settings].append(done)
        best = max(runs.values(), key=lambda several: statistics.mean(one.metrics["dev"] for one in several))
        return self._of(best[0].config)

    def _of(self, config: RunConfig) -> Any:
        return (config.as_dict() | config.method_arguments)[self.parameter]


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of a plan. config: the run, with a stand-in for all that the plan trains or chooses first. after: parameter ->
    the trial whose encoder it takes, or Best, which gives its value."""

    group: str
    method: str
    settings: str
    seed: int
    config: RunConfig
    after: Mapping[str, Trial | Best]

    @property
    def stand_in(self) -> str:
        return self.config.backbone

    @property
    def checked(self) -> RunConfig:
        """The run as it can be checked now: a stand-in has no heads that the backbone brings when it is trained."""
        fresh = {"head": "random", "lm_head": "fresh"} if "backbone" in self.after else {}
        has = self.config.method_arguments
        return self.config.replace(**{name: start for name, start in fresh.items() if has.get(name) == "pretrained"})

    @cached_property
    def key(self) -> str:
        """Equal for the same run, whatever it is called; a digest, since a run may wait for trials that wait for others."""
        before = []
        for name, start in sorted(self.after.items()):
            several = start.trials if isinstance(start, Best) else [start]
            before.append([name, *(one.key for one in several)])
        return paths.digest([self.config.as_dict(), before])
