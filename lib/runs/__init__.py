"""The run store: one folder per finished run, found again by what the run is; nothing finished is ever lost."""

from lib.runs.card import export
from lib.runs.named import find_run, open_encoder, open_encoders
from lib.runs.plan import Best, Made, Plan, made_from_text
from lib.runs.prepare import encoder_name, preflight, prepare
from lib.runs.running import run
from lib.runs.scoring import projected_dev_rows
from lib.runs.store import ROW_COLUMNS, Run, config_labels, dev_rows, histories, label_rows, publish, published

__all__ = [
    "ROW_COLUMNS", "Best", "Made", "Plan", "Run", "config_labels", "dev_rows", "encoder_name", "export", "find_run", "histories", "label_rows", "made_from_text",
    "open_encoder", "open_encoders", "preflight", "prepare", "projected_dev_rows", "publish", "published", "run",
]  # fmt: skip
