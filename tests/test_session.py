"""What a run says of the process it ran in: versions, commit, device; and what `quiet` switches off."""

import os
import subprocess
import sys

import pytest

from lib import session


@pytest.fixture(autouse=True)
def nothing_of_this_repository(repository, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.parent))


def test_the_commit_and_whether_lib_differs_from_it(repository):
    (repository / "lib").mkdir()
    (repository / "lib" / "module.py").write_text("a = 1\n")
    (repository / "README").write_text("text\n")
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)
    commit = subprocess.check_output(["git", "-C", str(repository), "rev-parse", "HEAD"], text=True)[:12]
    session.git_commit.cache_clear()
    assert len(commit) == 12 and session.git_commit() == commit
    (repository / "README").write_text("another text\n")
    (repository / "lib" / "untracked.py").write_text("b = 2\n")
    assert session.git_commit.__wrapped__() == commit
    (repository / "lib" / "module.py").write_text("a = 2\n")
    assert session.git_commit.__wrapped__() == commit + "+"
    assert session.git_commit() == commit  # of the code that runs
    session.git_commit.cache_clear()


def test_outside_git_the_commit_is_unknown(monkeypatch, tmp_path, capfd):
    assert session.git_commit.__wrapped__() == "unknown" and capfd.readouterr() == ("", "")
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert session.git_commit.__wrapped__() == "unknown"


@pytest.mark.parametrize(("given", "silent"), [({}, "True"), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, "False")])
def test_the_hub_gets_no_telemetry_unless_the_user_says_so(given, silent):
    ask = "import lib, huggingface_hub.constants as c; print(c.HF_HUB_DISABLE_TELEMETRY)"
    unset = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name and name != "DO_NOT_TRACK"}
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=unset | given, check=True)
    assert told.stdout.strip() == silent
