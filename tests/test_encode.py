"""python -m lib.encode: the vectors, what survives a kill, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from lib import encode, paths
from lib.checks import ConfigError, DataError, EncoderError
from lib.encode import encode_file, main
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum
from lib.runs import open_encoder, open_encoders


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(encode, "BLOCK", 64)


@pytest.fixture
def encoder(tiny_bert):
    return SentenceEncoder.from_pretrained(tiny_bert, pooling="mean")


def command(*arguments):
    return main([str(argument) for argument in arguments])


def files(folder):
    """What a finished command leaves, less the lock."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


# -- vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("zipped", [False, True])
def test_the_rows_are_those_of_encode_in_the_order_of_the_lines(
    encoder, tiny_bert, corpus_file, sentences, tmp_path, capsys, suffix, zipped
):
    texts = corpus_file
    if zipped:
        texts = tmp_path / "texts.txt.gz"
        texts.write_bytes(gzip.compress(corpus_file.read_bytes()))
    target = tmp_path / f"out{suffix}"
    assert command(texts, target, "--model", tiny_bert, "--pooling", "mean") == 0
    assert "200 lines of 32 dimensions by" in capsys.readouterr().out
    if suffix == ".npy":
        vectors = np.load(target)
    else:
        table = pq.read_table(target)
        assert table["text"].to_pylist() == sentences
        vectors = np.stack(table["embedding"].to_numpy())
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, encoder.encode(sentences), atol=2e-6)
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name or "whole" in path.name]


def test_one_block_is_bit_for_bit_what_encode_gives(encoder, tmp_path, sentences, corpus_file, monkeypatch):
    monkeypatch.setattr(encode, "BLOCK", 2048)
    encode_file(corpus_file, tmp_path / "out.npy", encoder)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), encoder.encode(sentences))


def test_options_reach_the_encoder(tiny_bert, corpus_file, sentences, tmp_path):
    options = ["--pooling", "mean", "--max-length", "5", "--batch-tokens", "64"]
    assert command(corpus_file, tmp_path / "out.npy", "--model", tiny_bert, *options) == 0
    cut = SentenceEncoder.from_pretrained(tiny_bert, pooling="mean", max_length=5)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), cut.encode(sentences), atol=2e-6)


def test_a_sum_of_encoders(tiny_bert, tiny_roberta, corpus_file, sentences, tmp_path):
    total = EncoderSum([SentenceEncoder.from_pretrained(folder) for folder in (tiny_bert, tiny_roberta)], [0.3, 0.7])
    total.save(tmp_path / "sum")
    assert command(corpus_file, tmp_path / "out.npy", "--model", tmp_path / "sum") == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), total.encode(sentences), atol=2e-6)


def test_line_ends_and_a_byte_order_mark_are_no_text(encoder, tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffa dog\r\nthe cat\r\n".encode())
    (tmp_path / "b.txt").write_bytes(b"a dog\nthe cat")
    for name in "ab":
        assert encode_file(tmp_path / f"{name}.txt", tmp_path / f"{name}.npy", encoder) == 2
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), encoder.encode(["a dog", "the cat"]))


# -- going on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_start_that_goes_on_ends_with_the_same_file(encoder, corpus_file, tmp_path, monkeypatch, capsys, suffix):
    encode_file(corpus_file, tmp_path / f"whole{suffix}", encoder)
    target, real, blocks = tmp_path / f"out{suffix}", encoder.encode, []

    def stops(texts, **options):
        blocks.append(texts)
        if len(blocks) == 3:
            raise RuntimeError("the power went off")
        return real(texts, **options)

    with monkeypatch.context() as broken:
        broken.setattr(encoder, "encode", stops)
        with pytest.raises(RuntimeError, match="the power"):
            encode_file(corpus_file, target, encoder)
    assert not target.exists()
    assert encode_file(corpus_file, target, encoder) == 200 - 2 * 64
    assert "128 of 200 lines are there, going on" in capsys.readouterr().err
    assert target.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    assert encode_file(corpus_file, target, encoder) == 0  # nothing is left to do


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_kill_while_the_output_gets_its_name_loses_nothing(encoder, corpus_file, tmp_path, monkeypatch, suffix):
    target, real = tmp_path / f"out{suffix}", os.replace
    encode_file(corpus_file, tmp_path / f"whole{suffix}", encoder)

    def after(source, to):
        real(source, to)
        if to == target:
            raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", after)
        with pytest.raises(RuntimeError, match="killed"):
            encode_file(corpus_file, target, encoder)
    assert encode_file(corpus_file, target, encoder) == 0
    assert target.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


