"""The hub path, with the download replaced: nothing here reaches a network."""

import io
import tarfile

import pytest

from lib.checks import DataError
from lib.data import __main__, hub, load_corpus


def test_a_file_is_fetched_once_lands_in_data_dir_and_is_counted(tmp_path, monkeypatch):
    source = tmp_path / "downloaded"
    source.write_text("sent0,sent1,hard_neg\na,b,c\n")
    asked = []
    monkeypatch.setattr(hub, "_download", lambda file: asked.append(file) or source)
    for _ in range(2):
        with pytest.raises(DataError, match="expected 275,601 rows, found 1"):
            load_corpus("hub:nli_for_simcse.csv", tmp_path / "data")
    assert asked == ["nli_for_simcse.csv"]
    assert (tmp_path / "data/nli_for_simcse.csv").is_file()


def archive(path, name):
    with tarfile.open(path, "w") as file:
        entry = tarfile.TarInfo(name)
        entry.size = 2
        file.addfile(entry, io.BytesIO(b"a\n"))
    return path


def test_senteval_archive_is_unpacked_to_the_expected_place(tmp_path, monkeypatch):
    source = archive(tmp_path / "senteval.tar", "SentEval/data/downstream/MR/rt-polarity.pos")
    monkeypatch.setattr(hub, "_download", lambda *a: source)
    folder = hub.fetch("senteval", tmp_path / "data")
    assert folder == tmp_path / "data/senteval/downstream"
    assert (folder / "MR/rt-polarity.pos").read_text() == "a\n"
    assert sorted(p.name for p in (tmp_path / "data").iterdir() if p.suffix != ".lock") == ["senteval"]


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("../outside", None, "damaged|outside"),
        ("/etc/outside", None, "no folder 'downstream'|outside"),
        ("SentEval/data/downstream/MR/rt-polarity.pos", 513, "senteval.tar is truncated or damaged"),
    ],
)
def test_an_archive_writes_nothing_outside_and_nothing_half(tmp_path, monkeypatch, name, length, words):
    source = archive(tmp_path / "senteval.tar", name)
    source.write_bytes(source.read_bytes()[:length])
    monkeypatch.setattr(hub, "_download", lambda *a: source)
    with pytest.raises(DataError, match=words):
        hub.fetch("senteval", tmp_path / "data")
    assert not (tmp_path / "outside").exists() and not list((tmp_path / "data/senteval").iterdir())


def test_no_network_is_one_sentence(tmp_path, capsys, monkeypatch):
    def refuse(*a, **k):
        raise ConnectionError("no route")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    (tmp_path / "data").mkdir()
    assert __main__.main(["fetch", "wiki1m", "--data-dir", str(tmp_path / "data")]) == 2
    assert "could not be fetched from the hub (ConnectionError)" in capsys.readouterr().err
    assert __main__.main(["check", "everything", "--data-dir", str(tmp_path / "data")]) == 2
    assert "choose one of wiki1m, nli, senteval" in capsys.readouterr().err


def test_any_other_hub_data_set_by_columns(tmp_path, monkeypatch):
    import datasets

    table = datasets.Dataset.from_dict({"id": [1, 2], "a": ["x", "y"], "b": ["u", "v"], "gap": ["u", None]})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: table)
    corpus = load_corpus("hub:user/set:a,b", tmp_path)
    assert corpus.columns == (("x", "y"), ("u", "v")) and (corpus.name, corpus.kind) == ("user/set", "pairs")
    with pytest.raises(DataError, match="user/set, row 2: its positive is empty"):
        load_corpus("hub:user/set:a,gap", tmp_path)
    with pytest.raises(DataError, match="'hub:user/set:c' is no hub:<user>/<data set>:<column> to be had"):
        load_corpus("hub:user/set:c", tmp_path)
