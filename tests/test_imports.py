"""The rooms of `lib` and who may import whom: the picture in CONTRIBUTING, checked on the code's own imports."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[1] / "lib"
TOOLS = {"checks", "paths", "progress", "session", "distributed"}
# room -> rooms that it may import; entry points (`__main__.py`) may import any, and nobody imports them
MAY_IMPORT = {
    "checks": set(),
    "paths": {"checks"},
    "command": {"checks"},
    "progress": set(),
    "session": {"paths"},
    "distributed": set(),
    "notebook": {"checks", "paths", "session"},
    "data": TOOLS,
    "losses": set(),
    "encoders": TOOLS | {"data"},
    "methods": TOOLS | {"data", "encoders", "losses"},
    "config": TOOLS | {"data", "encoders", "methods"},
    "evaluation": {"checks", "data"},
    "analysis": {"checks", "paths", "data", "encoders", "losses", "evaluation", "results"},
    "figures": {"paths", "session"},
    "comparison": {"checks"},
    "results": {"checks", "paths", "data", "comparison"},
    "training": TOOLS | {"data", "encoders", "methods", "config", "evaluation", "analysis"},
    "runs": TOOLS | {"data", "encoders", "methods", "config", "evaluation", "analysis", "training", "results"},
    "batch": TOOLS | {"command", "config", "analysis", "results", "runs"},
}


def module_name(path):
    return ".".join(("lib", *path.relative_to(LIB).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(LIB.rglob("*.py"))}


def imported_modules(name, modules=MODULES, source=None):
    """(module of `lib`, AST node) of every import in a module, wherever it stands."""
    tree = ast.parse(source or modules[name].read_text(encoding="utf8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: write imports out, `from lib...`"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            while target not in modules and "." in target:
                target = target.rpartition(".")[0]
            if target in modules and target != "lib":
                yield target, node


def circle(edges):
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_imports_itself_through_others():
    edges = {  # a package that is being imported may import its own modules
        name: {target for target, _ in imported_modules(name) if not name.startswith(f"{target}.")} for name in MODULES
    }
    assert sum(map(len, edges.values())) > 100
    assert circle(edges) is None
    edges["lib.checks"] = {"lib.runs"}
    assert "lib.checks" in circle(edges)  # the check can fail


@pytest.mark.parametrize("name", MODULES)
def test_imports_stand_at_the_top_and_go_one_way(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf8"))
    inside = {id(node) for part in ast.walk(tree) if isinstance(part, ast.FunctionDef) for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in inside and isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert not any(n == "lib" or n.startswith("lib.") for n in names), f"line {node.lineno}: in a function body"
    if name == "lib" or name.endswith(".__main__"):
        return
    room = name.split(".")[1]
    for target, node in imported_modules(name):
        assert not target.endswith("__main__"), f"line {node.lineno} imports an entry point"
        assert target.split(".")[1] in {room, *MAY_IMPORT[room]}, f"line {node.lineno}: {room} may not import {target}"


def test_every_room_is_in_the_picture():
    assert {name.split(".")[1] for name in MODULES if name != "lib"} == set(MAY_IMPORT)
