"""Reads names from the code without importing it, wherever in its package a file is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def the_file(package: str, name: str) -> Path:
    """The one file of that name in the package, its tests aside."""
    (found,) = (p for p in (ROOT / package).rglob(name) if "tests" not in p.parts)
    return found


def calls(package: str, function: str) -> Iterator[ast.Call]:
    """Every call of that function in the package, its tests aside."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called == function:
                    yield node


def constant(path: Path, name: str) -> object:
    """The value of a module's constant. Raises LookupError."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return ast.literal_eval(value)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if (
                found == name
            ):
                return ast.literal_eval(value)
    raise LookupError(f"{path} has no constant {name}")
