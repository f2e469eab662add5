"""The run store: one folder per finished run, found again by what the run is; nothing finished is ever lost."""

from lib.runs.card import export
from lib.runs.measure import open_encoders, projected_dev, with_encoders
from lib.runs.plan import Plan
from lib.runs.prepare import encoder_name, preflight, prepare
from lib.runs.running import run
from lib.runs.store import Run, find_run
from lib.runs.trials import Best, Trial
from lib.runs.variants import variants

__all__ = [
    "Best", "Plan", "Run", "Trial", "encoder_name", "export", "find_run", "open_encoders", "preflight", "prepare",
    "projected_dev", "run", "variants", "with_encoders",
]  # fmt: skip
