"""The demo corpus: sentence rules and determinism."""

import pytest

from lib.data import demo
from tests.conftest import fill

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
        "It is a " + "very " * 40 + "long one.",
    ],
)
def test_not_prose(sentence):
    assert not demo.is_prose(sentence)


def test_doc_strings_include_texts_attached_to_compiled_functions_and_have_sentences():
    source = (
        '"""Of the module,\nin two lines."""\nadd_newdoc("f", """\nOf a function.\n""")\n'
        'class A:\n    """Of a class."""\n    def f(self):\n        """Of a method."""\n'
        '        x = """no\ndoc string"""\n'
    )
    expected = ["Of the module,\nin two lines.", "Of a function.", "Of a class.", "Of a method."]
    assert [text.strip() for text in demo.doc_strings(source) if text] == expected
    assert list(demo.doc_strings("{{ not python }")) == []
    assert demo.sentences_of(NUMPY_STYLE) == [
        "Return the mean of an array, see median for another one.",
        "The mean is the sum of the elements divided by their number, e.g. Twelve by three is four.",
        "Array that contains the numbers to be averaged.",
        "The name of this option was in another place before.",
    ]


def test_corpus_is_read_once_in_a_fixed_order(tmp_path, monkeypatch):
    files = {
        "b.py": "This is the second file of it.",
        "a.py": "This is the FIRST file of it.  This is the first file of it.",
        "tests/c.py": "This is a test and is left out.",
    }
    package = fill(tmp_path / "package", {name: f'"""\n{text}\n"""\n' for name, text in files.items()})
    found = {"package": ("1.0", package)}
    monkeypatch.setattr(demo, "installed", lambda: found)
    sentences = demo.docstring_sentences()
    assert sentences == ["This is the FIRST file of it.", "This is the second file of it."]
    (package / "a.py").unlink()
    assert demo.docstring_sentences() == sentences  # from the cache
    found["package"] = ("1.1", package)
    assert len(demo.docstring_sentences()) == 1
