import os
import subprocess
import sys
import threading
import time

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


def test_whole_file_is_there_whole_or_not_at_all(tmp_path):
    file = tmp_path / "runs" / "one" / "metrics.json"
    with pytest.raises(ZeroDivisionError), paths.whole_file(file) as new:
        new.write_text("half")
        raise ZeroDivisionError
    assert list(file.parent.iterdir()) == []
    with paths.whole_file(file) as new:
        new.write_text("first")
        assert not file.exists()
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), paths.whole_file(file) as new:
            new.write_text("half")
            raise error
        assert file.read_text() == "first"
    with paths.whole_file(file) as new:
        new.write_text("second")
        assert file.read_text() == "first"
    assert file.read_text() == "second" and list(file.parent.iterdir()) == [file]


def test_a_file_that_nobody_wrote_is_an_error_and_leaves_the_old_one(tmp_path):
    (tmp_path / "file").write_text("first")
    with pytest.raises(FileNotFoundError), paths.whole_file(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "first"


@pytest.mark.parametrize("folder", [False, True])
def test_what_is_made_once_is_made_once(tmp_path, folder):
    path, calls = tmp_path / "cache" / "thing", []

    def make(new):
        calls.append(new)
        assert new != path and not path.exists()
        (new / "content" if folder else new).write_text("done")

    for _ in range(2):
        assert paths.made_once(path, make, folder=folder) == path
    assert len(calls) == 1 and (path / "content" if folder else path).read_text() == "done"
    assert not calls[0].exists() and {p.name for p in path.parent.iterdir()} <= {"thing", ".thing.lock", ".thing.seal"}


@pytest.mark.parametrize("folder", [False, True])
def test_what_could_not_be_made_is_made_by_the_next_call(tmp_path, folder):
    path = tmp_path / "thing"

    def broken(new):
        (new / "content" if folder else new).write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        paths.made_once(path, broken, folder=folder)
    assert not path.exists() and {p.name for p in tmp_path.iterdir()} <= {".thing.lock"}
    paths.made_once(path, lambda new: (new / "content" if folder else new).write_text("done"), folder=folder)
    assert (path / "content" if folder else path).read_text() == "done"


@pytest.mark.parametrize("folder", [False, True])
def test_of_several_threads_one_makes_it_and_the_others_wait(tmp_path, folder):
    path, calls, contents = tmp_path / "thing", [], []

    def make(new):
        calls.append(new)
        time.sleep(0.2)  # the others arrive
        (new / "content" if folder else new).write_text("done")

    def ask():
        paths.made_once(path, make, folder=folder)
        contents.append((path / "content" if folder else path).read_text())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and contents == ["done"] * 4


def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from lib import paths\n"
        "def make(new):\n"
        "    print('makes', flush=True)\n"
        "    time.sleep(1)\n"
        "    new.write_text('done')\n"
        "print(paths.made_once(Path(sys.argv[1]), make).read_text())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(paths.root())}
    command = [sys.executable, "-c", code, str(tmp_path / "thing")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    outputs = sorted(process.communicate()[0].split() for process in processes)
    assert outputs == [["done"], ["makes", "done"]]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks the system which file was written")
def test_whole_files_and_folders_are_on_the_disk_before_they_are_promised(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    with paths.whole_folder(tmp_path / "run", sealed=True) as new:
        (new / "encoder").mkdir()
        (new / "encoder" / "weights").write_text("x")
    names = [path.rsplit("/", 1)[1] for path in synced]
    assert {"weights", "encoder", paths.SEAL, "new"} < set(names) and synced[-1] == str(tmp_path)
    synced.clear()
    with paths.whole_file(tmp_path / "metrics.json") as new:
        new.write_text("{}")
    assert [path.rsplit("/", 1)[1] for path in synced] == [new.name, tmp_path.name]
