"""The loop: learning, checkpoint choice, schedule, numeric guard, resume after a kill, several processes."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lib import training
from lib.config import RunConfig
from lib.data import Corpus, STSTask, Subset, tokenize_corpus
from lib.encoders import SentenceEncoder

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def dev(sentences):
    """Pairs whose gold score is their word overlap: something a bag of words can learn."""
    first, second = sentences[:60], sentences[60:120]
    overlap = [len(set(a.split()) & set(b.split())) for a, b in zip(first, second, strict=True)]
    gold = np.array(overlap, dtype=float)
    gold[:10], second = 5.0, first[:10] + second[10:]
    return STSTask("toy", "dev", "toy", {"toy": Subset(tuple(first), tuple(second), gold)})


DEFAULTS = {"batch_size": 16, "learning_rate": 1e-3, "eval_every": 4, "dev_task": "none"}
DEFAULTS |= {"pooling": "mean", "dropout": 0.02}


def build(tiny_bert, sentences, **options):
    """What `train` takes: method, corpus, config."""
    config = RunConfig(**DEFAULTS | {"backbone": str(tiny_bert)} | options)
    torch.manual_seed(config.seed)
    encoder = SentenceEncoder.from_pretrained(tiny_bert, pooling=config.pooling, dropout=config.dropout)
    method = config.spec.build(encoder, config.method_arguments)
    corpus = tokenize_corpus(Corpus("toy", (tuple(sentences),)), encoder, max_length=config.max_length)
    return method, corpus, config


def trained(tiny_bert, sentences, dev=None, **options):
    """The method, and what its training left behind."""
    method, corpus, config = build(tiny_bert, sentences, **options)
    return method, training.train(method, corpus, config, dev=dev)


def test_the_untrained_encoder_is_measured_once_for_all_runs(tiny_bert, sentences):
    first, second = sentences[120:160], sentences[160:]  # pairs of no other test
    dev = STSTask("mine", "dev", "toy", {"mine": Subset(tuple(first), tuple(second), np.arange(40.0) % 6)})
    starts, passes = [], []
    for options in ({}, {"seed": 7}, {"pooling": "cls"}):
        method, corpus, config = build(tiny_bert, sentences, max_steps=4, **options)
        passes.append([])
        counted = method.encoder.register_forward_pre_hook(lambda module, _: passes[-1].append(module.training))
        starts.append(training.train(method, corpus, config, dev=dev).history.dev[0])
        counted.remove()
    each = [seen.count(False) for seen in passes]
    assert each[0] == each[2] == 2 * each[1] > 0  # after step 4 of each, and before step 1 of two encoders
    assert starts[0] == starts[1] != starts[2]
    assert starts[0] == training.dev_metrics(build(tiny_bert, sentences)[0].encoder.encode, dev)["dev"]


def test_the_loss_falls_history_has_every_step_and_the_best_dev_step_is_kept(tiny_bert, sentences, dev):
    method, done = trained(tiny_bert, sentences, dev, epochs=3, trace_until=10)
    history = done.history
    assert history.step.tolist() == list(range(40)) and done.metrics["steps"] == 39  # 200 / 16 -> 13 steps an epoch
    assert history.loss[1:6].mean() > 1.5 * history.loss[-5:].mean()
    assert history.learning_rate[1] == pytest.approx(1e-3) and history.learning_rate[39] == pytest.approx(1e-3 / 39)
    measured = history.dropna(subset="dev").step.tolist()
    assert measured == [0, 4, 8, 10, 12, 16, 20, 24, 28, 32, 36, 39]
    assert history.alignment.notna().sum() == history.uniformity.notna().sum() == len(measured)
    candidates = history[(history.step % 4 == 0) | (history.step == 39)].iloc[1:]
    best = candidates.loc[candidates.dev.idxmax()]  # idxmax takes the first of equals: strictly better replaces
    assert done.metrics == {"steps": 39, "best_step": int(best.step), "dev": best.dev}
    assert training.dev_metrics(method.encoder.encode, dev)["dev"] == pytest.approx(best.dev, abs=1e-4)


def test_the_seed_decides_the_history_and_what_accelerate_config_says_does_not(tiny_bert, sentences, monkeypatch):
    histories = []
    for seed in (1, 1, 2):
        histories.append(trained(tiny_bert, sentences, seed=seed, max_steps=5)[1].history)
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
        monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    pd.testing.assert_frame_equal(*histories[:2])
    assert not np.allclose(histories[0].loss, histories[2].loss)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"schedule": "linear", "warmup_ratio": 0.5}, [0, 0.5, 1, 0.5]),
        ({"schedule": "constant", "warmup_ratio": 0.5}, [0, 0.5, 1, 1]),
    ],
)
def test_schedules(tiny_bert, sentences, options, expected):
    history = trained(tiny_bert, sentences, max_steps=4, **options)[1].history
    np.testing.assert_allclose(history.learning_rate, np.array(expected) * 1e-3)


def test_gradient_clipping_limits_the_update(tiny_bert, sentences):
    """Adam hides the scale of a gradient, so the clipped gradients themselves are compared."""
    norms = []
    for limit in (0.0, 0.01):
        method, _ = trained(tiny_bert, sentences, max_steps=1, gradient_clip=limit)
        norms.append(torch.stack([p.grad.norm() for p in method.parameters() if p.grad is not None]).norm().item())
    assert norms[0] > 0.02 and norms[1] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("lower", ["bf16", "fp16"])
def test_a_lower_precision_trains_close_to_fp32(tiny_bert, sentences, lower):
    losses = {}
    for precision in ("fp32", lower):
        method, done = trained(tiny_bert, sentences, precision=precision, dropout=0.0, max_steps=5)
        losses[precision] = done.history.loss
        assert all(p.dtype == torch.float32 for p in method.parameters())
    assert not np.array_equal(losses["fp32"], losses[lower])
    np.testing.assert_allclose(losses["fp32"], losses[lower], atol=0.1)


def test_fp16_leaves_a_step_out_where_its_scaled_gradient_overflows(
    tiny_bert, sentences, tmp_path, checkpoints_at_once
):
    """And a killed run goes on with the scale that it had by then."""
    checkpoint, histories = tmp_path / "checkpoint.pt", []
    for kill in (False, True, False):
        method, corpus, config = build(tiny_bert, sentences, precision="fp16", max_steps=12)
        plain = method.forward
        method.forward = lambda *given, plain=plain: {name: 10 * term for name, term in plain(*given).items()}
        place = checkpoint if kill or checkpoint.exists() else None
        if kill:
            method.after_step = iter(range(4)).__next__  # in step 5
            with pytest.raises(StopIteration):
                training.train(method, corpus, config, dev=None, checkpoint=place)
        else:
            histories.append(training.train(method, corpus, config, dev=None, checkpoint=place).history)
    left_out = ~np.isfinite(histories[0].gradient_norm)
    assert left_out[0] and not left_out[4:].any() and histories[0].loss[11] < histories[0].loss[0]
    pd.testing.assert_frame_equal(*histories)


def test_a_dev_score_a_term_or_a_gradient_in_fp16_that_is_no_number_stops_training_and_is_named(tiny_bert, sentences):
    method, corpus, config = build(tiny_bert, sentences)
    gold = np.full(5, 3.0)  # constant: no correlation
    dev = STSTask("mine", "dev", "demo pairs", {"mine": Subset(sentences[:5], sentences[5:10], gold)})
    with pytest.raises(training.NumericError, match="the dev score is nan at step 0.*gold scores"):
        training.train(method, corpus, config, dev=dev)
    calls = []

    def broken(*given, forward=method.forward):
        terms = forward(*given)
        calls.append(1)
        return terms | {"extra": terms["info_nce"] * (float("nan") if len(calls) == 3 else 1.0)}

    method.forward = broken
    with pytest.raises(training.NumericError, match="'extra' is nan at step 3"):
        training.train(method, corpus, config, dev=None)
    method, corpus, config = build(tiny_bert, sentences, precision="fp16", epochs=9)
    method.encoder.backbone.embeddings.word_embeddings.weight.register_hook(lambda gradient: gradient * np.inf)
    with pytest.raises(training.NumericError, match="the gradient norm is .* at step 17 "):
        training.train(method, corpus, config, dev=None)


def test_grouped_lengths_pad_less_and_every_row_comes_once(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    tokens = tokenize_corpus(Corpus("text", (tuple(sentences),)), encoder, max_length=32)
    config = RunConfig(batch_size=16)
    orders = {grouped: training._order(tokens, config, 0, grouped) for grouped in (False, True)}
    padding = {}
    for grouped, order in orders.items():
        assert sorted(order) == list(range(len(sentences)))
        batches = [tokens.lengths()[order[i : i + 16], 0] for i in range(0, len(order), 16)]
        padding[grouped] = sum(int((lengths.max() - lengths).sum()) for lengths in batches)
    assert padding[True] < 0.4 * padding[False]
    assert np.array_equal(orders[True], training._order(tokens, config, 0, True))
    assert not np.array_equal(orders[True], training._order(tokens, config, 1, True))


def test_weight_decay_acts_on_matrices_only(tiny_bert, sentences):
    norms = []
    for decay in (0.0, 1.0):
        method, corpus, config = build(tiny_bert, sentences, max_steps=3, weight_decay=decay, schedule="constant")
        decayed, free = method.parameter_groups(config)
        assert (decayed["weight_decay"], free["weight_decay"]) == (decay, 0.0)
        assert {p.dim() for p in decayed["params"]} == {2} and {p.dim() for p in free["params"]} == {1}
        assert len(decayed["params"]) + len(free["params"]) == len(list(method.parameters()))
        training.train(method, corpus, config, dev=None)
        norms.append(float(method.encoder.backbone.embeddings.word_embeddings.weight.detach().norm()))
    assert norms[1] == pytest.approx(norms[0] * (1 - 1e-3) ** 3, rel=1e-4)


def test_after_a_slow_save_the_next_one_waits(tiny_bert, sentences, tmp_path, monkeypatch, checkpoints_at_once):
    real, saves = torch.save, []
    monkeypatch.setattr(torch, "save", lambda *given: saves.append(time.sleep(0.01)) or real(*given))
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 1e-6)  # after a save of 10 ms: for hours
    training.train(*build(tiny_bert, sentences, max_steps=4), dev=None, checkpoint=tmp_path / "checkpoint.pt")
    assert len(saves) == 1


CHILD = """
import sys, pathlib, time
import lib.training as training
from lib import runs
from lib.config import RunConfig
training.CHECKPOINT_SECONDS, training.CHECKPOINT_SHARE = 0.0, float("inf")
real = training._step
def slow(*args):  # time enough to be killed in the middle of a step
    values = real(*args)
    print("in step", args[-1], flush=True)
    time.sleep(0.05)
    return values
