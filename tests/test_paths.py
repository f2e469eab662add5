import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lib import paths
from lib.checks import DataError


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


@pytest.mark.skipif(not (paths.root() / ".git").exists(), reason="not a checkout of the repository")
@pytest.mark.process
def test_what_a_run_writes_by_default_leaves_the_checkout_clean(monkeypatch):
    for variable in ("CSE_RUNS", "CSE_CACHE", "CSE_FIGURES"):
        monkeypatch.delenv(variable)
    written = [paths.runs(), paths.cache(), *map(paths.figures, paths.PROFILES)]
    for folder in written:
        ignored = subprocess.run(["git", "check-ignore", "-q", folder / "any.file"], cwd=paths.root())
        assert ignored.returncode == 0, folder


KINDS = pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])


def content(path, folder):
    return path / "content" if folder else path


@KINDS
def test_a_path_is_there_whole_or_not_at_all(tmp_path, folder):
    path, whole = tmp_path / "runs" / "one", paths.whole_folder if folder else paths.whole_file

    def attempt(text, error=None):
        with whole(path) as new:
            content(new, folder).write_text(text)
            assert [place.name for place in path.parent.glob("[!.]*")] == ([path.name] if path.exists() else [])
            if error:
                raise error

    with pytest.raises(ZeroDivisionError):
        attempt("half", ZeroDivisionError)
    assert not path.exists()
    attempt("first")
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            attempt("half", error)
        assert content(path, folder).read_text() == "first"
    if not folder:
        with pytest.raises(DataError, match=f"{path} cannot be"), whole(path):
            pass  # nothing was written
    attempt("second")
    assert content(path, folder).read_text() == "second" and list(path.parent.iterdir()) == [path]


@KINDS
def test_of_several_threads_one_makes_it_and_the_others_wait(tmp_path, folder):
    path, calls = tmp_path / "cache" / "thing", []

    def make(new):
        calls.append(new)
        time.sleep(0.2)  # the others arrive
        content(new, folder).write_text("done")

    def ask(_):
        return content(paths.made_once(path, make, folder=folder), folder).read_text()

    with ThreadPoolExecutor(4) as threads:
        contents = list(threads.map(ask, range(4)))
    assert len(calls) == 1 and contents == ["done"] * 4
    assert {place.name for place in path.parent.iterdir()} <= {"thing", ".thing.lock"}


def test_what_killed_processes_left_is_swept(tmp_path):
    path, others = tmp_path / "thing", (".thing-else", ".things-abcd1234")
    for name in (".thing-abcd123_", *others):
        (tmp_path / name / "new").mkdir(parents=True)
    paths.made_once(path, lambda new: new.write_text("whole"))
    assert paths.made_once(path, None).read_text() == "whole"
    assert {place.name for place in tmp_path.iterdir()} == {"thing", *others}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks the system which file was written")
def test_what_was_written_is_on_the_disk_before_it_is_promised(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def fsync(handle):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with paths.whole_folder(tmp_path / "run") as new:
        (new / "encoder").mkdir()
        (new / "encoder" / "weights").write_text("x")
    assert {*synced[:-2]} == {"weights", "encoder"} and synced[-2:] == ["new", tmp_path.name]
    synced.clear()
    with paths.whole_file(tmp_path / "metrics.json") as new:
        new.write_text("{}")
    assert synced == ["metrics.json", tmp_path.name]
