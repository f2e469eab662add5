"""What a plan is made of: trials, and what they start from."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lib.checks import ConfigError
from lib.config import RunConfig
from lib.data import Corpus
from lib.encoders import mini_bert
from lib.runs.store import Run


@dataclass(frozen=True, eq=False)
class Made:
    """A backbone that the notebook makes itself. make: gives its folder, from a cache (`is_made`) or made now. stand_in: a
    folder with an encoder of the same shape, for the checks before it is made."""

    name: str
    make: Callable[[], Path]
    is_made: Callable[[], bool]
    stand_in: str


def ready(backbone: str, name: str) -> Made:
    """A backbone that is there already; name: what tables call it."""
    return Made(name, lambda: Path(backbone), lambda: True, backbone)


def made_from_text(text: Corpus, **shape: Any) -> Made:
    """A start that is built from the text when it is first needed; shape: see `mini_bert.start`."""
    folder, stand_in = mini_bert.start_folder(text, **shape), str(mini_bert.stand_in(text, **shape))
    return Made(folder.name, lambda: mini_bert.start(text, **shape), folder.is_dir, stand_in)


class Best:
    """The value of a parameter that dev chose among trials, given as `Plan.add` gives them: the highest mean dev score over
    their seeds, the first of equal ones. Until they are trained, the value of the first stands in."""

    def __init__(self, parameter: str, trials: Mapping[Any, Trial]) -> None:
        self.parameter, self.trials = parameter, list(trials.values())

    @property
    def stand_in(self) -> Any:
        if not self.trials:
            raise ConfigError(f"there are no trials to choose {self.parameter} from.")
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
    """One run of a plan. config: the run, with a stand-in for all that the plan makes or chooses first. after: parameter ->
    the trial, or Made, whose encoder it takes, or Best, which gives its value."""

    group: str
    method: str
    settings: str
    seed: int
    config: RunConfig
    after: Mapping[str, Trial | Best | Made]

    @property
    def stand_in(self) -> str:
        return self.config.backbone

    @property
    def checked(self) -> RunConfig:
        """The run as it can be checked now: a stand-in has no heads that its backbone will bring."""
        if "backbone" not in self.after:
            return self.config
        values = self.config.method_arguments
        others = {"head": "random", "lm_head": "fresh"}
        return self.config.replace(
            **{name: other for name, other in others.items() if values.get(name) == "pretrained"}
        )

    @cached_property
    def key(self) -> str:
        """Equal for the same run, whatever it is called; a digest, since a run may wait for trials that wait for others."""
        before = []
        for name, start in sorted(self.after.items()):
            several = start.trials if isinstance(start, Best) else [start]
            before.append([name, *(one.key if isinstance(one, Trial) else one.name for one in several)])
        text = json.dumps([self.config.as_dict(), before], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
