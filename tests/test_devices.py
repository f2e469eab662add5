"""Public functions make every tensor on the device of what they are given, whatever torch's default device is.

No GPU is needed: a function runs on CPU tensors while the default device is "meta", where tensors hold no numbers. A
tensor that is made without a device then breaks the function or changes its result.
"""

import importlib
import inspect
import pkgutil
import re
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import lib.analysis
import lib.evaluation
from lib.analysis import attention, circumstances, cost, diagnose, geometry, maps, redundancy
from lib.data import Corpus, STSTask, Subset
from lib.data.labelled import LabelledTexts
from lib.data.retrieval import RetrievalTask
from lib.data.transfer import Split
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum
from lib.encoders.sentence_encoder import random_kept
from lib.evaluation import evaluate_transfer, in_domain_retrieval, interface, mteb_tasks, sts, transfer
from lib.evaluation.clustering import evaluate_clustering
from lib.evaluation.logistic_regression import Classifiers, fit_classifiers
from lib.evaluation.retrieval import evaluate_retrieval, top_k
from lib.training import dev_metrics


def numbers(result) -> list[np.ndarray]:
    """All arrays, tensors and numbers in a result, in order; a tensor that is not on the CPU raises."""
    if isinstance(result, pd.DataFrame):
        result = result.select_dtypes("number").to_numpy(float)
    if isinstance(result, Classifiers):
        result = vars(result)
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [array for part in result for array in numbers(part)]
    return [np.asarray(result)]


def assert_keeps_to_its_device(call) -> None:
    """`call()` gives the same numbers when torch's default device is another one."""
    expected = numbers(call())
    with torch.device("meta"):
        result = call()
    for array, expected_array in zip(numbers(result), expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)


def test_a_tensor_made_without_a_device_is_noticed():
    x = torch.ones(2)
    for call in (lambda: x + torch.zeros(2), lambda: torch.arange(2), lambda: torch.as_tensor(np.ones(2))):
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            assert_keeps_to_its_device(call)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps"])
def test_the_random_state_of_every_kind_of_device_comes_back(monkeypatch, kind):
    state = [1]  # of the device, which no machine here has
    module = SimpleNamespace(
        get_rng_state=lambda device: state[0], set_rng_state=lambda value, device: state.insert(0, value)
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device_type: module)
    before = torch.get_rng_state()
    with random_kept(torch.device(kind)):
        state.insert(0, 2)
        torch.manual_seed(5)
    assert state[0] == (2 if kind == "cpu" else 1) and torch.equal(torch.get_rng_state(), before)
    with random_kept(torch.device(kind), enabled=False):
        state.insert(0, 3)
    assert state[0] == 3


# --- evaluation and analysis: every public function that takes an encoder, `encode` or tensors -------------------


@pytest.fixture(scope="module")
def given(tiny_bert, sentences, tmp_path_factory) -> SimpleNamespace:
    """What the cases below read, made on the CPU."""
    tmp_path = tmp_path_factory.mktemp("given")
    given, generator = SimpleNamespace(), torch.Generator().manual_seed(0)
    given.encoder = SentenceEncoder.from_pretrained(tiny_bert, dropout=0.1, device="cpu").eval()
    given.texts = [*sentences[:9], "snow ."]
    given.folder = tmp_path
    lines = [f"{text},{'ab'[at % 2]}" for at, text in enumerate(sentences[:60])]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    given.first, given.second = given.texts[:5], given.texts[5:]
    given.gold = np.array([5.0, 1.0, 4.5, 2.0, 5.0])
    given.task = STSTask("demo", "dev", "demo pairs", {"demo": Subset(given.first, given.second, given.gold)})

    vectors = torch.rand(10, 4, generator=generator)
    given.vectors = vectors.numpy(), vectors
    given.data = {"features": torch.rand(40, 5, generator=generator), "labels": torch.arange(40) % 3}
    given.train = torch.arange(40)[None] % torch.tensor([[2], [3]]) > 0
    given.fits = {"train": given.train, "held_out": ~given.train, "penalties": torch.tensor([1e-5, 1e-2]), "seed": 1}
    given.classifiers = Classifiers(torch.rand(3, 2, 6, generator=generator), np.zeros(2))
    single = Split(sentences[:60], None, np.arange(60) % 2)
    pairs = Split(sentences[:60], sentences[60:120], np.arange(60) % 2)
    given.transfer = {
        "CR": {"train": single},
        "MRPC": {"train": pairs, "test": pairs},
        "SST2": {"train": single, "dev": single, "test": single},
    }
    documents = {str(i): text for i, text in enumerate(given.texts)}
    given.collection = RetrievalTask("toy", "test", {"q": "snow"}, documents, {"q": {"1": 1}})
    given.topics = LabelledTexts("toy", tuple(given.texts), tuple("ab" * 5))
    return given


