"""The rooms of `lib` and who may import whom: the picture in CONTRIBUTING, checked on the code's own imports."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

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
    "analysis": {"checks", "paths", "distributed", "data", "encoders", "losses", "evaluation", "results"},
    "figures": {"paths", "session", "comparison"},
    "comparison": {"checks"},
    "results": {"checks", "paths", "data", "comparison"},
    "training": TOOLS | {"data", "encoders", "methods", "config", "evaluation", "analysis"},
    "runs": TOOLS | {"data", "encoders", "methods", "config", "evaluation", "analysis", "training", "results"},
    "batch": TOOLS | {"command", "config", "analysis", "results", "runs"},
}


def module_name(path):
    return ".".join(("lib", *path.relative_to(LIB).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(LIB.rglob("*.py"))}


def imported_modules(name):
    """(module of `lib`, AST node) of every import in a module, wherever it stands."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: write imports out, `from lib...`"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            while target not in MODULES and "." in target:
                target = target.rpartition(".")[0]
            if target in MODULES and target != "lib":
                yield target, node


def test_no_module_imports_itself_through_others():
    edges = {  # a package that is being imported may import its own modules
        name: {target for target, _ in imported_modules(name) if not name.startswith(f"{target}.")} for name in MODULES
    }
    assert sum(map(len, edges.values())) > 100
    TopologicalSorter(edges).prepare()  # its CycleError names the modules


def test_imports_stand_at_the_top_and_go_one_way():
    for name in MODULES:
        room = name.partition(".")[2].partition(".")[0]
        may = {*MAY_IMPORT} if not room or name.endswith(".__main__") else {room, *MAY_IMPORT[room]}
        for target, node in imported_modules(name):
            where = f"{name}, line {node.lineno}"
            assert not node.col_offset, f"{where}: in a function body"
            assert not target.endswith("__main__"), f"{where} imports an entry point"
            assert target.split(".")[1] in may, f"{where}: {room} may not import {target}"


def test_every_room_is_in_the_picture():
    assert {name.split(".")[1] for name in MODULES if name != "lib"} == set(MAY_IMPORT)
