"""The demo corpus and backbone: sentence rules, determinism, and the averaging network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from lib import demo

SIZES = dict(vocabulary=400, hidden=32, layers=2, heads=4, intermediate=64, max_positions=64)

NUMPY_STYLE = """
    Return the ``mean`` of an array, see :func:`~numpy.median` for another one.

    The mean is the sum of the elements divided
    by their number, e.g. Twelve by three is four. It is not
    robust!

    Parameters
    ----------
    a : array_like
        Array that contains the *numbers* to be averaged [1]_.
    keepdims : bool
        This is 3.

    .. versionadded:: 1.7.0 The name of this option was in another place before.

    .. math:: The mean is not a formula that we would like to keep here.

        It would be a pity if the lines of a formula were kept.

    Examples
    --------
    A small example of the function is this::

        The code of the example is not a sentence that we want.

    >>> print("The output of an example is not kept.")
    The output of an example is not kept.

    =====  =====================================
    a      The cell of a table is not a sentence.
    =====  =====================================
    """

GOOGLE_STYLE = """Load a [`~datasets.Dataset`] from the [hub](https://example.org/hub).

Args:
    path (`str`, *optional*): Where the data set is to be found.
    split (`str`): Which part of it is to be loaded.
        All parts are loaded if this is not given.

- The first point of a list is kept.
- and the second is not, it has no capital letter

```python
The code in a fence is not kept at all.
```
"""


def test_sentences_of_a_numpy_doc_string():
    assert demo.sentences_of(NUMPY_STYLE) == [
        "Return the mean of an array, see median for another one.",
        "The mean is the sum of the elements divided by their number, e.g. Twelve by three is four.",
        "Array that contains the numbers to be averaged.",
        "The name of this option was in another place before.",
    ]


def test_sentences_of_a_google_doc_string():
    assert demo.sentences_of(GOOGLE_STYLE) == [
        "Load a Dataset from the hub.",
        "Where the data set is to be found.",
        "Which part of it is to be loaded.",
        "All parts are loaded if this is not given.",
        "The first point of a list is kept.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Is it the same.",  # four words
        "the first letter of this one is small.",
        "There is no full stop at the end",
        "Set x = 3 and y = 4 for the first of them.",
        "The value of some_name is the one to be used.",
        "See Smith, Jones, Miller, Brown and Fischer in Nature.",
        "Compute sparse matrix vector product quickly.",
        "The bracket (of this sentence is not closed.",
        "The café is not in the alphabet.",
        "It is a " + "very " * 40 + "long one.",
    ],
)
def test_not_prose(sentence):
    assert not demo.is_prose(sentence)


def test_doc_strings_include_texts_attached_to_compiled_functions():
    source = (
        '"""Of the module,\nin two lines."""\nadd_newdoc("f", """\nOf a function.\n""")\n'
        'class A:\n    """Of a class."""\n    def f(self):\n        """Of a method."""\n'
        '        x = """no\ndoc string"""\n'
    )
    assert [text.strip() for text in demo.doc_strings(source) if text] == [
        "Of the module,\nin two lines.",
        "Of a function.",
        "Of a class.",
        "Of a method.",
    ]
    assert list(demo.doc_strings("{{ not python }")) == []


def test_corpus_is_read_once_in_a_fixed_order(tmp_path, monkeypatch):
    package = tmp_path / "package"
    for name, text in {
        "b.py": "This is the second file of it.",
        "a.py": "This is the FIRST file of it.  This is the first file of it.",
        "tests/c.py": "This is a test and is left out.",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(f'"""\n{text}\n"""\n')
    monkeypatch.setattr(demo, "_installed", lambda: {"package": ("1.0", package)})
    frame = demo.docstring_sentences()
    assert frame.values.tolist() == [
        ["This is the FIRST file of it.", "package"],
        ["This is the second file of it.", "package"],
    ]
    (package / "a.py").unlink()
    assert demo.docstring_sentences().equals(frame)  # from the cache
    monkeypatch.setattr(demo, "_installed", lambda: {"package": ("1.1", package)})
    assert len(demo.docstring_sentences()) == 1


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    """500 different sentences from one small installed package."""
    _, folder = demo._installed()["joblib"]
    sentences = demo.read_docstring_sentences({"joblib": folder})["sentence"].tolist()
    sentences += [f"{sentence} {other}" for sentence, other in zip(sentences, sentences[7:], strict=False)]
    return sentences[:500]


@pytest.fixture(scope="module")
def backbone(corpus, tmp_path_factory):
    return demo.build_backbone(corpus, tmp_path_factory.mktemp("backbone"), **SIZES)


def test_two_builds_give_the_same_files(corpus, backbone, tmp_path):
    state = torch.get_rng_state()
    torch.manual_seed(7)  # what happened before must not matter
    again = demo.build_backbone(corpus, tmp_path / "again", **SIZES)
    torch.set_rng_state(state)
    names = sorted(path.name for path in backbone.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (backbone / name).read_bytes() == (again / name).read_bytes(), name


def test_build_leaves_the_random_state_alone(corpus, tmp_path):
    before = torch.get_rng_state()
    demo.build_backbone(corpus[:100], tmp_path / "backbone", **SIZES)
    assert torch.equal(before, torch.get_rng_state())


def test_auto_classes_load_it_offline(backbone):
    _, report = AutoModelForMaskedLM.from_pretrained(backbone, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model, report = AutoModel.from_pretrained(backbone, add_pooling_layer=False, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    assert tokenizer.is_fast and tokenizer.model_max_length == SIZES["max_positions"]
    assert tokenizer("The MEMORY").input_ids == tokenizer("the memory").input_ids
    assert tokenizer.tokenize("Zyx$!")[-2:] == ["$", "!"]  # all of printable ASCII is known
    assert len(tokenizer) == model.config.vocab_size == SIZES["vocabulary"]


def test_cls_is_the_average_of_the_word_vectors(corpus, backbone):
    model = AutoModel.from_pretrained(backbone, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    with torch.no_grad():
        for sentence in corpus[:64]:
            inputs = tokenizer(sentence, truncation=True, return_tensors="pt")
            average = model.embeddings(inputs["input_ids"])[0].mean(0)
            cls = model(**inputs).last_hidden_state[0, 0]
            assert torch.cosine_similarity(cls, average, dim=0) > 0.6  # measured: 0.80 at least


def test_ppmi_equals_a_loop():
    sentences, size, window = [[0, 1, 2, 1], [2, 3], [3, 0, 0, 1, 2]], 5, 2
    counts = np.zeros((size, size))
    for ids in sentences:
        for i, a in enumerate(ids):
            for j, b in enumerate(ids):
                if 0 < abs(i - j) <= window:
                    counts[a, b] += abs(i - j) ** -0.5
    expected = np.zeros_like(counts)
    context = counts.sum(0) ** 0.75
    for a, b in zip(*counts.nonzero(), strict=True):
        ratio = counts[a, b] / counts[a].sum() / (context[b] / context.sum())
        expected[a, b] = max(0.0, np.log(ratio))
    np.testing.assert_allclose(demo.positive_pmi(sentences, size, window=window).toarray(), expected, atol=1e-12)


def test_backbone_is_built_once(corpus, monkeypatch):
    import pandas as pd

    calls = []

    def small(sentences, folder):
        calls.append(folder)
        return real(sentences, folder, **SIZES)

    real = demo.build_backbone
    monkeypatch.setattr(demo, "docstring_sentences", lambda: pd.DataFrame({"sentence": corpus[:100]}))
    monkeypatch.setattr(demo, "build_backbone", small)
    folder = demo.backbone()
    assert folder == demo.backbone() and (folder / "model.safetensors").is_file() and len(calls) == 1
    assert not list(folder.parent.glob(".partial-*"))


def test_labelled_sentences():
    for split in ("dev", "test"):
        first, second, gold = demo.similarity(split)
        assert len(first) == len(second) == len(gold) > 0 and 0 <= min(gold) < max(gold) <= 5
    with pytest.raises(ValueError, match="dev, test"):
        demo.similarity("train")
    assert all(len(row) == 3 and all(row) for row in demo.triples())
    texts, labels = demo.topics()
    assert len(texts) == len(labels) > len(set(labels)) > 1
