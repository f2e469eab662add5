"""Training corpora: formats, roles, strictness, sampling, names."""

import gzip
import hashlib
import itertools

import pytest

from lib.checks import DataError
from lib.data import Corpus, load_corpus, load_sts
from lib.data.corpus import ROLES


def test_sentences_from_text_gzip_and_patterns_and_triples_and_pairs_from_tables(tmp_path):
    (tmp_path / "a.txt").write_text("\ufeffOne\u2028still one.\n\n  Two. \n", encoding="utf8")
    (tmp_path / ".a.txt.lock").write_text("A pattern leaves hidden files out.")
    (tmp_path / "b").mkdir()
    with gzip.open(tmp_path / "b/b.txt.gz", "wt", encoding="utf8") as file:
        file.write("Three é.\n")
    assert load_corpus("a.txt", tmp_path).columns == (("One\u2028still one.", "Two."),)
    both = load_corpus("b/*.txt*, *.txt*,a.txt", tmp_path)
    assert both.columns == (("Three é.", "One\u2028still one.", "Two."),) and both.kind == "sentences"
    assert both.name == "b.txt.gz, a.txt"
    for spec in ("none.txt", "*.gz", "a.txt,none.txt"):
        with pytest.raises(DataError, match="no such file"):
            load_corpus(spec, tmp_path)
    (tmp_path / "t.csv").write_text('sent0,sent1,hard_neg\n"A, b",c,\n"say ""x""",y,z\n')
    triples = load_corpus("t.csv", tmp_path)
    assert triples.kind == "triples" and triples.columns == (("A, b", 'say "x"'), ("c", "y"), (" ", "z"))
    (tmp_path / "q.tsv").write_text('"sentence1"\tsentence2\n"a ""b"""\t"c"\n\nd "e"\tf"\n')
    assert load_corpus("q.tsv", tmp_path).columns == (('a "b"', 'd "e"'), ("c", 'f"'))
    (tmp_path / "p.tsv").write_text('sentence1\tsentence2\n"a ""b"""\t"c\n"d" or "e"\tf\n')
    pairs = load_corpus("p.tsv", tmp_path)
    assert pairs.columns == (('"a ""b"""', '"d" or "e"'), ('"c', "f"))
    assert pairs.kind == "pairs" and (pairs.roles, triples.roles) == (ROLES[:2], ROLES)


@pytest.mark.parametrize(
    "header, roles, kind",
    [
        ("anchor, positive ,hard_negative", ROLES, "triples"),
        ("anchor,positive,negative", ROLES, "triples"),
        ("\ufeffanchor,hard_negative", ("anchor", "hard_negative"), "columns anchor, hard_negative"),
        ("anchor,b,positive,d", ("anchor", "b", "positive", "d"), "columns anchor, b, positive, d"),
        ("text", ROLES[:1], "sentences"),
        ("Sentence_A,Sentence_B,Hard Negatives", ROLES, "triples"),
    ],
)
def test_a_header_gives_roles_or_columns_in_order(tmp_path, header, roles, kind):
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


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.txt", "\n \n", "no sentence"),
        ("a.jsonl", '{"text": "a"}\n', "is a file of another format .*jsonl"),
        ("a.csv", "", "is empty"),
        ("a.csv", 'sent0,sent1\n"open,x\n', "quote sign left open"),
        ("a.csv", 'sent0,sent1\n"a b,c d\ne f,g h",i j\n', "a cell goes over several lines, 'a b.*left open"),
        ("a.csv", "a cat sits there,a dog\nred house,blue house\n", "line 1 is no header with commas"),
        ("a.csv", "sent0;sent1\na cat;a dog\n", "line 1 is no header with commas"),
        ("a.csv", "id,anchor,positive\nx-a,a,b\n", "the roles .* 'anchor' first"),
        ("a.csv", "sent0,sent1,sent2,sent3\na,b,c,d\n", "4 columns and the roles .* 'anchor' first, in the header"),
        ("a.csv", "sent0,sent1,hard_neg\na,b\n", "line 2: 2 columns"),
        ("a.csv", "premise,hypothesis,gold\n" + "a b,c d,neutral\ne f,g h,entailment\n" * 6, "'gold' holds numbers or"),
        ("a.csv", "sentence_id,sentence\n1,a b\n", "'sentence_id' holds numbers or labels"),
        ("a.csv", "sent0,sent1\na b,\nc d,\n", "'sent1' holds numbers or labels"),
        ("a.csv", "sent0,sent1\na cat,a dog\n,a bird\na fox,a hen\n", "row 2: its anchor is empty, of 1 such rows"),
        ("a.csv", "anchor,hard_negative,positive\na cat,,a dog\na cat,a fox,\n", "row 2: its positive is empty, of 1"),
        ("wiki1m_for_simcse.txt", "one\ntwo\n", "expected 1,000,000 lines, found 2"),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_text(content, encoding="utf8")
    with pytest.raises(DataError, match=words) as caught:
        load_corpus(name, tmp_path)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_columns_and_rows_of_tables_are_chosen_and_tables_read_together(tmp_path):
    lines = {"a.tsv": ["a cat\tan animal\tyes", "a dog\ta stone\tno"], "b.tsv": ["a fox\tan animal\tyes"]}
    for name, rows in lines.items():
        (tmp_path / name).write_text("\n".join(["premise\thypothesis\tlabel", *rows]), encoding="utf8")
    (tmp_path / "b.csv").write_text("anchor,other\nx,y\n", encoding="utf8")
    for name in ("c.txt", "wiki1m_for_simcse.txt"):
        (tmp_path / name).write_text("One.\n", encoding="utf8")
    pairs = load_corpus("*.tsv:premise,hypothesis", tmp_path)
    assert pairs.columns == (("a cat", "a dog", "a fox"), ("an animal", "a stone", "an animal"))
    alike = load_corpus("a.tsv,b.tsv:premise,hypothesis,label=yes", tmp_path)
    assert alike.columns == (("a cat", "a fox"), ("an animal", "an animal")) and alike.kind == "pairs"
    assert load_corpus("a.tsv:hypothesis,label=no", tmp_path).columns == (("a stone",),)
    bad = {
        "a.tsv:premise,class=yes": "a.tsv has no column 'class', only premise, hypothesis, label",
        "a.tsv:premise,": "a.tsv has no column ''",
        "a.tsv:label=yes": "a.tsv:label=yes says which rows and no column of text",
        "a.tsv:premise,label=perhaps": "label=perhaps: no sentence in it",
        "b.csv,c.txt": "never with plain text",
        "b.csv,c.txt:sentence": "never with plain text",
        "c.txt:sentence": "c.txt:sentence: no sentence in it",
        "wiki1m_for_simcse.txt:sentence": "expected 1,000,000 lines, found 1",
        "c.txt:text": "c.txt has no column 'text', only sentence, next, one_of_next_3",
        "a.tsv,b.tsv": "a.tsv, b.tsv: several tables are read together when their columns are named",
    }
    for spec, words in bad.items():
        with pytest.raises(DataError, match=words):
            load_corpus(spec, tmp_path)


