"""Shared fixtures: tiny encoders, isolated stores. Nothing here needs a network.

The tests run on the CPU, whose numbers they know: a GPU is hidden from them, but where CSE_TEST_GPU is set, for the tests
marked `gpu`: CSE_TEST_GPU=1 .venv/bin/python -m pytest -m gpu tests
"""

import json
import os
import re
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when the hub client is imported
os.environ.setdefault("CSE_PROGRESS", "off")
if not os.environ.get("CSE_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest

REAL = Path(os.environ.get("CSE_DATA", "/no/such/folder")).resolve()  # no test sees the variable
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = (
    "a the man woman dog cat child plays runs eats sleeps is was not in on under park house street red blue small "
    "large quickly slowly happy sad two three city river music guitar market opens closes new old rain snow sun"
).split()


def fill(folder, files):
    """Write files, name -> text or bytes, below a folder, which is returned."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def rewrite(folder, name, change):
    """Change a JSON file of a folder: by new values, or as a whole."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(change, dict):
        path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | change))
    else:
        path.write_text(change)


def reweigh(folder, pattern, change, name="model.safetensors"):
    """Change the weights of a folder whose names have the pattern."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / name)
    changed = {key: change(weight).contiguous() for key, weight in weights.items() if re.search(pattern, key)}
    assert changed
    save_file(weights | changed, folder / name, {"format": "pt"})


@pytest.fixture(autouse=True)
def separate_store(tmp_path, monkeypatch, request):
    """Every test has its own run store, cache, figures and measured rows."""
    if "notebook" in request.keywords:  # these choose their own
        return
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CSE_FIGURES", str(tmp_path / "figures"))
    monkeypatch.delenv("CSE_DATA", raising=False)
    monkeypatch.setattr("lib.results._own", [])


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """An empty one in the place of this one, without notebooks, parameters and published rows."""
    monkeypatch.setattr("lib.paths.root", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def checkpoints_at_once(monkeypatch):
    """A checkpoint after every step."""
    monkeypatch.setattr("lib.training.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("lib.training.CHECKPOINT_SHARE", float("inf"))


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """200 different sentences of the words above."""
    import numpy as np

    random = np.random.default_rng(0)
    texts = {" ".join(random.choice(WORDS, size=random.integers(4, 12))) for _ in range(260)}
    return sorted(texts)[:200]


@pytest.fixture(scope="session")
def shake():
    """Function (module, seed, scale) -> the module with its weights moved."""
    import torch

    def move(module, seed=5, scale=0.05):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in module.parameters():
                p.add_(scale * torch.randn(p.shape, generator=generator))
        return module

    return move


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    """A BERT of 2 layers and 32 dimensions with random weights and a word-level WordPiece vocabulary, pooler and MLM head included."""
    import torch
    from transformers import BertConfig, BertForPreTraining, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", '"', ".", "this", "sentence", "means", *WORDS]
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **SHAPE)
    BertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory) -> Path:
    """A RoBERTa of 2 layers and 32 dimensions with random weights and a byte-pair vocabulary."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-roberta")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([" ".join(WORDS)] * 3, vocab_size=400, special_tokens=special)
    trained.save_model(str(folder))
    tokenizer = RobertaTokenizerFast.from_pretrained(str(folder))
    torch.manual_seed(0)
    special = {"pad_token_id": tokenizer.pad_token_id, "type_vocab_size": 1}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, **special, **SHAPE)
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def backbone(request) -> Path:
    """A tiny encoder of each family."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def bf16_products():
    """A context that gives the names of all matrix products, forward and backward, that read numbers in bf16 within it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __enter__(self):
            super().__enter__()
            self.names = set()
            return self.names

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            tensors = [one for one in args if isinstance(one, torch.Tensor)]
            if any(word in str(function) for word in ("mm", "convolution", "attention", "dot", "linear")):
                self.names |= {str(function)} if any(one.dtype == torch.bfloat16 for one in tensors) else set()
            return function(*args, **kwargs or {})

    return Seen()


@pytest.fixture(scope="session")
def variant():
    """Function (folder, target, class, seed, changes of the config) -> target, a new backbone with the tokenizer of another."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    def make(folder, target, model=AutoModel, seed=3, **changes):
        config = AutoConfig.from_pretrained(folder)
        for name, value in changes.items():
            setattr(config, name, value)
        torch.manual_seed(seed)
        model.from_config(config).save_pretrained(target)
        AutoTokenizer.from_pretrained(folder).save_pretrained(target)
        return str(target)

    return make


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Function (folder, name, commit) -> name, of a model of the hub that has been fetched into the hub's cache."""
    import shutil

    import huggingface_hub

    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))

    def fetched(folder, name, commit="c0ffee"):
        model = cache / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, model / "snapshots" / commit)
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / "main").write_text(commit)
        return name

    return fetched


@pytest.fixture
def corpus_file(tmp_path, sentences) -> Path:
    """The sentences in a text file, one a line."""
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(sentences) + "\n", encoding="utf8")
    return path


@pytest.fixture
def config(tiny_bert, corpus_file):
    """A run of two steps from the tiny BERT."""
    from lib.config import RunConfig

    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "max_steps": 2, "eval_every": 2}
    return RunConfig(**values, batch_size=32, max_length=16)


@pytest.fixture(scope="session")
def verdicts():
    """On every claim, by the published rows; they take seconds."""
    from lib.analysis import claims

    return claims.verdicts("small")
