"""Code as the site shows it: a strategy's file without its frame, and any other file."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def strategies() -> dict[str, dict[str, Any]]:
    """Every strategy by name, in the order of the registry: title, summary, file, code."""
    found = {}
    for module in registered():
        path = ROOT / "shop" / "strategies" / f"{module}.py"
        text = path.read_text()
        facts = _facts(ast.parse(text))
        found[facts["name"]] = {
            "title": facts["title"],
            "summary": facts["summary"],
            "file": path.relative_to(ROOT).as_posix(),
            "code": essence(text),
        }
    return found


def registered() -> list[str]:
    """The modules of the strategies, in the order in which the registry names them."""
    tree = ast.parse((ROOT / "shop/strategies/__init__.py").read_text())
    (order,) = (node.iter for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    return [name.id for name in ast.walk(order) if isinstance(name, ast.Name)]


def essence(text: str) -> str:
    """A strategy's file without its imports and its entry in the registry: docstring and code."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        targets = node.targets if isinstance(node, ast.Assign) else []
        entry = any(isinstance(one, ast.Name) and one.id == "STRATEGY" for one in targets)
        if entry or isinstance(node, (ast.Import, ast.ImportFrom)):
            del lines[node.lineno - 1 : node.end_lineno]
    kept = "\n".join(lines)
    while "\n\n\n\n" in kept:
        kept = kept.replace("\n\n\n\n", "\n\n\n")
    return kept.strip()


def about(path: Path) -> str:
    """The first line of a Python file's docstring, or nothing."""
    if path.suffix != ".py":
        return ""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def _facts(tree: ast.Module) -> dict[str, Any]:
    (call,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "Strategy"
    )
    return {
        w.arg: w.value.value for w in call.keywords if w.arg and isinstance(w.value, ast.Constant)
    }