@pytest.mark.process
def test_a_real_kill(tiny_bert, encoder, corpus_file, tmp_path, monkeypatch, capsys):
    """SIGKILL after some blocks; the second start computes only the rest."""
    monkeypatch.setattr(encode, "BLOCK", 16)
    slow = (
        "import sys, time\nfrom lib import encode\nfrom lib.encoders import SentenceEncoder\n"
        "encode.BLOCK, real = 16, SentenceEncoder.encode\n"
        "def wait(self, texts, **options):\n    time.sleep(1)\n    return real(self, texts, **options)\n"
        "SentenceEncoder.encode = wait\nsys.exit(encode.main(sys.argv[1:]))\n"
    )
    target, journal = tmp_path / "out.npy", tmp_path / ".out.npy.journal"
    arguments = [str(corpus_file), str(target), "--model", str(tiny_bert), "--pooling", "mean"]
    environment = os.environ | {"PYTHONPATH": str(paths.root())}
    process = subprocess.Popen([sys.executable, "-c", slow, *arguments], env=environment, stderr=subprocess.DEVNULL)
    while not journal.is_file() or json.loads(journal.read_text())["rows"] < 32:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not target.exists() and (tmp_path / ".out.npy.partial").exists()
    assert main(arguments) == 0
    assert "of 200 lines are there, going on" in capsys.readouterr().err
    encode_file(corpus_file, tmp_path / "whole.npy", encoder)
    assert target.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_other_texts_or_another_encoder_start_anew_and_say_so(
    encoder, tiny_bert, corpus_file, sentences, tmp_path, capsys
):
    target, encoded = tmp_path / "out.npy", encoder.encode(sentences)
    encode_file(corpus_file, target, encoder)
    other = SentenceEncoder.from_pretrained(tiny_bert, pooling="cls")
    assert encode_file(corpus_file, target, other) == 200
    assert f"{target} was written from another encoder: starting anew" in capsys.readouterr().err
    np.testing.assert_allclose(np.load(target), other.encode(sentences), atol=2e-6)
    corpus_file.write_text("\n".join(sentences[:70]))
    assert encode_file(corpus_file, target, encoder) == 70
    assert "from other texts and another encoder" in capsys.readouterr().err
    np.testing.assert_allclose(np.load(target), encoded[:70], atol=2e-6)
    (tmp_path / "same.txt.gz").write_bytes(gzip.compress(corpus_file.read_bytes()))
    assert encode_file(tmp_path / "same.txt.gz", target, encoder) == 0  # what they say counts, not where they lie


def test_until_the_new_one_is_whole_the_old_output_stays(encoder, tiny_bert, corpus_file, tmp_path, monkeypatch):
    target = tmp_path / "out.npy"
    encode_file(corpus_file, target, encoder)
    old = target.read_bytes()
    other = SentenceEncoder.from_pretrained(tiny_bert, pooling="cls")
    monkeypatch.setattr(other, "encode", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        encode_file(corpus_file, target, other)
    assert target.read_bytes() == old
    assert encode_file(corpus_file, target, encoder) == 0  # and it is still known for what it is


def test_memory_does_not_grow_with_the_file(encoder, tmp_path, monkeypatch):
    """At most a block of texts and rows is held: the encoder never sees more."""
    (tmp_path / "long.txt").write_text("a dog runs\nthe cat sleeps\n" * 500)
    sizes, real = [], encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda texts, **options: sizes.append(len(texts)) or real(texts, **options))
    encode_file(tmp_path / "long.txt", tmp_path / "out.npy", encoder)
    assert sum(sizes) == 1000 and max(sizes) == 64


