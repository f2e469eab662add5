"""Measure and publish results/small/jtcse_mini_bert.csv: TNCSE, JTCSE and a distilled encoder from the mini-BERT.

    .venv/bin/python results/jtcse_mini_bert.py --data-dir DIR

No translation models come with this repository: in stage 1 encoder I reads each sentence beside a copy with repeated
words, encoder II beside one with deleted words. The seed draws the 10,000 sentences and everything else and is the same
for all methods. Finished runs and evaluations are kept: the command can be stopped and repeated, rows are published
after every seed. `--choose` publishes jtcse_mini_bert_choice.csv instead: STS-B dev scores of the learning rates of the
second stage and of the student, with a seed of its own; nothing was tuned on a test set. `--control` adds the rows NCE:
the second stage with the contrastive loss of each encoder only, which is simply more training.

`--look` measures where these encoders attend and their CLS energy, on the first sentences of the STS-B dev pairs, and
publishes jtcse_mini_bert_energy.csv, _attention.csv and _maps.csv; `--minilm DIR` (`make .cache/minilm`) adds MiniLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from common import parser, small_config

from lib import runs
from lib.analysis import attention
from lib.config import RunConfig
from lib.data import load_sts
from lib.data.sts import STS_TASKS
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import RESULT_COLUMNS, evaluate_sts, headline

SEEDS = (42, 43, 44, 45, 46)
VIEWS = ("word_repetition(0.2)", "word_deletion(0.1)")
FIRST_RATE = 2.0e-4  # chosen for SimCSE by results/simcse_mini_bert.py
SECOND_RATE = 1.0e-4
STUDENT_RATE = 1.0e-3
LAYERS = 3  # every second of six, as the paper's 6 of 12
NOTE = (
    "Twin encoders from the mini-BERT on 10,000 Wikipedia sentences, one epoch in each stage: SimCSE on two kinds of changed "
    "text (word repetition, word deletion) and their sum, TNCSE, JTCSE, their single encoders, and JTCSE distilled into one "
    "encoder; NCE is the second stage with no term between the encoders; [CLS], seven STS tasks, fp32. The seed draws the "
    "sentences too. Chosen on STS-B dev: the rate of stage 1 for plain SimCSE, that of stage 2 for JTCSE (TNCSE and NCE "
    "have the same), that of the student."
)
# sums of the encoders I and II of a name
SUMS = {"sum of stage 1": "SimCSE", "NCE": "NCE", "TNCSE": "TNCSE", "JTCSE": "JTCSE"}
LOOK = "first sentences of the STS-B dev pairs, without dropout; value x 100."
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
    found = {f"JTCSE, rate {rate:g}": joint(config, 7, twins, learning_rate=rate) for rate in (5e-6, 2e-5, 1e-4, 3e-4)}
    best = max(found.values(), key=lambda run: run.metrics["dev"])
    found |= {f"D, rate {rate:g}": distilled(config, 7, best, learning_rate=rate) for rate in (2e-4, 5e-4, 1e-3, 2e-3)}
    found |= {f"encoder {name}": run for name, run in zip(("I", "II"), twins, strict=True)}
    rows = []
    for name, run in found.items():
        row = pd.DataFrame(
            [["STS-B", "dev", "SentEval", "all", "spearman", run.metrics["dev"]]], columns=RESULT_COLUMNS
        )
        rows.append(runs.label_rows(row, run.labels, paper="jtcse", method=name))
        print(f"{run.metrics['dev']:6.2f} at step {run.metrics['best_step']:3d}  {name}", flush=True)
    frame = pd.concat(rows, ignore_index=True)
    print(runs.publish(frame, "small", "jtcse_mini_bert_choice", CHOICE))


def trained(config: RunConfig, seed: int) -> dict[str, tuple[runs.Run, SentenceEncoder]]:
    """Every single encoder of a seed and the run that it comes from."""
    twins = first_stage(config, seed)
    tncse = joint(config, seed, twins, cross_attention_layers=0, coin=False)
    jtcse = joint(config, seed, twins)
    found = {f"SimCSE {name}": (run, run.encoder()) for name, run in zip(("I", "II"), twins, strict=True)}
    for method, run in (("TNCSE", tncse), ("JTCSE", jtcse)):
        one, two = ensemble.parts(run.encoder())
        found |= {f"{method} I": (run, one), f"{method} II": (run, two)}
    student = distilled(config, seed, jtcse)
    return found | {"JTCSE D": (student, student.encoder())}


def control(config: RunConfig, seed: int) -> dict[str, tuple[runs.Run, SentenceEncoder]]:
    """The single encoders of the second stage without any term between them."""
    weights = {"icnce_weight": 0.0, "ictm_weight": 0.0}
    run = joint(config, seed, first_stage(config, seed), cross_attention_layers=0, coin=False, **weights)
    return {f"NCE {name}": (run, each) for name, each in zip(("I", "II"), ensemble.parts(run.encoder()), strict=True)}


def encode_sum(
    encoders: Mapping[str, SentenceEncoder], names: Sequence[str], known: dict[str, np.ndarray]
) -> Callable[[list[str]], np.ndarray]:
    """`encode` of a sum of these encoders for one list of sentences, which every encoder reads once for all its sums."""

    def encode(sentences: list[str]) -> np.ndarray:
        for name in names:
            if name not in known:
                known[name] = encoders[name].encode(sentences)
        return np.sum([known[name] for name in names], axis=0)

    return encode


def scores(found: dict[str, tuple[runs.Run, SentenceEncoder]], seed: int, tasks: list) -> list[pd.DataFrame]:
    """Rows of the seven STS tasks for every single encoder of a seed and every sum of two."""
    encoders = {name: encoder for name, (_, encoder) in found.items()}
    sums = {name: [f"{of} I", f"{of} II"] for name, of in SUMS.items() if f"{of} I" in found}
    members = {name: [name] for name in found} | sums
    known: dict[str, np.ndarray] = {}
    rows = []
    for method, names in members.items():
        encode = encode_sum(encoders, names, known)
        run, key = found[names[0]][0], [method, *(found[name][0].id for name in names)]
        rows.append(
            run.results("sts", lambda encode=encode: evaluate_sts(encode, tasks), key=key, paper="jtcse", method=method)
        )
        print(seed, f"{method:15s} {headline(rows[-1]):.2f}", flush=True)
    return rows


def look(config: RunConfig, data_dir: Path, seeds: list[int], minilm: str) -> None:
    """CLS energy for every seed, shares and maps of attention for the first."""
    sentences = list(dict.fromkeys(load_sts(data_dir, "STS-B", "dev").sentences1))
    others = {"untuned": SentenceEncoder.from_pretrained(config.backbone)}
    if minilm:
        others["MiniLM"] = SentenceEncoder.from_pretrained(minilm)
    energy, shares, maps = [], [], []
    for seed in seeds:
        found = {name: (run.id, encoder) for name, (run, encoder) in trained(config, seed).items()}
        if seed == seeds[0]:
            found = {name: ("", encoder) for name, encoder in others.items()} | found
        for name, (run_id, encoder) in found.items():
            labels = {"encoder": name, "seed": seed if run_id else "", "run_id": run_id}
            energy.append(
                (100 * attention.cls_energies(encoder, sentences)).rename("value").reset_index().assign(**labels)
            )
            if seed == seeds[0]:
                share = attention.token_shares(encoder, sentences)
                shares.append(
                    share.assign(value=100 * share.pop("share"), tokens=(100 * share.tokens).round(2), **labels)
                )
                if name in (*others, "SimCSE I", "JTCSE I"):
                    mean = attention.mean_attention(encoder, sentences, length=12)
                    maps.append(mean.assign(value=100 * mean.value, **labels))
            print(seed, f"{name:10s} E_CLS {energy[-1].value.mean():.2f}", flush=True)
    for name, frames, what in (
        ("energy", energy, "E_CLS (JTCSE, Eq. 6) after every layer, counted from 0"),
        ("attention", shares, "Share of attention that groups of tokens receive in each layer"),
        ("maps", maps, "Mean attention between the first twelve places, sentences of twelve tokens and more"),
    ):
        print(runs.publish(pd.concat(frames, ignore_index=True), "small", f"jtcse_mini_bert_{name}", f"{what}: {LOOK}"))


def main() -> None:
    own = parser(__doc__, corpus="wiki/wiki_sentences_00.txt.gz,wiki/wiki_sentences_01.txt.gz", seeds=SEEDS)
    own.add_argument("--choose", action="store_true", help="measure and publish the dev scores behind the choices")
    own.add_argument("--control", action="store_true", help="measure and publish the rows NCE")
    own.add_argument("--look", action="store_true", help="measure and publish attention and CLS energy")
    own.add_argument("--minilm", default="", help="folder of all-MiniLM-L6-v2, for --look")
    arguments = own.parse_args()
    config, data_dir = small_config(arguments, backbone="demo", corpus_size=10_000, eval_every=52)
    if arguments.choose:
        choose(config)
        return
    if arguments.look:
        look(config, data_dir, arguments.seeds, arguments.minilm)
        return
    tasks = [load_sts(data_dir, name) for name in STS_TASKS]
    for seed in arguments.seeds:
        found = (control if arguments.control else trained)(config, seed)
        frame = pd.concat(scores(found, seed, tasks), ignore_index=True)
        path = runs.publish(frame, "small", "jtcse_mini_bert", NOTE, extend=True)
    print(path)


if __name__ == "__main__":
    main()
