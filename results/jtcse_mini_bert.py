"""Measure and publish results/small/jtcse_mini_bert.csv: TNCSE, JTCSE and a distilled encoder from the mini-BERT.

    .venv/bin/python results/jtcse_mini_bert.py --data-dir DIR

No translation models come with this repository: in stage 1 encoder I reads each sentence beside a copy with repeated
words, encoder II beside one with deleted words. The seed draws the 10,000 sentences and everything else and is the same
for all methods. Finished runs and evaluations are kept: the command can be stopped and repeated, rows are published
after every seed. `--choose` publishes jtcse_mini_bert_choice.csv instead: STS-B dev scores of the learning rates of the
second stage and of the student, with a seed of its own; nothing was tuned on a test set.
"""

from __future__ import annotations

import pandas as pd
from common import parser, small_config

from lib import ensemble, runs
from lib.config import RunConfig
from lib.data import load_sts
from lib.data.sts import STS_TASKS
from lib.evaluation import evaluate_sts, headline

SEEDS = (42, 43, 44, 45, 46)
VIEWS = ("word_repetition(0.2)", "word_deletion(0.1)")
FIRST_RATE = 2.0e-4  # chosen for SimCSE by results/simcse_mini_bert.py
SECOND_RATE = 2.0e-5
STUDENT_RATE = 2.0e-4
LAYERS = 3  # every second of six, as the paper's 6 of 12
NOTE = (
    "Twin encoders from the mini-BERT on 10,000 Wikipedia sentences, one epoch in each stage: SimCSE on two kinds of changed "
    "text (word repetition, word deletion) and their untrained sum, TNCSE, JTCSE, and JTCSE distilled into one encoder; [CLS], "
    "seven STS tasks, fp32. The seed draws the sentences too. Learning rates were chosen on STS-B dev."
)
CHOICE = "STS-B dev scores by which the learning rates for jtcse_mini_bert.csv were chosen: 10,000 sentences of seed 7."


def first_stage(config: RunConfig, seed: int) -> list[runs.Run]:
    return [
        runs.run(config.replace(augmentation=view, learning_rate=FIRST_RATE, seed=seed, corpus_seed=seed))
        for view in VIEWS
    ]


def joint(config: RunConfig, seed: int, twins: list[runs.Run], **changes) -> runs.Run:
    one, two = (str(run.folder / "encoder") for run in twins)
    values = {"method": "jtcse", "backbone": one, "second_backbone": two, "cross_attention_layers": LAYERS}
    values |= {"learning_rate": SECOND_RATE, "schedule": "constant", "seed": seed, "corpus_seed": seed}
    return runs.run(config.replace(**(values | changes)))


def distilled(config: RunConfig, seed: int, teacher: runs.Run, **changes) -> runs.Run:
    values = {"method": "distill", "teacher": str(teacher.folder / "encoder"), "learning_rate": STUDENT_RATE}
    return runs.run(config.replace(**(values | {"seed": seed, "corpus_seed": seed} | changes)))


def choose(config: RunConfig) -> None:
    twins = first_stage(config, 7)
    found = {f"JTCSE, rate {rate:g}": joint(config, 7, twins, learning_rate=rate) for rate in (5e-6, 2e-5, 1e-4)}
    best = max(found.values(), key=lambda run: run.metrics["dev"])
    found |= {f"D, rate {rate:g}": distilled(config, 7, best, learning_rate=rate) for rate in (2e-4, 5e-4)}
    found |= {f"encoder {name}": run for name, run in zip(("I", "II"), twins, strict=True)}
    columns = ["task", "split", "protocol", "aggregation", "metric", "value"]
    rows = []
    for name, run in found.items():
        row = pd.DataFrame([["STS-B", "dev", "SentEval", "all", "spearman", run.metrics["dev"]]], columns=columns)
        rows.append(runs.label_rows(row, run.config, run.id, paper="jtcse", method=name))
        print(f"{run.metrics['dev']:6.2f} at step {run.metrics['best_step']:3d}  {name}", flush=True)
    frame = pd.concat(rows, ignore_index=True).assign(backbone="mini-bert")
    print(runs.publish(frame, "small", "jtcse_mini_bert_choice", CHOICE))


def main() -> None:
    own = parser(__doc__, corpus="wiki/wiki_sentences_00.txt.gz,wiki/wiki_sentences_01.txt.gz", seeds=SEEDS)
    own.add_argument("--choose", action="store_true", help="measure and publish the dev scores behind the choices")
    arguments = own.parse_args()
    config, data_dir = small_config(arguments, backbone="demo", corpus_size=10_000, eval_every=52)
    if arguments.choose:
        choose(config)
        return
    tasks = [load_sts(data_dir, name) for name in STS_TASKS]
    rows = []
    for seed in arguments.seeds:
        twins = first_stage(config, seed)
        tncse = joint(config, seed, twins, cross_attention_layers=0, coin=False)
        jtcse = joint(config, seed, twins)
        measured = {"SimCSE I": twins[0], "SimCSE II": twins[1], "TNCSE": tncse, "JTCSE": jtcse}
        measured["JTCSE D"] = distilled(config, seed, jtcse)
        for name, run in measured.items():
            result = run.results(
                "sts", lambda run=run: evaluate_sts(run.encoder().encode, tasks), paper="jtcse", method=name
            )
            rows.append(result)
        both = ensemble.EncoderSum([run.encoder() for run in twins])
        key = [run.id for run in twins]
        result = twins[0].results(
            "sum", lambda both=both: evaluate_sts(both.encode, tasks), key=key, paper="jtcse", method="sum, untrained"
        )
        rows.append(result)
        for result in rows[-6:]:
            print(seed, f"{result.method.iloc[0]:15s} {headline(result):.2f}", flush=True)
        frame = pd.concat(rows, ignore_index=True).assign(backbone="mini-bert")
        path = runs.publish(frame, "small", "jtcse_mini_bert", NOTE, extend=True)
    print(path)


if __name__ == "__main__":
    main()