# -- refusals -------------------------------------------------------------------------------------------------


def refused(capsys, *arguments):
    assert command(*arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_file_that_is_not_ours_is_never_replaced(encoder, tiny_bert, corpus_file, tmp_path, capsys, monkeypatch):
    target = tmp_path / "out.npy"
    target.write_bytes(b"years of work")
    with monkeypatch.context() as early:
        early.setattr(encode, "open_encoder", lambda *a, **k: pytest.fail("it was seen too late"))
        assert "is not what this command wrote" in refused(capsys, corpus_file, target, "--model", tiny_bert)
    assert target.read_bytes() == b"years of work"
    target.unlink()
    encode_file(corpus_file, target, encoder)
    np.save(target, np.load(target) * 2)  # the same size, and the journal is there
    with pytest.raises(DataError, match="is not what this command wrote"):
        encode_file(corpus_file, target, SentenceEncoder.from_pretrained(tiny_bert, pooling="cls"))
    target.unlink()
    real = encoder.encode

    def meanwhile(texts, **options):
        target.write_bytes(b"somebody else's")
        return real(texts, **options)

    monkeypatch.setattr(encoder, "encode", meanwhile)
    with pytest.raises(DataError, match="is not what this command wrote"):
        encode_file(corpus_file, target, encoder)
    assert target.read_bytes() == b"somebody else's"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a dog\n\nthe cat\n", "texts.txt, line 2 has no text"),
        (b"a dog\n \t\xe2\x80\x8b\n", "texts.txt, line 2 has no text"),
        (b"", "texts.txt is empty"),
        (b"a dog\na \xff cat\n", "texts.txt is not utf8 text (line 2, byte 2"),
        ("a dog\n".encode("utf-16"), "is not utf8 text"),
        (b"a\x00dog\n", "line 1: a NUL character"),
        (b"a dog\rthe cat\r", "carriage returns alone"),
    ],
)
def test_texts_that_are_none(tiny_bert, tmp_path, capsys, content, message):
    (tmp_path / "texts.txt").write_bytes(content)
    assert message in refused(capsys, tmp_path / "texts.txt", tmp_path / "out.npy", "--model", tiny_bert)
    assert files(tmp_path) == ["texts.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": "none.txt"}, "none.txt is no file"),
        ({"texts": "."}, "is no file"),
        ({"output": "out.csv"}, "out.csv ends with .csv: choose .npy or .parquet."),
        ({"output": "out"}, "ends with nothing"),
        ({"output": "no/such/out.npy"}, "is no folder: make it first"),
        ({"--model": "./no/encoder"}, "neither an existing folder nor a hub name"),
        ({"--model": "nobody/nothing"}, "on the hub or in its cache"),
        ({"--model": "demo:mean", "--pooling": "cls"}, "keep one of them"),
        ({"--max-length": "2"}, "--max-length must be at least 3; got 2."),
        ({"--max-length": "65"}, "at most 64 here"),
        ({"--batch-tokens": "0"}, "--batch-tokens must be at least 1; got 0."),
    ],
)
def test_wrong_arguments(tiny_bert, corpus_file, tmp_path, capsys, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    given = {"texts": str(corpus_file), "output": "out.npy", "--model": str(tiny_bert)} | change
    arguments = [given.pop("texts"), given.pop("output"), *(word for pair in given.items() for word in pair)]
    assert message in refused(capsys, *arguments)
    assert not (tmp_path / "out.npy").exists()


def test_a_damaged_gz_and_a_damaged_journal(tiny_bert, corpus_file, tmp_path, capsys):
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(corpus_file.read_bytes())[:200])
    assert "is truncated or damaged after line" in refused(capsys, cut, tmp_path / "out.npy", "--model", tiny_bert)
    sick = ['{"content": {}, "rows": Infinity, "ours": {}}', '{"content": {}, "rows": 0, "ours": {"a": 3}}']
    for damage in ("{", "[" * 100_000, *sick):
        (tmp_path / ".out.npy.journal").write_text(damage)
        assert "is damaged: delete it" in refused(capsys, corpus_file, tmp_path / "out.npy", "--model", tiny_bert)


