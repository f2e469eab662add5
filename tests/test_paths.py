import pytest

from lib import paths
from lib.data import DataError


def test_data_dir_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paths.data_dir() == paths.root() / "data"
    (tmp_path / "mine").mkdir()
    assert paths.data_dir("mine") == tmp_path / "mine"
    assert paths.data_dir("notebooks") == paths.root() / "notebooks"  # relative to the repository, from anywhere
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "mine"))
    assert paths.data_dir() == tmp_path / "mine"
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="CSE_DATA names"):
        paths.data_dir()
    with pytest.raises(DataError, match="'gone' is not a folder"):
        paths.data_dir("gone")


def test_whole_folder_replaces_the_old_one_only_when_the_block_ends(tmp_path):
    folder = tmp_path / "runs" / "one"
    with paths.whole_folder(folder) as new:
        (new / "a").write_text("first")
        assert not folder.exists()
    with pytest.raises(ZeroDivisionError), paths.whole_folder(folder) as new:
        (new / "b").write_text("second")
        raise ZeroDivisionError
    assert [path.name for path in folder.iterdir()] == ["a"]
    with paths.whole_folder(folder) as new:
        (new / "c").write_text("third")
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert list(folder.parent.iterdir()) == [folder]  # nothing is left beside it
