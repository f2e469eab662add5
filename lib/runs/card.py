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
from lib.data.sts import protocol
from lib.encoders.saved import check_nothing_else, locate
from lib.evaluation import RESULT_COLUMNS
from lib.methods import REGISTRY
from lib.runs.prepare import encoder_name
from lib.runs.store import Run, read_rows

CARD = "README.md"
NOT_SHOWN = ("profile", "data_dir", "corpus", "backbone", "method", "method_arguments")  # places, or said elsewhere
PROJECT = "contrastive-sentence-embeddings"
LAST_SENTENCE = "None of the text is in this folder."


def export(run: Run, folder: str | os.PathLike) -> Path:
    """The encoder of a run in a folder, with a model card that has every score that the run has by now.

    Raises:
        DataError: the run was cut or changed, or the folder lies in a run.
        EncoderError: the folder exists and is no earlier export, or holds something else too.
    """
    folder, encoder = paths.check_no_run_around(paths.expanded(folder)), run.encoder()
    if os.path.lexists(folder) and not _is_export(folder):
        raise EncoderError(f"{folder} exists and is no earlier export: choose another folder, nothing was written.")
    with paths.whole_folder(folder) as path:
        encoder.write_files(path)
        (path / CARD).write_text(model_card(run), encoding="utf8")
        check_nothing_else(folder, path)
    return folder


def _is_export(folder: Path) -> bool:
    """Whether `export` wrote this folder, by its card, to which nobody has added anything since."""
    try:
        text = (folder / CARD).read_text(encoding="utf8")
        return f"with {PROJECT}, commit" in text and text.endswith(f"{LAST_SENTENCE}\n")
    except (OSError, ValueError):
        return False


def model_card(run: Run, name: str = "") -> str:
    """Text of the card: what the encoder is and from what, its scores with their protocol, how it is loaded, and whose
    licence holds. No place on this machine is in it.

    name: of the run, where its folder has another one for the moment.
    """
    config, provenance, backbone = run.config, run.provenance, run.labels["backbone"]
    scores, known = _scores(run), _front_matter(config.backbone)
    title = f"{config.method} from {backbone}"
    results = [_result(row) for row in scores.itertuples() if row.task != "Avg."]
    data = ModelCardData(
        language=known.get("language"),
        license=known.get("license"),
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", *config.spec.names],
        base_model=None if _folder(config.backbone) else config.backbone,
        model_name=title,
        eval_results=results or None,
    )
    licence = f"{backbone} has the licence {known['license']}" if known.get("license") else f"See that of {backbone}"
    return "\n".join(
        [
            "---",
            data.to_yaml().strip(),
            "---",
            "",
            f"# {title}",
            "",
            "A sentence encoder: a vector for each text; how alike two texts are is the cosine of their vectors.",
            "",
            f"Trained from {backbone} on {provenance['corpus']} ({provenance['rows']:,} rows) with "
            f"{PROJECT}, commit {provenance['commit']}, run `{name or run.id}`.",
            "",
            *(f"* `{method}`: {_about(method)}" for method in config.spec.names),
            "",
            "## Scores",
            "",
            _table(scores) if len(scores) else "None was measured.",
            "",
            f"Values are x 100. The checkpoint after {run.metrics['best_step']} of {run.metrics['steps']} steps was kept"
            + ("." if config.dev_task == "none" else f"; the dev pairs of {config.dev_task} chose it.")
            + " One run with one seed: other seeds differ by more than the last digits.",
            "",
            "## Load it",
            "",
            _loading(run),
            "",
            "## How it was trained",
            "",
            _table(pd.DataFrame(_settings(run).items(), columns=["parameter", "value"])),
            "",
            "## Licence",
            "",
            f"The weights derive from those of {backbone} and from the text they were trained on. {licence}; the code of the "
            f"training is under the MIT licence. {LAST_SENTENCE}",
            "",
        ]
    )


def _scores(run: Run) -> pd.DataFrame:
    """RESULT_COLUMNS: the dev score that chose the checkpoint, and what was measured since."""
    task, dev = run.config.dev_task, run.metrics["dev"]
    rows = [] if dev is None else [(task, "dev", protocol(task, "dev"), "all", "spearman", dev)]
    measured = [read_rows(paths.check_seal(path)) for path in sorted((run.folder / "results").glob("*.csv"))]
    frames = [pd.DataFrame(rows, columns=RESULT_COLUMNS), *(frame[RESULT_COLUMNS] for frame in measured)]
    scores = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    return scores.drop_duplicates(RESULT_COLUMNS[:-1]).round({"value": 2})


def _result(row: Any) -> EvalResult:
    return EvalResult(
        task_type="sentence-similarity",
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
    values = {name: value for name, value in config.as_dict().items() if name not in NOT_SHOWN}
    for name, value in config.method_arguments.items():
        if name in needs.encoders or name in needs.generators:
            value = encoder_name(value) if value else ""
        elif name in needs.texts:
            value = Path(value).name
        values[name] = value
    values["augmentation"] = re.sub(r"[^(,\s]*[/\\]", "", values["augmentation"])  # of models in it
    return values


def _about(method: str) -> str:
    """What the file of a method says of it, with its papers."""
    return " ".join((inspect.getdoc(sys.modules[REGISTRY[method].__module__]) or "").split("\n\n")[0].split())


def _front_matter(backbone: str) -> dict[str, Any]:
    """What the card of the backbone says of itself, where it lies here."""
    card = (_folder(backbone) or paths.model_folder(backbone)) / CARD
    if not card.is_file():
        return {}
    try:
        known = ModelCard(card.read_text(encoding="utf8"), ignore_metadata_errors=True).data.to_dict()
    except Exception:  # somebody else's file, which may hold anything and must cost no run
        return {}
    texts = {name: value if isinstance(value, list) else [value] for name, value in known.items()}
    return {name: known[name] for name, values in texts.items() if all(isinstance(value, str) for value in values)}


def _folder(backbone: str) -> Path | None:
    """Where a backbone lies; None for a hub name."""
    try:
        source, is_local = locate(backbone)
    except EncoderError:  # its folder is gone by now
        return Path(backbone)
    return Path(source) if is_local else None


def _loading(run: Run) -> str:
    modules = run.folder / "encoder" / "modules.json"
    if modules.is_file() and "lib." not in modules.read_text(encoding="utf8"):
        return '```python\nfrom sentence_transformers import SentenceTransformer\n\nSentenceTransformer("FOLDER").encode(["a text"])\n```'
    return (
        f"sentence-transformers has no module for it. With {PROJECT} installed, whose class reads the folder (it holds no "
        "code):\n\n```python\nfrom lib.encoders.export import sentence_transformer\n\n"
        'sentence_transformer("FOLDER").encode(["a text"])\n```'
    )


def _table(frame: pd.DataFrame) -> str:
    """As Markdown."""
    rows = [
        map(str, frame.columns),
        ["---"] * frame.shape[1],
        *(map(str, row) for row in frame.itertuples(index=False)),
    ]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)
