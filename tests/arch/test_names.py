"""House rules that a machine can check: names that say nothing, modules without a purpose, hidden state."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.arch.tree import ROOT, modules, named, written_files

SAYS_NOTHING = {
    word + plural for word in ("util", "helper", "common", "misc", "manager", "data", "info") for plural in ("", "s")
}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict", "bytearray"}
CHANGES = {"append", "add", "update", "setdefault", "pop", "popitem", "clear", "extend", "insert", "remove", "discard"}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    bad = [
        named(path)
        for path in written_files()
        for part in path.relative_to(ROOT).parts
        if part.partition(".")[0].strip("_") in SAYS_NOTHING
    ]
    assert bad == []


def test_a_module_opens_with_one_sentence() -> None:
    silent = [named(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def mutable(value: ast.expr | None) -> bool:
    """True for a literal or a call that makes a list, dict, set or the like."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in MUTABLE_CALLS
    return isinstance(value, MUTABLE)


def changed_names(tree: ast.Module) -> set[str]:
    """Names whose contents some statement of the module changes."""
    changed = set()
    for node in ast.walk(tree):
        target: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            target = node.func.value
        if isinstance(target, ast.Name):
            changed.add(target.id)
    return changed


def test_a_module_keeps_no_state() -> None:
    """What is shared is an attribute of the app; a module may hold tables, in capitals, that nothing changes."""
    assert [f"{named(path)}, {where}" for path in modules() for where in state_in(path)] == []


def state_in(path: Path) -> list[str]:
    """The lines of a module that make state of its own."""
    tree = ast.parse(path.read_text())
    bad = [f"line {node.lineno}: global" for node in ast.walk(tree) if isinstance(node, ast.Global)]
    changed = changed_names(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and mutable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name) and target.id != "__all__"]
            bad += [f"line {node.lineno}: {name}" for name in names if not name.isupper() or name in changed]
    return bad
