"""InfoCSE's Table 3: the 14 public sets of BEIR, through mteb, which fetches them from the hub."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.checks import DataError, check_choice
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


def load_beir(names: Sequence[str]) -> dict[str, Any]:
    """Name -> mteb's task with its data, from the hub's cache or the hub: naming a set is asking for it.

    Raises:
        ConfigError: a name that is none of BEIR_TASKS.
        DataError: a set is not in the cache and cannot be fetched.
    """
    for name in names:
        check_choice("beir_tasks", name, BEIR_TASKS)
    if not names:
        return {}
    import mteb  # takes seconds, and most notebooks need none of it

    tasks = {name: mteb.get_task(BEIR_TASKS[name]) for name in names}
    for task in tasks.values():
        try:
            if not task.data_loaded:
                task.load_data()
        except (OSError, ValueError) as error:  # huggingface_hub's and datasets' errors are of these kinds
            raise DataError(
                f"{task.metadata.name} of BEIR is not in the hub's cache and could not be fetched "
                f"({type(error).__name__}): run this once with a network, or leave it out of beir_tasks."
            ) from error
    return tasks


def evaluate_beir(encode: Encode, tasks: dict[str, Any]) -> pd.DataFrame:
    """nDCG@10 on sets of BEIR (test split; cqadupstack is the mean of its forums).

    Args:
        tasks: what `load_beir` gives.

    Returns:
        Rows task, split, protocol, aggregation, metric, value (0 to 1, as InfoCSE prints it).
    """
    import mteb

    rows = []
    for name, task in tasks.items():
        result = mteb.evaluate(Encoder(encode), task, cache=None, show_progress_bar=False)
        score = result.task_results[0].get_score()
        rows.append((name, "test", f"mteb {mteb.__version__}, cosine", "-", "ndcg@10", float(score)))
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)