@pytest.mark.parametrize("rows", [-5, 10**9])
def test_a_journal_of_rows_that_cannot_be_starts_anew(encoder, corpus_file, tmp_path, monkeypatch, rows):
    target, expected = tmp_path / "out.npy", encoder.encode(corpus_file.read_text().splitlines())

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encode_file(corpus_file, target, encoder)
    journal = tmp_path / ".out.npy.journal"
    journal.write_text(json.dumps(json.loads(journal.read_text()) | {"rows": rows}))
    assert encode_file(corpus_file, target, encoder) == len(expected)
    np.testing.assert_allclose(np.load(target), expected, atol=1e-5)


def test_a_link_is_followed_to_its_place(encoder, corpus_file, tmp_path):
    (tmp_path / "big").mkdir()
    (tmp_path / "out.npy").symlink_to(tmp_path / "big" / "blob")  # as stores of large files have it
    encode_file(corpus_file, tmp_path / "out.npy", encoder)
    assert (tmp_path / "out.npy").is_symlink() and len(np.load(tmp_path / "big" / "blob"))
    assert not list(tmp_path.rglob("*.lock"))


def test_texts_that_change_meanwhile(encoder, corpus_file, tmp_path, monkeypatch):
    real = encoder.encode

    def meanwhile(texts, **options):
        corpus_file.write_text(corpus_file.read_text().replace("dog", "cat"))
        return real(texts, **options)

    monkeypatch.setattr(encoder, "encode", meanwhile)
    with pytest.raises(DataError, match="changed while it was read"):
        encode_file(corpus_file, tmp_path / "out.npy", encoder)
    assert not (tmp_path / "out.npy").exists()


def test_two_at_once(encoder, corpus_file, tmp_path, monkeypatch):
    def meanwhile(texts, **options):
        with pytest.raises(DataError, match="another process is writing"):
            encode_file(corpus_file, tmp_path / "out.npy", encoder)
        raise ZeroDivisionError

    monkeypatch.setattr(encoder, "encode", meanwhile)
    with pytest.raises(ZeroDivisionError):
        encode_file(corpus_file, tmp_path / "out.npy", encoder)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room is reserved where the system can")
def test_a_full_disk_is_seen_before_anything_is_computed(encoder, corpus_file, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="no room for the vectors"):
        encode_file(corpus_file, tmp_path / "out.npy", encoder)
    assert not (tmp_path / ".out.npy.partial").exists()


def test_an_interruption_says_how_to_go_on(tiny_bert, corpus_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(SentenceEncoder, "encode", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    assert command(corpus_file, tmp_path / "out.npy", "--model", tiny_bert) == 130
    assert "start the same command again" in capsys.readouterr().err


# -- names ----------------------------------------------------------------------------------------------------


def test_an_encoder_by_the_names_that_people_give(tiny_bert, tmp_path, hub, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert, pooling="mean")
    encoder.save(tmp_path / "saved")
    expected = encoder.encode(sentences[:3])
    for name, called in {
        f"{tmp_path}/saved": "saved (mean)",
        f"{tmp_path}/saved:mean": "saved (mean)",
        hub(tmp_path / "saved", "user/model"): "model (mean)",
    }.items():
        label, found = open_encoder(name)
        assert label == called and not found.training
        np.testing.assert_allclose(found.encode(sentences[:3]), expected, atol=1e-6)
    assert open_encoder(f"{tmp_path}/saved:cls")[1].pooling == "cls"
    assert open_encoder("demo")[0] == "mini-bert (cls)"
    with pytest.raises(EncoderError, match="neither an existing folder"):
        open_encoder(f"{tmp_path}/saved:middle")
    assert list(open_encoders(["demo:cls", "demo:mean", "demo"])) == [
        "mini-bert (cls)", "mini-bert (mean)", "mini-bert (cls), demo",
    ]  # fmt: skip
    for names in ([], ["demo", "demo"]):
        with pytest.raises(ConfigError, match="name at least one, and each of them once"):
            open_encoders(names)