training._step = slow
run = runs.run(RunConfig(**eval(sys.argv[1])))
print(run.folder)
"""


@pytest.mark.process
def test_killed_in_the_middle_of_a_step_it_resumes_to_the_same_numbers(tiny_bert, corpus_file, tmp_path):
    """With a late head, which has weights and random choices of its own; other methods: in one process, in their tests."""
    options = {
        "corpus": str(corpus_file), "backbone": str(tiny_bert), "batch_size": 16, "epochs": 2, "eval_every": 5,
        "learning_rate": 1e-3, "dev_task": "demo", "method": "mlm", "method_arguments": {"condenser_weight": 1.0},
    }  # fmt: skip

    def start(store):
        environment = os.environ | {"CSE_RUNS": str(tmp_path / store), "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, repr(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )  # fmt: skip

    whole = start("whole")
    killed = start("killed")
    for line in killed.stdout:  # kill -9 inside step 12 of 26
        if line == "in step 12\n":
            os.kill(killed.pid, signal.SIGKILL)
            break
    assert killed.wait() == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("demo/*/metrics.json"))
    resumed = start("killed")
    output = resumed.communicate()[0].splitlines()
    assert output[0] == "in step 12" and resumed.returncode == 0
    finished, expected = Path(output[-1]), Path(whole.communicate()[0].splitlines()[-1])
    assert finished.name == expected.name
    for name in ("metrics.json", "history.csv", "config.yaml"):
        assert (finished / name).read_bytes() == (expected / name).read_bytes(), name
    weights = sorted((expected / "encoder").glob("*.safetensors"))
    assert len(weights) == 2  # the late head lies beside the model
    for path in weights:
        assert (finished / "encoder" / path.name).read_bytes() == path.read_bytes(), path.name
    assert not list((tmp_path / "killed/.unfinished").glob("*/checkpoint.pt"))


WORKER = """
import sys, torch, torch.distributed as dist
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.test_training import losses_and_gradients
cases, folder = eval(sys.argv[2]), Path(sys.argv[3])
sentences = (folder / "sentences.txt").read_text().split("\\n")
results = {name: losses_and_gradients(Path(sys.argv[4]), sentences, options) for name, options in cases.items()}
assert dist.get_world_size() == 2
if dist.get_rank() == 0:
    torch.save(results, folder / "two.pt")
