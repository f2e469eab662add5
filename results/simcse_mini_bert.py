"""Measure and publish results/small/simcse_mini_bert.csv: SimCSE from the shipped mini-BERT, few-shot curve.

    .venv/bin/python results/simcse_mini_bert.py --data-dir DIR

About an hour on two CPU cores; finished runs and evaluations are kept, so the command can be stopped and repeated, and
rows that were published earlier and are not measured again (--sizes) stay. The rows of 1,000 and 10,000 sentences were
trained in bf16, that of 100,000 in fp32, on a CPU without bf16; the provenance has the runs.
The subset of the sentences is drawn with the seed of the run. The checkpoint is chosen on STS-B dev, and so was the
learning rate, from 1e-4, 2e-4 and 3e-4 on 4,000 sentences, once; nothing was tuned on a test set. For comparison, the
averaging start that the mini-BERT was trained from, rebuilt here from the same text.
"""

from __future__ import annotations

import pandas as pd
import yaml
from common import parser, small_config

from lib import paths, runs
from lib.config import RunConfig
from lib.data import load_corpus, load_sts
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder, mini_bert
from lib.evaluation import evaluate_sts

LEARNING_RATE = 2.0e-4
SIZES = {1_000: (42, 43, 44, 45, 46), 10_000: (42, 43, 44, 45, 46), 100_000: (42,)}
START_SIZES = {10_000: (42,)}
SHAPE = ("vocabulary", "hidden", "layers", "heads", "intermediate", "max_positions", "window")
NOTE = (
    "The mini-BERT of lib/assets/mini-bert, untuned ([CLS] and mean pooling) and after one epoch of unsupervised SimCSE "
    "on 1,000, 10,000 (bf16) and 100,000 (fp32) Wikipedia sentences ([CLS]), seven STS tasks. The seed draws the "
    "sentences too. "
    "For comparison the averaging start that the mini-BERT was trained from."
)


def tables(encoder: SentenceEncoder, data_dir) -> pd.DataFrame:
    """The seven STS test sets and STS-B dev, all aggregations."""
    tasks = [load_sts(data_dir, name) for name in STS_TASKS]
    test = evaluate_sts(encoder.encode, tasks)
    return pd.concat([test, evaluate_sts(encoder.encode, [load_sts(data_dir, "STS-B", "dev")])], ignore_index=True)


def measure(config: RunConfig, sizes: dict[int, tuple[int, ...]], data_dir) -> pd.DataFrame:
    """One backbone, untuned and after SimCSE on so many sentences with these seeds."""
    rows = []
    for pooling in ("cls", "mean"):
        found = tables(SentenceEncoder.from_pretrained(config.backbone, pooling=pooling), data_dir)
        labels = runs.config_labels(config)
        rows.append(runs.label_rows(found, labels, paper="simcse", method=f"untuned, {pooling}", seed=""))
    for size, seeds in sizes.items():
        steps = -(-size // config.batch_size)
        for seed in seeds:
            finished = runs.run(
                config.replace(corpus_size=size, corpus_seed=seed, seed=seed, eval_every=max(4, min(250, steps // 6))),
                show_progress=True,
            )
            method = f"SimCSE, {size:,} sentences"
            result = finished.results(
                "sts", lambda finished=finished: tables(finished.encoder(), data_dir), paper="simcse", method=method
            )
            rows.append(result)
            average = result.query("task == 'Avg.' and aggregation == 'all'").value.round(2).tolist()
            print(config.backbone, method, seed, finished.id, average, flush=True)
    return pd.concat(rows, ignore_index=True)


def main() -> None:
    seeds = tuple(sorted({seed for seeds in SIZES.values() for seed in seeds}))
    own = parser(__doc__, corpus="wiki/wiki_sentences_00.txt.gz,wiki/wiki_sentences_01.txt.gz", seeds=seeds)
    own.add_argument("--precision", default="bf16", choices=["fp32", "bf16"])
    own.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = own.parse_args()
    config, data_dir = small_config(
        arguments, backbone="demo", learning_rate=LEARNING_RATE, precision=arguments.precision
    )
    wanted = {size: tuple(x for x in SIZES[size] if x in arguments.seeds) for size in arguments.sizes}
    rows = [measure(config, wanted, data_dir)]
    if set(START_SIZES) <= set(wanted):
        values = yaml.safe_load((paths.root() / "params/small/9_backbone.yaml").read_text(encoding="utf8"))
        start = mini_bert.start(load_corpus(values["corpus"], data_dir), **{name: values[name] for name in SHAPE})
        rows.append(measure(config.replace(backbone=str(start)), START_SIZES, data_dir))
    frame = pd.concat(rows, ignore_index=True)
    print(runs.publish(frame, "small", "simcse_mini_bert", NOTE, extend=True))


if __name__ == "__main__":
    main()
