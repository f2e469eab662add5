"""Tasks that papers take from MTEB, scored by mteb itself: BEIR (InfoCSE, Table 3), five tasks of MSSE's Figure 5.

mteb is imported where it is needed: it takes seconds, and most notebooks need none of it.
"""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from lib.checks import ConfigError, DataError
from lib.data.files import manifest
from lib.data.labelled import load_labelled
from lib.evaluation.interface import RESULT_COLUMNS, Encode

FIGURE_5 = {  # the paper's name -> mteb's
    "ACC": "AmazonCounterfactualClassification",
    "BC": "Banking77Classification",
    "MIC": "MassiveIntentClassification",
    "QR": "QuoraRetrieval",
    "AUDQ": "AskUbuntuDupQuestions",
}
ENGLISH = (FIGURE_5["ACC"], FIGURE_5["MIC"])  # the subset that MTEB (English) takes
LOCAL = {FIGURE_5["ACC"]: "amazon_counterfactual", FIGURE_5["BC"]: "banking77"}  # mteb's -> lib.data.labelled's


def mteb_encoder(encode: Encode) -> Any:
    """`encode` as mteb calls it: batches of rows with a text each; similarity is the cosine."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Encoder(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty({"name": "local/encoder"})

        def encode(self, inputs: Iterable[dict[str, Any]], **context: Any) -> np.ndarray:
            return encode([text for batch in inputs for text in batch["text"]])

    return Encoder()


def load_mteb(names: Sequence[str], data_dir: Path) -> dict[str, tuple[Any, list[str]]]:
    """Name (mteb's, or of FIGURE_5) -> mteb's task with its data, and what its scores depend on beside the encoder. The
    data are those in data_dir, else those in the hub's cache or on the hub, since naming a task is asking for it.
    Raises ConfigError for a name that mteb does not know, DataError for data that are damaged or cannot be fetched."""
    if not names:
        return {}
    import mteb

    tasks = {}
    for name in names:
        theirs = FIGURE_5.get(name, name)
        subset = {"hf_subsets": ["en"], "eval_splits": ["test"]} if theirs in ENGLISH else {}
        try:
            task = mteb.get_task(theirs, **subset)
        except KeyError as error:
            raise ConfigError(f"mteb task {error.args[0].removeprefix('KeyError: ')}") from error
        data = task.metadata.dataset["revision"]
        if theirs in LOCAL and (data_dir / manifest()["labelled"][LOCAL[theirs]]["splits"]["test"][0]).is_file():
            data = _take_local(task, data_dir)
        try:
            if not task.data_loaded:
                task.load_data()
        except (OSError, ValueError) as error:  # huggingface_hub's and datasets' errors are of these kinds
            raise DataError(
                f"{theirs} of MTEB is not in the hub's cache and could not be fetched ({type(error).__name__}): run this "
                "once with a network, or leave it out."
            ) from error
        tasks[name] = task, ["x 100", theirs, data]
    return tasks


def _take_local(task: Any, data_dir: Path) -> str:
    """Give mteb's task its data from data_dir; returns their fingerprint."""
    from datasets import Dataset, DatasetDict  # with mteb alone

    name = task.metadata.name
    splits, rows = {split: load_labelled(data_dir, LOCAL[name], split) for split in ("train", "test")}, DatasetDict()
    labels = sorted(set(splits["train"].labels))
    for split, part in splits.items():
        rows[split] = Dataset.from_dict({"text": list(part.texts), "label": [*map(labels.index, part.labels)]})
    task.dataset = DatasetDict({"en": rows}) if name in ENGLISH else rows
    task.data_loaded = True
    return " ".join(part.fingerprint() for part in splits.values())


def evaluate_mteb(encode: Encode, name: str, task: Any) -> pd.DataFrame:
    """mteb's main score of a task that `load_mteb` gives (test split; cqadupstack is the mean of its forums), x 100 (mteb and
    InfoCSE print 0 to 1): a row of RESULT_COLUMNS."""
    import mteb

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The task .* is superseded", category=UserWarning)
        warnings.filterwarnings("ignore", category=UndefinedMetricWarning)  # of precisions that are not read
        result = mteb.evaluate(mteb_encoder(encode), task, cache=None, show_progress_bar=False)
    metric = task.metadata.main_score.replace("_at_", "@")
    protocol = f"mteb {mteb.__version__}, {task.metadata.name}"
    row = (name, "test", protocol, "-", metric, 100 * float(result.task_results[0].get_score()))
    return pd.DataFrame([row], columns=RESULT_COLUMNS)
