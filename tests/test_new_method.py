"""CONTRIBUTING's walk through a new method: the files that it names are enough."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|diff)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def added_to(text, block):
    """The text with the lines that begin with + behind the lines that stand above them."""
    lines, at = text.splitlines(), 0
    for line in block.splitlines():
        if line.startswith("+"):
            lines.insert(at, line[1:])
        else:
            at = lines.index(line[1:], at)
        at += 1
    return "\n".join(lines) + "\n"


@pytest.mark.process
def test_the_walk_adds_a_method_that_keeps_the_contract_and_trains(tmp_path):
    for folder in ("lib", "tests", "params", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    blocks = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf8"))
    assert [name for _, name, _ in blocks] == [
        "lib/losses/align_uniform.py", "lib/losses/__init__.py", "tests/losses/test_align_uniform.py",
        "lib/methods/align_uniform.py", "lib/methods/__init__.py", "tests/methods/test_contract.py",
    ]  # fmt: skip
    for kind, name, block in blocks:
        path = tmp_path / name
        assert path.exists() == (kind == "diff"), name
        path.write_text(added_to(path.read_text(), block) if kind == "diff" else block)
    new = [tmp_path / name for kind, name, _ in blocks if kind == "python"]
    subprocess.run([sys.executable, "-m", "ruff", "check", "--quiet", *new], cwd=tmp_path, check=True)

    environment = os.environ | {"PYTHONPATH": str(tmp_path), "CSE_RUNS": str(tmp_path / "runs")}
    environment["CSE_CACHE"] = str(ROOT / ".cache")  # the doc strings were read for other tests
    tests = ["tests/losses/test_align_uniform.py", "tests/methods/test_contract.py", "tests/test_imports.py"]
    chosen = ["-k", "align_uniform or every_method or imports", "-p", "no:cacheprovider", "-q"]
    train = ["-m", "lib.runs", "-f", "params/demo/0_start_here.yaml"]
    train += ["-p", "method=three_r(align_uniform)", "-p", "max_steps=2"]
    for command in (["-m", "pytest", *tests, *chosen], train):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert '"steps": 2' in done.stdout and len(list((tmp_path / "runs" / "demo").glob("three_r-align_uniform-*"))) == 1