LAYERS, SLICING = {"layers": (0, 1)}, {"slicing": "head_pairs"}
CALLS = {  # function -> a call of it, with what is `given`
    attention.attention_of: lambda f, g: f(g.encoder, g.texts, **LAYERS),
    attention.pair_information: lambda f, g: f(g.encoder, g.first, g.second, **LAYERS, **SLICING),
    attention.batch_factor: lambda f, g: f(g.encoder, g.texts, **LAYERS, **SLICING, max_length=8, padded_queries=True),
    attention.figure_pairs: lambda f, g: f(g.encoder, Corpus("toy", [g.texts]), g.task, **LAYERS, **SLICING),
    attention.log_deviation: lambda f, g: f(g.encoder, ["snow"]),
    attention.token_shares: lambda f, g: f(g.encoder, g.texts, batch_tokens=30),
    attention.readers: lambda f, g: list(f({"a": g.encoder})),
    attention.sentence_maps: lambda f, g: f({"a": g.encoder}, "snow")[0],
    attention.row_differences: lambda f, g: f(g.encoder, g.texts),
    attention.cls_energies: lambda f, g: f(g.encoder, g.texts, batch_tokens=30),
    circumstances.kind_of: lambda f, g: f(g.encoder),
    circumstances.seed_spreads: lambda f, g: f(g.encoder),
    maps.common_map: lambda f, g: f(g.folder, "texts.csv", g.encoder, size=40)[1](g.encoder),
    diagnose.readings: lambda f, g: f(g.encoder, [g.task]),
    cost.multiply_accumulates: lambda f, g: f(EncoderSum([g.encoder, g.encoder]), 9),
    redundancy.smoothness: lambda f, g: f(g.encoder, g.texts, batch_size=4),
    redundancy.dimension_statistics: lambda f, g: f(g.encoder, g.texts, g.texts[:2], threshold=0.3),
    geometry.gold_cosines: lambda f, g: f(g.encoder, g.task),
    geometry.spectrum: lambda f, g: f(g.encoder, g.texts),
    geometry.alignment: lambda f, g: [f(x[:5], x[5:]) for x in g.vectors],
    geometry.uniformity: lambda f, g: [f(x, rows_at_once=3) for x in g.vectors],
    interface.encode_distinct: lambda f, g: f(g.encoder.encode, g.texts),
    sts.evaluate_sts: lambda f, g: f(g.encoder.encode, [g.task]),
    sts.evaluate_pair: lambda f, g: f(g.encoder.encode, g.task, "demo", 1),
    dev_metrics: lambda f, g: f(g.encoder.encode, g.task),
    in_domain_retrieval: lambda f, g: f(g.encoder.encode, g.task),
    top_k: lambda f, g: f(g.vectors[0][:3], g.vectors[0], 2),
    evaluate_clustering: lambda f, g: f(g.encoder.encode, g.topics),
    evaluate_retrieval: lambda f, g: f(g.encoder.encode, g.collection),
    mteb_tasks.mteb_encoder: lambda f, g: f(g.encoder.encode).encode([{"text": g.texts}]),
    mteb_tasks.evaluate_mteb: lambda f, g: [],  # all else is mteb's
    evaluate_transfer: lambda f, g: [f(g.encoder.encode, *task) for task in g.transfer.items()],
    fit_classifiers: lambda f, g: f(**g.data, **g.fits, setting=transfer.SETTING),
    Classifiers.accuracy: lambda f, g: f(g.classifiers, **g.data, rows=g.train),
}


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_evaluation_and_analysis(function, given):
    assert_keeps_to_its_device(lambda: CALLS[function](function, given))


@pytest.mark.parametrize("package", [lib.analysis, lib.evaluation], ids=lambda package: package.__name__)
def test_no_public_function_is_left_out(package: ModuleType):
    names = {f"{function.__module__}.{function.__qualname__}" for function in CALLS}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        public = [x for name, x in vars(module).items() if name[0] != "_" and inspect.getmodule(x) is module]
        methods = [x for c in public if inspect.isclass(c) for name, x in vars(c).items() if name[0] != "_"]
        for function in filter(inspect.isfunction, public + methods):
            annotations = [str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()]
            if any(re.search("Encode|Tensor|Vectors", annotation) for annotation in annotations):
                name = f"{module.__name__}.{function.__qualname__}"
                assert name in names, f"{name} takes an encoder or tensors: add a call of it to CALLS"
