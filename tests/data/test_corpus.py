"""Training corpora: formats, roles, strictness, sampling, names."""

import gzip
import hashlib

import pytest

from lib.checks import DataError
from lib.data import Corpus, load_corpus, load_sts
from lib.data.corpus import ROLES


def test_sentences_from_text_gzip_and_pattern(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n\n  Two. \n", encoding="utf8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf8") as file:
        file.write("Three é.\n")
    assert load_corpus("a.txt", tmp_path).columns == (("One.", "Two."),)
    both = load_corpus("*.txt*", tmp_path)
    assert both.columns == (("One.", "Two.", "Three é."),) and both.kind == "sentences"


def test_unicode_line_separators_do_not_split_a_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("One\u2028still one.\x0bstill one.\nTwo.\n", encoding="utf8")
    assert len(load_corpus("a.txt", tmp_path)) == 2


def test_marks_and_lines_that_nobody_can_see(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffOne.\n\u200b\n\u2060 \nTwo\u200b.\n", encoding="utf8")
    assert load_corpus("a.txt", tmp_path).columns == (("One.", "Two\u200b."),)


def test_triples_and_pairs(tmp_path):
    (tmp_path / "t.csv").write_text('sent0,sent1,hard_neg\n"A, b",c,d\n"say ""x""",,z\n')
    triples = load_corpus("t.csv", tmp_path)
    assert triples.kind == "triples" and triples.columns == (("A, b", 'say "x"'), ("c", " "), ("d", "z"))
    (tmp_path / "p.tsv").write_text("sentence1\tsentence2\na\tb\n")
    pairs = load_corpus("p.tsv", tmp_path)
    assert pairs.kind == "pairs" and (pairs.roles, triples.roles) == (ROLES[:2], ROLES)


@pytest.mark.parametrize(
    "header, roles, kind",
    [
        ("anchor", ("anchor",), "sentences"),
        ("anchor, positive ,hard_negative", ROLES, "triples"),
        ("anchor,positive,negative", ROLES, "triples"),
        ("anchor,negative", ("anchor", "negative"), "columns anchor, negative"),
        ("\ufeffanchor,hard_negative", ("anchor", "hard_negative"), "columns anchor, hard_negative"),
        ("anchor,b,positive,d", ("anchor", "b", "positive", "d"), "columns anchor, b, positive, d"),
    ],
)
def test_a_header_of_roles(tmp_path, header, roles, kind):
    (tmp_path / "a.csv").write_text(header + "\n" + ",".join("wxyz"[: len(roles)]) + "\n", encoding="utf8")
    corpus = load_corpus("a.csv", tmp_path)
    assert (corpus.roles, corpus.kind) == (roles, kind)
    assert corpus.columns == tuple((cell,) for cell in "wxyz"[: len(roles)])


@pytest.mark.parametrize(
    "columns, roles",
    [(4, ()), (2, ("anchor",)), (2, ("positive", "anchor")), (3, ("anchor", "b", "b")), (2, ("anchor", "")), (0, ())],
)
def test_roles_that_do_not_fit_are_refused(columns, roles):
    with pytest.raises(DataError, match=f"corpus 'x' has {columns} columns and the roles .*'anchor' first"):
        Corpus("x", (("a",),) * columns, roles)


def test_a_sample_keeps_rows_and_roles_together():
    roles = ("anchor", "a", "b", "c")
    corpus = Corpus("x", tuple(tuple(f"{role} {i}" for i in range(30)) for role in roles), roles).sample(7, 5)
    assert corpus.roles == roles
    for row in zip(*corpus.columns, strict=True):
        assert len({cell.split()[1] for cell in row}) == 1 and [cell.split()[0] for cell in row] == list(roles)


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.txt", b"\n \n", "no sentence"),
        ("a.txt", "caf\xe9".encode("latin-1"), "not utf8 text"),
        ("a.txt.gz", gzip.compress(b"sentence\n" * 1000, mtime=0)[:-20], "truncated or damaged"),
        ("a.txt.gz", b"not gzip at all", "truncated or damaged"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"sent0,sent1\n", "no sentence"),
        ("a.csv", b'"open,' + b"x" * 200_000, "quote sign left open"),
        ("a.csv", b'sent0,sent1\n"open,' + b"x" * 200_000 + b"\n", "quote sign left open"),
        ("a.csv", b"only\nx\n", "header has 1 columns .*2 columns .*begins with anchor"),
        ("a.csv", b"a,b,c,d\n1,2,3,4\n", "header has 4 columns .*2 columns .*begins with anchor"),
        ("a.csv", b"anchor,a,a\n1,2,3\n", "a role of its own"),
        ("a.csv", b"sent0,sent1,hard_neg\na,b\n", "line 2: 2 columns"),
        ("a.csv", b"sent0,sent1\n\na,b\n\n\nc\n", "line 6: 1 columns"),
        ("a.csv", b"id,label\n1,0\n2,1\n", "all 2 rows of 'id' are numbers"),
        ("a.tsv", b"text\tscore\nx\t-0.5\ny\t3\n", "all 2 rows of 'score' are numbers"),
        ("a.csv", b"sent0,sent1\ra,b\rc,d\r", "carriage returns alone"),
        ("a.txt", "One.\nTwo.\n".encode("utf-16-le"), "line 1: a NUL character"),
        ("a.txt", "\u200b\n\u200d \ufeff\n".encode(), "no sentence"),
        ("a.txt", b"the same\n" * 1000, "all 1,000 rows of 'sentences' are the same, 'the same'"),
        ("wiki1m_for_simcse.txt", b"one\ntwo\n", "expected 1,000,000 lines, found 2"),
        ("nli_for_simcse.csv", b"sent0,sent1,hard_neg\na,b,c\n", "expected 275,601 rows, found 1"),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_corpus(name, tmp_path)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_corpus("none.txt", tmp_path)
    with pytest.raises(DataError, match="no such file"):
        load_corpus("*.gz", tmp_path)


def test_sample_is_a_function_of_the_seed(sentences):
    corpus = Corpus("x", (tuple(sentences),))
    first, again, other = corpus.sample(50, 1), corpus.sample(50, 1), corpus.sample(50, 2)
    assert first == again and first.columns != other.columns and len(set(first.columns[0])) == 50
    assert corpus.sample(0, 1) is corpus
    with pytest.raises(DataError, match="asks for 201"):
        corpus.sample(201, 0)


def test_fingerprint_depends_on_text_and_roles_only():
    pairs = Corpus("a", (("x", "y"), ("z", "é")))
    assert pairs.fingerprint() == Corpus("b", pairs.columns, ROLES[:2]).fingerprint()
    assert pairs.fingerprint() == hashlib.sha256("2x\x00y\x01z\x00é\x01".encode()).hexdigest()
    others = [
        Corpus("a", (("x", "y", "z", "é"),)),
        Corpus("a", (("x",), ("y",), ("z",), ("é",)), ("anchor", "b", "c", "d")),
        Corpus("a", pairs.columns[::-1]),
        Corpus("a", pairs.columns, ("anchor", "hard_negative")),
        Corpus("a", pairs.columns, ("anchor", "other")),
    ]
    assert len({pairs.fingerprint(), *(corpus.fingerprint() for corpus in others)}) == 6


def test_several_patterns(tmp_path):
    for folder, lines in (("a", "one here\n"), ("b", "two here\nthree here\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(lines)
    corpus = load_corpus("b/x.txt, a/*.txt", tmp_path)
    assert corpus.columns[0] == ("two here", "three here", "one here")
    with pytest.raises(DataError, match="corpus 'c/x.txt': no such file"):
        load_corpus("a/x.txt,c/x.txt", tmp_path)


def test_a_pattern_leaves_hidden_files_out(tmp_path):
    (tmp_path / ".a.txt.lock").write_text("")
    (tmp_path / "a.txt").write_text("One.\n")
    assert load_corpus("*.txt*", tmp_path).name == "a.txt"


def test_the_sentences_of_a_task_are_added_after_the_sample(tmp_path):
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.\n")
    (tmp_path / "b+demo.txt").write_text("A plus sign in a file name.\n")
    alone, corpus = load_corpus("a.txt", tmp_path, size=2, seed=1), load_corpus("a.txt+demo", tmp_path, size=2, seed=1)
    task = load_sts(tmp_path, "demo", "test")
    assert corpus.columns[0][:2] == alone.columns[0] and corpus.kind == "sentences"
    assert set(corpus.columns[0][2:]) == {*task.sentences1, *task.sentences2}
    assert len(set(corpus.columns[0][2:])) == len(corpus) - 2 and "sentences of demo" in corpus.name
    assert load_corpus("b+demo.txt", tmp_path).columns == (("A plus sign in a file name.",),)
    with pytest.raises(DataError, match="plain sentences only; .* holds triples"):
        load_corpus("demo-triples+demo", tmp_path)
    with pytest.raises(DataError, match="senteval"):
        load_corpus("a.txt+SICK-R", tmp_path)
