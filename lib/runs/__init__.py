"""The run store: one folder per finished run, found again by what the run is; nothing finished is ever lost."""

from lib.runs.plan import Made, Plan, PlannedRun
from lib.runs.prepare import check_memory, encoder_name, preflight, prepare
from lib.runs.running import find, run
from lib.runs.store import ROW_COLUMNS, Run, config_labels, dev_rows, label_rows, publish, published

__all__ = [
    "ROW_COLUMNS", "Made", "Plan", "PlannedRun", "Run", "check_memory", "config_labels", "dev_rows",
    "encoder_name", "find", "label_rows", "preflight", "prepare", "publish", "published", "run",
]  # fmt: skip