"""


def losses_and_gradients(tiny, sentences, options):
    """Of four steps, or as many as the options say, the gradients of the last."""
    method, corpus, config = build(tiny, sentences, **{"dropout": 0.0, "max_steps": 4, "gradient_clip": 0.0} | options)
    extra = method.row_data(Corpus("toy", (tuple(sentences),)), config.max_length)
    history = training.train(method, dataclasses.replace(corpus, extra=extra), config, dev=None).history
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return {"loss": history.loss.tolist(), "gradients": gradients}


def in_two_processes(*arguments, **environment):
    """What `accelerate launch` with two processes comes to, on a port of their own; its standard output."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}", *arguments]
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.process
def test_two_processes_have_the_loss_and_the_gradient_of_one(tiny_bert, sentences, tmp_path, variant):
    second = variant(tiny_bert, tmp_path / "second")  # what equal encoders have to learn from each other is extreme
    twins = {"cross_attention_layers": 2, "second_backbone": second}
    # Nothing random (all words masked, none for the generator), and rows of one length: means of means are means.
    auxiliary = {"auxiliary_weight": 1.0, "auxiliary_probability": 1.0, "mask_only": True, "head": "top_layers"}
    auxiliary |= {"late_layers": 1, "rtd_weight": 1.0, "rtd_probability": 1e-12, "generator_dropout": False}
    decoder = {"decoder": "positionwise"}  # the one without noise
    summed = decoder | {"reconstruction_reduce": "sum", "reconstruction_weight": 0.01}
    # One step: behind batch norm Adam makes other last digits grow to a tenth of a gradient in three, on some processors.
    one_step = {"pooling": "cls", "max_steps": 1}
    cases = {
        "simcse": {},
        "chunks": {"chunk_size": 3},
        "further epochs": {"epochs": 4, "method_arguments": {"temperature": 0.1}},
        "jtcse": {"method": "jtcse", "pooling": "cls", "method_arguments": twins},
        "infocse": one_step | {"method": "infocse", "max_length": 6, "method_arguments": auxiliary},
        "msse": one_step | {"method": "msse", "max_length": 6, "method_arguments": decoder},
        "msse, sum": one_step | {"method": "msse", "method_arguments": summed},
        "three_r": {"method": "three_r(simcse)", "pooling": "cls", "method_arguments": {"threshold": 0.9}},
        "three_r, all": {"method": "three_r(simcse)", "pooling": "cls", "method_arguments": {"dimensions": "all"}},
        "distill": {"method": "distill", "pooling": "cls", "method_arguments": {"teacher": second}},
    }
    (tmp_path / "sentences.txt").write_text("\n".join(sentences))
    (tmp_path / "worker.py").write_text(WORKER)
    in_two_processes(str(tmp_path / "worker.py"), str(ROOT), repr(cases), str(tmp_path), str(tiny_bert))
    together = torch.load(tmp_path / "two.pt", weights_only=True)
    for case, options in cases.items():
        one, two = losses_and_gradients(tiny_bert, sentences, options), together[case]
        if case != "infocse" and "msse" not in case:  # whose auxiliary terms are means over each process's own rows
            np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-4, err_msg=case)
        assert set(one["gradients"]) == set(two["gradients"]), case
        for name, gradient in one["gradients"].items():
            # batch norm; what subtraction leaves is small; L_DCM sends sums of D^2 entries that nearly cancel
            share = {"infocse": 2e-3, "three_r": 1e-3, "three_r, all": 1e-3, "msse": 2e-3, "msse, sum": 2e-3}.get(
                case, 0.0
            )
            noise = max(1e-5, share * float(gradient.abs().max()))
            torch.testing.assert_close(two["gradients"][name], gradient, rtol=1e-3, atol=noise, msg=f"{case}: {name}")


@pytest.mark.process
def test_two_processes_train_one_run_of_the_store(tiny_bert, corpus_file, tmp_path):
    """What `accelerate launch -m lib.runs` does: locks, dev evaluation on one process, one finished folder."""
    file = tmp_path / "p.yaml"
    file.write_text(f"method: simcse\ncorpus: {corpus_file}\nbackbone: {tiny_bert}\nbatch_size: 16\nmax_steps: 4\n")
    said = in_two_processes("-m", "lib.runs", "-f", str(file), CSE_RUNS=str(tmp_path / "runs"))
    assert said.count('"steps": 4') == 1
    finished = list((tmp_path / "runs/demo").glob("simcse-*/provenance.json"))
    assert len(finished) == 1 and '"processes": 2' in finished[0].read_text()
