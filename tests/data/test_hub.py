"""The hub path, with the download replaced: nothing here reaches a network."""

import io
import tarfile
from types import SimpleNamespace

import pytest

from lib.checks import DataError
from lib.data import __main__, hub, load_corpus


@pytest.fixture
def downloaded(tmp_path, monkeypatch):
    """The file that comes from the hub whatever is asked for, and what was asked for."""
    source = tmp_path / "downloaded"
    asked = []

    def download(repository, file, repo_type):
        asked.append(file)
        return source

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return SimpleNamespace(file=source, asked=asked)


def test_a_file_is_fetched_once_lands_in_data_dir_and_is_counted(tmp_path, downloaded):
    downloaded.file.write_text("sent0,sent1,hard_neg\na,b,c\n")
    for _ in range(2):
        with pytest.raises(DataError, match="expected 275,601 rows, found 1"):
            load_corpus("hub:nli_for_simcse.csv", tmp_path / "data")
    assert downloaded.asked == ["nli_for_simcse.csv"]
    assert (tmp_path / "data/nli_for_simcse.csv").is_file()


def archive(path, name):
    with tarfile.open(path, "w") as file:
        entry = tarfile.TarInfo(name)
        entry.size = 2
        file.addfile(entry, io.BytesIO(b"a\n"))


def test_senteval_archive_is_unpacked_to_the_expected_place(tmp_path, downloaded):
    archive(downloaded.file, "SentEval/data/downstream/MR/rt-polarity.pos")
    folder = hub.fetch("senteval", tmp_path / "data")
    assert folder == tmp_path / "data/senteval/downstream"
    assert (folder / "MR/rt-polarity.pos").read_text() == "a\n"
    assert sorted(p.name for p in (tmp_path / "data").iterdir() if p.suffix != ".lock") == ["senteval"]


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [
        ("../outside", None, "damaged|outside"),
        ("/etc/outside", None, "no folder 'downstream'|outside"),
        ("SentEval/data/downstream/MR/rt-polarity.pos", 513, "downloaded is truncated or damaged"),
    ],
)
def test_an_archive_writes_nothing_outside_and_nothing_half(tmp_path, downloaded, name, length, words):
    archive(downloaded.file, name)
    downloaded.file.write_bytes(downloaded.file.read_bytes()[:length])
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
    for column in ("c", "id"):  # unknown, and no text
        with pytest.raises(DataError, match=f"'hub:user/set:{column}' is no hub:<user>/<data set>:<column> to be had"):
            load_corpus(f"hub:user/set:{column}", tmp_path)
