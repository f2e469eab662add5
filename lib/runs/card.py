"""The model card of a run's encoder (README.md), and the encoder in a folder of its own to give away."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from lib import paths
from lib.checks import EncoderError
from lib.encoders.saved import locate
from lib.evaluation import RESULT_COLUMNS
from lib.methods import REGISTRY
from lib.runs.measure import dev_row
from lib.runs.prepare import encoder_name
from lib.runs.store import Run, read_rows

CARD = "README.md"
TEMPLATE = paths.root() / "lib" / "assets" / "model_card.md.j2"
NOT_SHOWN = {"profile", "data_dir", "corpus", "backbone", "method", "method_arguments"}  # places, or said elsewhere
TASK_TYPES = {  # metric -> kind of task, as mteb calls it in model cards
    "spearman": "STS", "cosine": "STS", "cosine_spearman": "STS", "accuracy": "Classification",
    "ndcg": "Retrieval", "map": "Retrieval", "mrr": "Retrieval", "recall": "Retrieval",
    "v_measure": "Clustering", "ari": "Clustering", "silhouette": "Clustering",
}  # fmt: skip


def export(run: Run, folder: str | os.PathLike) -> Path:
    """The encoder of a run in a new folder, with a model card that has every score that the run has by now.

    Raises:
        DataError: the folder lies in a run, or cannot be written.
        EncoderError: the folder exists, or the encoder cannot be read.
    """
    folder = paths.check_no_run_around(paths.expanded(folder))
    if os.path.lexists(folder):
        raise EncoderError(f"{folder} exists: choose another folder or delete this one, nothing was written.")
    encoder = run.encoder()
    with paths.whole_folder(folder) as path:
        encoder.write_files(path)
        (path / CARD).write_text(model_card(run), encoding="utf8")
    return folder


def model_card(run: Run, name: str = "") -> str:
    """Text of the card: what the encoder is and from what, its scores with their protocol, how it is loaded, and whose
    licence holds. No place on this machine is in it.

    name: of the run, where its folder has another one for the moment.
    """
    config, scores, backbone = run.config, _scores(run), run.labels["backbone"]
    hub_name, known = _origin(config.backbone)
    title = f"{config.method} from {backbone}"
    data = ModelCardData(
        **known,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", *config.spec.names],
        base_model=hub_name,
        model_name=title,
        eval_results=[_result(row) for row in scores.itertuples() if row.task != "Avg."] or None,
    )
    modules = run.folder / "encoder" / "modules.json"
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        title=title,
        name=name or run.id,
        backbone=backbone,
        provenance=run.provenance,
        metrics=run.metrics,
        dev_task=config.dev_task,
        scores=scores,
        methods={method: _about(method) for method in config.spec.names},
        settings=_settings(run),
        is_standard=modules.is_file() and "lib." not in modules.read_text(encoding="utf8"),
    )
    return f"{card}\n"


def _scores(run: Run) -> pd.DataFrame:
    """RESULT_COLUMNS: the dev score that chose the checkpoint, if one did, and what was measured since."""
    frames = [] if run.metrics["dev"] is None else [dev_row(run)]
    frames += map(read_rows, sorted((run.folder / "results").glob("*.csv")))
    scores = pd.concat(frames or [pd.DataFrame(columns=RESULT_COLUMNS)], ignore_index=True)
    return scores.dropna(subset="value").drop_duplicates(RESULT_COLUMNS[:-1]).round({"value": 2})


def _result(row: Any) -> EvalResult:
    return EvalResult(
        task_type=TASK_TYPES.get(row.metric.partition("@")[0], "Other"),
        dataset_type=row.task,
        dataset_name=f"{row.task} {row.split}",
        dataset_split=row.split,
        metric_type=row.metric,
        metric_name=f"{row.metric} x 100, {row.protocol}, aggregation {row.aggregation}",
        metric_value=float(row.value),
    )


def _settings(run: Run) -> dict[str, Any]:
    """Parameters and arguments of the method; of encoders, corpora and files the name alone."""
    config, needs = run.config, run.config.needs
    values = {
        name: value for name, value in config.as_dict().items() if name not in NOT_SHOWN
    } | config.method_arguments
    values |= {name: encoder_name(value) for name, value in (needs.encoders | needs.generators).items()}
    values |= {name: Path(file).name for name, file in needs.texts.items()}
    values["augmentation"] = re.sub(r"[^(,\s]*[/\\]", "", values["augmentation"])  # of models in it
    return values


def _about(method: str) -> str:
    """What the file of a method says of it, with its papers."""
    return " ".join((inspect.getdoc(sys.modules[REGISTRY[method].__module__]) or "").split("\n\n")[0].split())


def _origin(backbone: str) -> tuple[str | None, dict[str, Any]]:
    """The hub's name of a backbone, None for a folder; and `license` and `language`, where its card is here and has them."""
    try:
        source, is_local = locate(backbone)
    except EncoderError:  # its folder is gone by now
        return None, {}
    try:
        known = ModelCard.load(paths.model_folder(source) / CARD, ignore_metadata_errors=True).data.to_dict()
    except Exception:  # none, or somebody else's file, which may hold anything and must cost no run
        known = {}
    names = {name: value for name in ("license", "language") if isinstance(value := known.get(name), str | list)}
    return None if is_local else source, names
