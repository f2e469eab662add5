"""Ours against sentence-transformers, and our methods against our SimCSE, interleaved in one run: `make bench`.

Every measurement is a fresh process (so that peak memory is its own); the two sides take turns for several rounds,
and medians and their ratio are printed. Nothing is asserted: machines are noisy, tests are elsewhere.

    python benchmarks/compare.py training|training-bf16|training-default [--shape bert-base] [--rounds 5] [--steps 12]
    python benchmarks/compare.py evaluation|diagnose|maps --data-dir DIR [--shape minilm] [--rounds 3]
    python benchmarks/compare.py chunks [--shape mini-bert] [--rounds 5] [--steps 5]
    python benchmarks/compare.py micse|ami|ami-tokens|jtcse|infocse|msse|three_r|dropout|rounding [--shape bert-base] [--rounds 5] [--steps 12] [--corpus FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

SHAPES = {  # layers, hidden, heads, intermediate; weights are random: they do not change the time of a step
    "mini-bert": (6, 256, 4, 1024),
    "minilm": (6, 384, 12, 1536),
    "bert-base": (12, 768, 12, 3072),
}
BATCH, LENGTH, RATE = 64, 32, 3e-5
TRIPLES = 512  # of a step of `chunks`, as in supervised SimCSE
ON_DATA = ("evaluation", "diagnose", "maps")  # measured once a process, on the files of --data-dir
WARM_UP = 3  # first steps of a process, not counted


def make_backbone(shape: str, folder: Path) -> None:
    """A BERT of this shape with random weights and the tokenizer of the mini-BERT, vocabulary padded to BERT's 30,522."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from lib.encoders.saved import MINI_BERT

    layers, hidden, heads, intermediate = SHAPES[shape]
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MINI_BERT).save_pretrained(folder)


def some_sentences(n: int, corpus: str) -> list[str]:
    """Doc strings (`demo`) or a file of sentences, as lib.data.load_corpus reads it."""
    import numpy as np

    from lib import paths
    from lib.data import load_corpus

    sentences = load_corpus(corpus, paths.root()).columns[0]
    return [sentences[i] for i in np.random.default_rng(0).permutation(len(sentences))[:n]]


def train_ours(
    backbone: Path,
    steps: int,
    corpus_name: str,
    method_name: str = "simcse",
    precision: str = "fp32",
    triples: bool = False,
    chunk_size: int = 0,
    **arguments,
) -> list[float]:
    """Seconds of each step: batch assembly, forward, backward, clipping, update, schedule."""
    from lib import training
    from lib.config import RunConfig
    from lib.data import Corpus, tokenize_corpus
    from lib.encoders import SentenceEncoder

    rows, columns = (TRIPLES, 3) if triples else (BATCH, 1)
    config = RunConfig(
        backbone=str(backbone), batch_size=rows, max_length=LENGTH, learning_rate=RATE, dev_task="none",
        method=method_name, method_arguments=arguments, precision=precision, chunk_size=chunk_size,
    )  # fmt: skip
    encoder = SentenceEncoder.from_pretrained(backbone)
    method = config.spec.build(encoder, config.method_arguments)
    sentences = some_sentences(rows * columns * steps, corpus_name)
    texts = tuple(tuple(sentences[i::columns]) for i in range(columns))
    corpus = tokenize_corpus(Corpus("bench", texts), encoder, max_length=LENGTH)
    marks = [time.perf_counter()]
    after_step = method.after_step
    method.after_step = lambda: (after_step(), marks.append(time.perf_counter()))
    training.train(method, corpus, config, dev=None)
    return [b - a for a, b in zip(marks, marks[1:], strict=False)]


