"""The code of a strategy, as the page shows it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from django.conf import settings

from shop.purchase import sell_one
from shop.strategies import Strategy


def critical_section(strategy: Strategy) -> list[dict[str, str]]:
    """Files and code: the strategy, the lock that it holds where that is one of the articles', and
    what all of them run inside."""
    lock = f"locks/classic/{Path(strategy.file).name}"
    files = [file for file in (strategy.file, lock) if (settings.BASE_DIR / file).is_file()]
    parts = [{"file": file, "code": _without_preamble(file)} for file in files]
    return [*parts, {"file": "shop/purchase.py", "code": inspect.getsource(sell_one).strip()}]


def _without_preamble(file: str) -> str:
    """A file without its imports and its entry in the registry."""
    text = (settings.BASE_DIR / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_entry(node):
            del lines[node.lineno - 1 : node.end_lineno]
    spaced = "\n".join(lines).strip()
    while "\n\n\n" in spaced:
        spaced = spaced.replace("\n\n\n", "\n\n")
    return spaced


def _is_entry(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STRATEGY"
