"""Tasks that papers take from MTEB, scored by mteb itself: BEIR (InfoCSE, Table 3), five tasks of MSSE's Figure 5."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from lib.checks import DataError, check_choice
from lib.data.files import manifest
from lib.data.labelled import load_labelled
from lib.evaluation.interface import RESULT_COLUMNS, Encode

# the paper's name -> mteb's
BEIR_TASKS = {
    "trec-covid": "TRECCOVID",
    "nfcorpus": "NFCorpus",
    "nq": "NQ",
    "fiqa": "FiQA2018",
    "arguana": "ArguAna",
    "webis-touche2020": "Touche2020",
    "quora": "QuoraRetrieval",
    "cqadupstack": "CQADupstackRetrieval",
    "dbpedia-entity": "DBPedia",
    "scidocs": "SCIDOCS",
    "climate-fever": "ClimateFEVER",
    "scifact": "SciFact",
    "hotpotqa": "HotpotQA",
    "fever": "FEVER",
}
FIGURE_5_TASKS = {
    "ACC": "AmazonCounterfactualClassification",
    "BC": "Banking77Classification",
    "MIC": "MassiveIntentClassification",
    "QR": "QuoraRetrieval",
    "AUDQ": "AskUbuntuDupQuestions",
}
SUBSETS = {"AmazonCounterfactualClassification": ["en"], "MassiveIntentClassification": ["en"]}  # as in MTEB (English)
LOCAL = {"AmazonCounterfactualClassification": "amazon_counterfactual", "Banking77Classification": "banking77"}


class Encoder:
    """`encode` as mteb calls it: batches of rows with a text each; similarity is the cosine."""

    def __init__(self, encode: Encode) -> None:
        from mteb.models import ModelMeta

        self._encode = encode
        self.mteb_model_meta = ModelMeta.create_empty({"name": "local/encoder"})

    def encode(self, inputs: Iterable[dict[str, Any]], **context: Any) -> np.ndarray:
        return self._encode([text for batch in inputs for text in batch["text"]])

    def similarity(self, first: Any, second: Any) -> Any:
        from mteb.similarity_functions import cos_sim

        return cos_sim(first, second)

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(first, second)


@dataclass(frozen=True)
class MtebTask:
    """mteb's task, and its data where they come from local files: mteb forgets them after every encoder."""

    task: Any
    dataset: Any = None
    fingerprint: str = ""  # of local data; otherwise the revision on the hub says which they are

    def key(self) -> list[str]:
        """What its scores depend on beside the encoder."""
        return ["x 100", self.task.metadata.name, self.fingerprint or self.task.metadata.dataset["revision"]]

    def ready(self) -> Any:
        if self.dataset is not None:
            self.task.dataset, self.task.data_loaded = self.dataset, True
        return self.task


def load_mteb(names: Sequence[str], known: Mapping[str, str], parameter: str, data_dir: Path) -> dict[str, MtebTask]:
    """Name -> task with its data: from data_dir where they are there, else from the hub's cache or the hub, since naming
    a task is asking for it.

    Args:
        known: name -> mteb's name. parameter: the user's, for messages.

    Raises:
        ConfigError: a name that is not known.
        DataError: local files are truncated, or a task is not in the cache and cannot be fetched.
    """
    for name in names:
        check_choice(parameter, name, known)
    if not names:
        return {}
    import mteb  # takes seconds, and most notebooks need none of it

    tasks = {}
    for name in names:
        theirs = known[name]
        subset = {"hf_subsets": SUBSETS[theirs], "eval_splits": ["test"]} if theirs in SUBSETS else {}
        task = mteb.get_task(theirs, **subset)
        tasks[name] = MtebTask(task, *_local(theirs, data_dir))
        try:
            if tasks[name].dataset is None and not task.data_loaded:
                task.load_data()
        except (OSError, ValueError) as error:  # huggingface_hub's and datasets' errors are of these kinds
            raise DataError(
                f"{theirs} of MTEB is not in the hub's cache and could not be fetched "
                f"({type(error).__name__}): run this once with a network, or leave it out of {parameter}."
            ) from error
    return tasks


def _local(theirs: str, data_dir: Path) -> tuple[Any, str] | tuple[()]:
    """The task's data from data_dir in mteb's form, and their fingerprint; nothing where they do not lie there."""
    if theirs not in LOCAL:
        return ()
    files = [
        Path(data_dir) / file for split in manifest()["labelled"][LOCAL[theirs]]["splits"].values() for file in split
    ]
    if not all(file.is_file() for file in files):
        return ()
    from datasets import Dataset, DatasetDict  # with mteb alone

    splits = {split: load_labelled(data_dir, LOCAL[theirs], split) for split in ("train", "test")}
    names = {label: number for number, label in enumerate(sorted(set(splits["train"].labels)))}
    rows = {
        split: Dataset.from_dict({"text": list(part.texts), "label": [names[label] for label in part.labels]})
        for split, part in splits.items()
    }
    dataset = DatasetDict({SUBSETS[theirs][0]: DatasetDict(rows)} if theirs in SUBSETS else rows)
    return dataset, " ".join(part.fingerprint() for part in splits.values())


def evaluate_mteb(encode: Encode, tasks: Mapping[str, MtebTask]) -> pd.DataFrame:
    """mteb's main score of each task (test split; cqadupstack is the mean of its forums).

    Args:
        tasks: what `load_mteb` gives.

    Returns:
        Rows task, split, protocol, aggregation, metric, value (x 100, as all rows here; mteb and InfoCSE print 0 to 1).
    """
    import mteb

    rows = []
    for name, task in tasks.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The task .* is superseded", category=UserWarning)
            warnings.filterwarnings("ignore", category=UndefinedMetricWarning)  # of precisions that are not read
            result = mteb.evaluate(Encoder(encode), task.ready(), cache=None, show_progress_bar=False)
        metric = task.task.metadata.main_score.replace("_at_", "@")
        protocol = f"mteb {mteb.__version__}, {task.task.metadata.name}"
        rows.append((name, "test", protocol, "-", metric, 100 * float(result.task_results[0].get_score())))
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)
