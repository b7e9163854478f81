"""Code as the site shows it: a strategy's file without its frame, and any other file."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def strategies() -> dict[str, dict[str, Any]]:
    """Every strategy by name, in the order in which they are shown: title, summary, file, code, and
    texts of the lines that decide."""
    found = []
    for path in (ROOT / "shop" / "strategies").glob("*.py"):
        text = path.read_text()
        if facts := _facts(ast.parse(text)):
            file, code = path.relative_to(ROOT).as_posix(), essence(text)
            found.append(facts | {"file": file, "code": code})
    shown = ("title", "summary", "marks", "file", "code")
    in_order = sorted(found, key=lambda facts: int(facts["place"]))
    return {facts["name"]: {name: facts[name] for name in shown} for facts in in_order}


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


def _facts(tree: ast.Module) -> dict[str, Any]:
    """The constants of the file's Strategy(...); empty without one."""
    for node in tree.body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Strategy":
            plain = (w for w in call.keywords if isinstance(w.value, (ast.Constant, ast.Tuple)))
            return {w.arg: ast.literal_eval(w.value) for w in plain if w.arg}
    return {}
