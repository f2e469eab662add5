"""Measure and publish results/small/micse_mini_bert.csv: SimCSE, its two additions, and miCSE, with few sentences.

    .venv/bin/python results/micse_mini_bert.py --data-dir DIR [--sizes 1000 10000]
    .venv/bin/python results/micse_mini_bert.py --data-dir DIR --choose
    .venv/bin/python results/micse_mini_bert.py --data-dir DIR --look

Seeds 48 to 52 as the authors; a seed draws the sentences and everything else, and is the same for all variants, so that
differences are paired. Finished runs and evaluations are kept: the command can be stopped and repeated, and rows of
sizes that are not measured again stay. `--choose` publishes micse_mini_bert_choice.csv instead: the scores on STS-B dev
by which the weight of the attention term, the layers and the momentum were chosen, with a seed of its own; nothing was
tuned on a test set. `--look` reads the runs of the published rows and publishes micse_mini_bert_spread.csv: how widely the
logarithms of their attention spread.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from common import parser, small_config

from lib import paths, runs
from lib.analysis import attention
from lib.config import RunConfig
from lib.data import load_sts
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder
from lib.evaluation import RESULT_COLUMNS, evaluate_sts, headline

SEEDS = (48, 49, 50, 51, 52)
EPOCHS = {1_000: 2, 10_000: 1}
WEIGHT = {1_000: 10.0, 10_000: 0.1}  # of the attention term, by number of sentences, as the authors choose it
LAYERS = {"min_layer": 1, "max_layer": 5}
MOMENTUM = {"queue_size": 384, "momentum": 0.995}
NOTE = (
    "SimCSE, + AMI, + MoCo and miCSE from the mini-BERT on 1,000 Wikipedia sentences (two epochs) and 10,000 (one), [CLS], "
    "seven STS tasks, fp32. The seed draws the sentences too. Weight (10 and 0.1), layers and momentum were chosen on STS-B dev. "
    "The attention entries of the rows of 1,000 were drawn by torch.multinomial, those of 10,000 by the present code: "
    "the same distribution, other draws."
)
CHOICE = (
    "STS-B dev scores by which the weight of AMI, its layers and the momentum were chosen for micse_mini_bert.csv: "
    "mini-BERT, Wikipedia sentences of seed 7 (1,000 for two epochs, 10,000 for one), layers 1 to 4 unless named, [CLS], "
    "fp32. The runs of 1,000 sentences were made while the method was being written, at commits that are not part of this history."
)


SPREAD = (
    "Standard deviation of the natural logarithm of the attention of a sentence, all heads of a layer (counted from 0), "
    "dropout on, entries that it zeroes and those below 1e-30 left out; mean over the first 50 sentences of the STS-B dev "
    "pairs, for the encoders of micse_mini_bert.csv."
)


def variants(size: int) -> dict[str, dict]:
    off, term = {"ami_weight": 0.0, "queue_size": 0}, {"ami_weight": WEIGHT[size]} | LAYERS
    return {
        "SimCSE": off,
        "SimCSE + AMI": off | term,
        "SimCSE + MoCo": off | MOMENTUM,
        "miCSE": term | MOMENTUM,
    }


def sized(config: RunConfig, size: int, seed: int) -> RunConfig:
    steps = EPOCHS[size] * -(-size // config.batch_size)
    evaluate = {"eval_every": max(8, steps // 3)}
    return config.replace(corpus_size=size, corpus_seed=seed, seed=seed, epochs=EPOCHS[size], **evaluate)


def trials(size: int) -> dict[str, dict]:
    off = {"ami_weight": 0.0, "queue_size": 0}
    weights = {1_000: (1.0e-3, 1.0e-1, 1.0, 10.0, 100.0), 10_000: (1.0e-1, 1.0, 10.0)}[size]
    made = {f"+ AMI, weight {weight:g}": off | {"ami_weight": weight} | LAYERS for weight in weights}
    if size == 1_000:
        made["+ AMI, weight 1, layers 3 and 4 only"] = off | {"ami_weight": 1.0, "min_layer": 3, "max_layer": 5}
        for momentum in (0.9, 0.995):
            made[f"+ MoCo, momentum {momentum}"] = {"ami_weight": 0.0, "queue_size": 384, "momentum": momentum}
    return made | {"SimCSE": off}


def choose(config: RunConfig, sizes: list[int]) -> None:
    """Publish the scores on STS-B dev with sentences of seed 7, which no other table uses."""
    for size in sizes:
        rows = []
        for name, trial in trials(size).items():
            found = runs.run(sized(config, size, 7).replace(**trial))
            row = pd.DataFrame(
                [["STS-B", "dev", "SentEval", "all", "spearman", found.metrics["dev"]]], columns=RESULT_COLUMNS
            )
            rows.append(runs.label_rows(row, found.labels, method=f"{name}, {size:,} sentences"))
            print(f"{size} {found.metrics['dev']:6.2f} at step {found.metrics['best_step']:3d}  {name}", flush=True)
        frame = pd.concat(rows, ignore_index=True)
        print(runs.publish(frame, "small", "micse_mini_bert_choice", CHOICE, extend=True))


def look(data_dir: Path) -> None:
    """Of the runs behind the published rows, and of the mini-BERT they start from."""
    sentences = list(dict.fromkeys(load_sts(data_dir, "STS-B", "dev").sentences1))[:50]
    found = runs.published("small", "micse_mini_bert")[["method", "seed", "run_id"]].drop_duplicates()
    encoders = [("untuned", "", "", SentenceEncoder.from_pretrained("demo"))]
    encoders += [
        (*row, runs.Run(paths.runs() / "small" / row.run_id).encoder()) for row in found.itertuples(index=False)
    ]
    rows = []
    for method, seed, run_id, encoder in encoders:
        shape = encoder.backbone.config
        layers, heads = range(shape.num_hidden_layers), shape.num_attention_heads
        joint = [attention.joint_log_attention({method: encoder}, s, layers=layers, heads=heads) for s in sentences]
        spread = pd.DataFrame([one.groupby("layer").view1.std() for one in joint]).mean()
        rows.append(spread.rename("value").reset_index().assign(method=method, seed=seed, run_id=run_id))
        print(f"{method:30s} {seed} {' '.join(f'{value:5.1f}' for value in spread)}", flush=True)
    print(runs.publish(pd.concat(rows, ignore_index=True), "small", "micse_mini_bert_spread", SPREAD))


def measure(encoder: SentenceEncoder, data_dir) -> pd.DataFrame:
    return evaluate_sts(encoder.encode, [load_sts(data_dir, name) for name in STS_TASKS])


def main() -> None:
    own = parser(__doc__, corpus="wiki/wiki_sentences_00.txt.gz,wiki/wiki_sentences_01.txt.gz", seeds=SEEDS)
    own.add_argument("--sizes", type=int, nargs="+", default=list(EPOCHS), choices=list(EPOCHS))
    own.add_argument("--choose", action="store_true", help="measure and publish the dev scores behind the choices")
    own.add_argument("--look", action="store_true", help="measure and publish the spread of the attention")
    arguments = own.parse_args()
    # the learning rate was chosen for SimCSE by results/simcse_mini_bert.py
    config, data_dir = small_config(arguments, backbone="demo", method="micse", learning_rate=2.0e-4)
    if arguments.choose:
        choose(config, arguments.sizes)
        return
    if arguments.look:
        look(data_dir)
        return
    rows = []
    for size in arguments.sizes:
        for seed in arguments.seeds:
            for name, change in variants(size).items():
                run = runs.run(sized(config, size, seed).replace(**change))
                labels = {"paper": "micse", "table": "Table 3", "method": f"{name}, {size:,} sentences"}
                rows.append(run.results("sts", lambda run=run: measure(run.encoder(), data_dir), **labels))
                print(f"{size} {name:14s} {seed} {headline(rows[-1]):.2f} {run.id}", flush=True)
            frame = pd.concat(rows, ignore_index=True)
            path = runs.publish(frame, "small", "micse_mini_bert", NOTE, extend=True)
    print(path)


if __name__ == "__main__":
    main()