def train_peer(backbone: Path, steps: int, corpus_name: str, precision: str = "fp32") -> list[float]:
    """sentence-transformers' own SimCSE recipe: the same sentence twice, MultipleNegativesRankingLoss."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import TrainerCallback

    transformer = models.Transformer(str(backbone), max_seq_length=LENGTH)
    model = SentenceTransformer(
        modules=[transformer, models.Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")],
        device="cpu",
    )
    sentences = some_sentences(BATCH * steps, corpus_name)
    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            marks.append(time.perf_counter())

        def on_step_end(self, *args, **kwargs):
            marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            num_train_epochs=1,
            max_grad_norm=1.0,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=precision == "bf16",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"anchor": sentences, "positive": sentences}),
            loss=losses.MultipleNegativesRankingLoss(model, scale=20.0),
            callbacks=[Clock()],
        )
        trainer.train()
    return [b - a for a, b in zip(marks, marks[1:], strict=False)]


def evaluate_ours(backbone: Path, _: int, data_dir: str) -> list[float]:
    from lib.data import load_sts
    from lib.data.sts import STS_TASKS
    from lib.encoders import SentenceEncoder
    from lib.evaluation import evaluate_sts

    tasks = [load_sts(Path(data_dir), name) for name in STS_TASKS]
    encoder = SentenceEncoder.from_pretrained(backbone, pooling="mean")
    encoder.encode(["warm up"])
    start = time.perf_counter()
    evaluate_sts(encoder.encode, tasks)
    return [time.perf_counter() - start]


def read_every_way(backbone: Path, _: int, data_dir: str) -> list[float]:
    """All readings of `diagnose`, as notebook 11 asks for them."""
    from lib.analysis import diagnose
    from lib.data import load_sts
    from lib.data.sts import STS_TASKS
    from lib.encoders import SentenceEncoder

    tasks = [load_sts(Path(data_dir), name) for name in STS_TASKS]
    others = [load_sts(Path(data_dir), *other) for other in (("STS-B", "dev"), ("SICK-R", "all"))]
    encoder = SentenceEncoder.from_pretrained(backbone, pooling="mean")
    encoder.encode(["warm up"])
    start = time.perf_counter()
    diagnose.readings(encoder, tasks, others)
    return [time.perf_counter() - start]


def evaluate_peer(backbone: Path, _: int, data_dir: str) -> list[float]:
    """Task by task with sentence-transformers' evaluator and its default batch size, one pass per side."""
    from sentence_transformers import SentenceTransformer, models
    from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator

    from lib.data import load_sts
    from lib.data.sts import STS_TASKS

    tasks = [load_sts(Path(data_dir), name) for name in STS_TASKS]
    transformer = models.Transformer(str(backbone))
    model = SentenceTransformer(
        modules=[transformer, models.Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")],
        device="cpu",
    )
    model.encode(["warm up"])
    start = time.perf_counter()
    for task in tasks:
        evaluator = EmbeddingSimilarityEvaluator(
            task.sentences1,
            task.sentences2,
            (task.gold / 5).tolist(),
            main_similarity="cosine",
            write_csv=False,
        )
        evaluator(model)
    return [time.perf_counter() - start]


def map_titles(backbone: Path, _: int, data_dir: str, *, library: bool = False) -> list[float]:
    """20,000 StackOverflow titles, from texts to picture: encode, K-Means with its scores, t-SNE."""
    from sklearn.manifold import TSNE

    from lib.analysis import maps
    from lib.data.labelled import load_labelled
    from lib.encoders import SentenceEncoder

    if library:
        maps.TSNE = lambda perplexity, initialization, random_state, n_jobs: _Fit(
            TSNE(2, perplexity=perplexity, init=initialization, random_state=random_state)
        )
    task = load_labelled(data_dir, "stackoverflow")
    encoder = SentenceEncoder.from_pretrained(backbone, pooling="mean")
    encoder.encode(["warm up"])
    start = time.perf_counter()
    maps.cluster_map({"encoder": encoder.encode(list(task.texts))}, task)
    return [time.perf_counter() - start]


class _Fit:
    """scikit-learn's t-SNE behind openTSNE's method."""

    def __init__(self, tsne) -> None:
        self.fit = tsne.fit_transform


def train_micse(backbone: Path, steps: int, corpus_name: str, **arguments) -> list[float]:
    """Attention of four layers, the last one not among them, as in the authors' commands for 12 layers."""
    from transformers import AutoConfig

    top = AutoConfig.from_pretrained(backbone).num_hidden_layers - 1
    return train_ours(backbone, steps, corpus_name, "micse", min_layer=top - 4, max_layer=top, **arguments)


def train_twins(backbone: Path, steps: int, corpus_name: str) -> list[float]:
    """JTCSE with cross-attention in every second layer, as the paper has it."""
    from transformers import AutoConfig

    layers = AutoConfig.from_pretrained(backbone).num_hidden_layers // 2
    return train_ours(backbone, steps, corpus_name, "jtcse", cross_attention_layers=layers)


def train_two(backbone: Path, steps: int, corpus_name: str) -> list[float]:
    """Two SimCSE encoders one after the other: twice the step of one."""
    return [2 * seconds for seconds in train_ours(backbone, steps, corpus_name)]


def train_library_dropout(backbone: Path, steps: int, corpus_name: str) -> list[float]:
    """Our step with the dropout masks that PyTorch draws."""
    import torch.nn.functional as F

    from lib.encoders import dropout, packed

    dropout.dropout = packed.drop = F.dropout
    return train_ours(backbone, steps, corpus_name)


def train_library_bf16(backbone: Path, steps: int, corpus_name: str) -> list[float]:
    """Our step in bf16 with PyTorch's own products, also where the processor has no instructions for them."""
    from lib.encoders import precision

    precision.computes_bf16 = lambda device: True
    return train_ours(backbone, steps, corpus_name, precision="bf16")


SIDES = {
    ("chunks", "ours"): partial(train_ours, triples=True, chunk_size=64, projection="always"),
    ("chunks", "peer"): partial(train_ours, triples=True, projection="always"),
    ("infocse", "ours"): partial(train_ours, method_name="infocse", head="top_layers", lm_head="fresh"),
    ("infocse", "peer"): train_ours,
    ("msse", "ours"): partial(train_ours, method_name="msse", lm_head="fresh"),
    ("msse", "peer"): train_ours,
    ("three_r", "ours"): partial(train_ours, method_name="three_r(simcse)"),
    ("three_r", "peer"): train_ours,
    ("dropout", "ours"): train_ours,
    ("dropout", "peer"): train_library_dropout,
    ("rounding", "ours"): partial(train_ours, precision="bf16"),
    ("rounding", "peer"): train_library_bf16,
    ("jtcse", "ours"): train_twins,
    ("jtcse", "peer"): train_two,
    ("training", "ours"): train_ours,
    ("training", "peer"): train_peer,
    ("training-bf16", "ours"): partial(train_ours, precision="bf16"),
    ("training-bf16", "peer"): partial(train_peer, precision="bf16"),
    ("training-default", "ours"): partial(train_ours, precision="bf16"),
    ("training-default", "peer"): train_peer,  # fp32, which its trainer takes unless it is told otherwise
    ("micse", "ours"): train_micse,
    ("micse", "peer"): train_ours,
    ("ami", "ours"): partial(train_micse, queue_size=0),
    ("ami", "peer"): train_ours,
    ("ami-tokens", "ours"): partial(train_micse, queue_size=0, padded_queries=False),
    ("ami-tokens", "peer"): train_ours,
    ("maps", "ours"): map_titles,
    ("maps", "peer"): partial(map_titles, library=True),
    ("diagnose", "ours"): read_every_way,
    ("diagnose", "peer"): evaluate_ours,
    ("evaluation", "ours"): evaluate_ours,
    ("evaluation", "peer"): evaluate_peer,
}


def child(what: str, side: str, backbone: str, arguments: argparse.Namespace) -> None:
    from lib.session import quiet

    quiet()
    text = arguments.data_dir if what in ON_DATA else arguments.corpus
    seconds = SIDES[what, side](Path(backbone), arguments.steps, text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    skip = 0 if what in ON_DATA else WARM_UP
    print("RESULT " + json.dumps({"seconds": statistics.median(seconds[skip:]), "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted({what for what, _ in SIDES}))
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--data-dir", default="", help="folder with senteval/ and stackoverflow/, for evaluation, diagnose and maps"
    )
    parser.add_argument("--corpus", default="demo", help="file of sentences to train on; default: doc strings")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "BACKBONE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.what, *arguments.child, arguments)
        return
    if arguments.what == "rounding":
        import torch

        from lib.encoders.precision import computes_bf16

        if computes_bf16(torch.device("cpu")):
            sys.exit("rounding: this processor has instructions for bf16, so nothing is rounded here.")
    if arguments.what in ON_DATA:
        from lib import paths

        arguments.data_dir = str(paths.data_dir(arguments.data_dir))
    found: dict[str, list[dict[str, float]]] = {"peer": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder:
        make_backbone(arguments.shape, Path(folder))
        for _ in range(arguments.rounds):
            for side, results in found.items():
                command = [sys.executable, __file__, arguments.what, "--child", side, folder]
                command += ["--steps", str(arguments.steps), "--data-dir", arguments.data_dir]
                command += ["--corpus", arguments.corpus]
                output = subprocess.run(command, capture_output=True, text=True)
                line = next((x for x in output.stdout.splitlines() if x.startswith("RESULT ")), None)
                if line is None:
                    sys.exit(f"{side} failed:\n{output.stderr[-3000:]}")
                results.append(json.loads(line.removeprefix("RESULT ")))
                print(
                    f"  {side}: {results[-1]['seconds']:.3f} s, {results[-1]['peak_mib']:.0f} MiB",
                    file=sys.stderr,
                )
    median = {s: statistics.median(r["seconds"] for r in results) for s, results in found.items()}
    memory = {s: statistics.median(r["peak_mib"] for r in results) for s, results in found.items()}
    rows, unit = (TRIPLES, "triples") if arguments.what == "chunks" else (BATCH, "sentences")
    rate = {s: f"{t:.1f} s" if arguments.what in ON_DATA else f"{rows / t:.1f} {unit}/s" for s, t in median.items()}
    print(
        f"| {arguments.what}, {arguments.shape} shape | {rate['ours']} | {rate['peer']} "
        f"| {median['peer'] / median['ours']:.2f} x | {memory['ours']:.0f} | {memory['peer']:.0f} "
        f"| {memory['ours'] / memory['peer']:.2f} | {arguments.rounds} rounds, {platform.machine()} |"
    )


if __name__ == "__main__":
    main()
