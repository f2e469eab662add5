"""The model card of a run's encoder (README.md), and the encoder in a folder of its own to give away."""

import inspect
import os
import re
import sys
from pathlib import Path

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from lib import paths
from lib.checks import ConfigError, EncoderError
from lib.encoders.saved import locate, save_whole
from lib.evaluation import RESULT_COLUMNS
from lib.methods import REGISTRY
from lib.runs.measure import PROJECTED, dev_row
from lib.runs.prepare import encoder_name
from lib.runs.store import Run, find_run, read_rows

CARD = "README.md"
TEMPLATE = paths.root() / "lib" / "assets" / "model_card.md.j2"
NOT_SHOWN = {"profile", "data_dir", "corpus", "backbone", "method", "method_arguments"}  # places, or said elsewhere


def export(run: Run | str, folder: str | os.PathLike) -> Path:
    """The encoder of a run (or its id, or folder) in a new folder, with a model card that has every score it has by now.

    Raises:
        ConfigError: there is no such run. DataError: the folder cannot be written.
        EncoderError: the folder exists, or the encoder cannot be read.
    """
    found = run if isinstance(run, Run) else find_run(run)
    if found is None:
        raise ConfigError(f"there is no finished run {run!r}: give the id or the folder of one below {paths.runs()}.")

    def write(path: Path) -> None:
        found.encoder().write_files(path)
        (path / CARD).write_text(model_card(found), encoding="utf8")

    return save_whole(write, folder)


def model_card(run: Run, name: str = "") -> str:
    """Text of the card: what the encoder is and from what, its scores with their protocol, how it is loaded, and whose
    licence holds. No place on this machine is in it.

    name: of the run, where its folder has another one for the moment.
    """
    config, modules = run.config, run.folder / "encoder" / "modules.json"
    try:
        source, is_local = locate(config.backbone)
    except EncoderError:  # a folder that is gone by now
        source, is_local = "", True
    about = {method: inspect.getdoc(sys.modules[REGISTRY[method].__module__]) or "" for method in config.spec.names}
    title = f"{config.method} from {run.labels['backbone']}"
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", *config.spec.names],
        base_model=None if is_local else source,
        model_name=title,
    )
    content = {"backbone": run.labels["backbone"], "provenance": run.provenance, "metrics": run.metrics}
    content |= {"dev_task": config.dev_task, "scores": _scores(run), "settings": _settings(run)}
    content["methods"] = {method: " ".join(text.split("\n\n")[0].split()) for method, text in about.items()}
    content["is_standard"] = modules.is_file() and "lib." not in modules.read_text(encoding="utf8")
    card = ModelCard.from_template(data, template_path=str(TEMPLATE), title=title, name=name or run.id, **content)
    return f"{card}\n"


def _scores(run: Run) -> pd.DataFrame:
    """RESULT_COLUMNS: the dev score that chose the checkpoint, if one did, and what was measured since."""
    frames = [] if run.metrics["dev"] is None else [dev_row(run)]
    kept = [path for path in (run.folder / "results").glob("*.csv") if not path.name.startswith(PROJECTED)]
    frames += map(
        read_rows, sorted(kept, key=lambda path: (-path.stat().st_mtime_ns, path.name))
    )  # of two measurements the newer
    scores = pd.concat(frames or [pd.DataFrame(columns=RESULT_COLUMNS)], ignore_index=True)
    return scores.dropna(subset="value").drop_duplicates(RESULT_COLUMNS[:-1]).round({"value": 2})


def _settings(run: Run) -> dict[str, str]:
    """Parameters and arguments of the method; of encoders and files the name alone."""
    config, needs = run.config, run.config.needs
    values = {name: value for name, value in config.as_dict().items() if name not in NOT_SHOWN}
    values |= config.method_arguments
    values |= {name: encoder_name(value) for name, value in (needs.encoders | needs.generators).items()}
    values |= {name: Path(value).name for name, value in needs.texts.items()}
    return {name: re.sub(r"[^(,\s]*[/\\]", "", str(value)) for name, value in values.items()}