def test_running_text_gives_each_sentence_the_ones_behind_it_in_its_paragraph(tmp_path):
    paragraphs = [[f"Line {i}.{j} of 2.5 m is here!" for j in range(i)] for i in range(1, 9)]
    for name, part in {"a.txt": paragraphs[:5], "b.txt": paragraphs[5:]}.items():
        (tmp_path / name).write_text("\n".join(map("  ".join, part)), encoding="utf8")
    pairs = load_corpus("*.txt:sentence,next", tmp_path)
    assert pairs.kind == "pairs" and [*zip(*pairs.columns, strict=True)] == [
        pair for p in paragraphs for pair in itertools.pairwise(p)
    ]
    alone = load_corpus("a.txt,b.txt:sentence", tmp_path)
    assert alone.kind == "sentences" and alone.columns == pairs.columns[:1], "of the same rows"
    drawn = load_corpus("*.txt:sentence,one_of_next_3", tmp_path)
    assert drawn == load_corpus("*.txt:sentence,one_of_next_3", tmp_path) and drawn.columns[0] == pairs.columns[0]
    places = {sentence: (p, place) for p, one in enumerate(paragraphs) for place, sentence in enumerate(one)}
    steps = {(places[a][0] == places[b][0], places[b][1] - places[a][1]) for a, b in zip(*drawn.columns, strict=True)}
    assert steps == {(True, 1), (True, 2), (True, 3)}


def test_a_sample_is_a_function_of_the_seed_and_keeps_rows_and_roles_together(sentences):
    corpus = Corpus("x", tuple([f"{role} {text}" for text in sentences] for role in ("a", "b")), ("anchor", "b"))
    first, again, other = corpus.sample(50, 1), corpus.sample(50, 1), corpus.sample(50, 2)
    assert first == again and first.columns != other.columns and len(set(first.columns[0])) == 50
    assert first.roles == corpus.roles and [a[2:] for a in first.columns[0]] == [b[2:] for b in first.columns[1]]
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


def test_the_sentences_of_a_task_are_added_after_the_sample(tmp_path):
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.\n")
    (tmp_path / "b+demo.txt").write_text("A plus sign in a file name.\n")
    alone, corpus = load_corpus("a.txt", tmp_path, size=2, seed=1), load_corpus("a.txt+demo", tmp_path, size=2, seed=1)
    task = load_sts(tmp_path, "demo", "test")
    assert corpus.columns[0][:2] == alone.columns[0] and corpus.kind == "sentences"
    assert set(corpus.columns[0][2:]) == {*task.sentences1, *task.sentences2}
    assert len(set(corpus.columns[0][2:])) == len(corpus) - 2 and "sentences of demo" in corpus.name
    assert load_corpus("b+demo.txt", tmp_path).columns == (("A plus sign in a file name.",),)
    triples = load_corpus("demo-triples", tmp_path)
    assert triples.name == "demo triples" and len(triples) > 100 and all(map(all, triples.columns))
    with pytest.raises(DataError, match="plain sentences only; .* holds triples"):
        load_corpus("demo-triples+demo", tmp_path)
    with pytest.raises(DataError, match="senteval"):
        load_corpus("a.txt+SICK-R", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "premise,hypothesis\n" + "it is 1,is it\n" * 20,
        "word,phrase\n" + "".join(f"w{i},feline-{i}\nx{i},house-{i}\n" for i in range(6)),
        "text1,text2\n你好世界,世界你好\n今天,明天\n",
        "label,score\na b,c d\ne f,g\n",
    ],
)
def test_good_tables_stay_good(tmp_path, text):
    (tmp_path / "t.csv").write_text(text, encoding="utf8")
    assert load_corpus("t.csv", tmp_path).kind == "pairs"
