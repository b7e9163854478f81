"""The code of a strategy, as it stands in its file and in what it shares with others."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

from django.conf import settings

from shop.reserve import promises
from shop.sale import fences, locked, purchase
from shop.sale.strategy import Strategy

#: What a strategy may run through outside its own file, in the order in which it is shown.
SHARED: tuple[Callable[..., Any], ...] = (
    locked.held,
    purchase.sell_one,
    fences.claim,
    purchase.read_stock,
    purchase.write_stock,
    purchase.write_relative,
    promises._ask,
)
#: Lines of a class that is shown whole.
ONE_SCREEN = 30


def critical_section(strategy: Strategy) -> list[dict[str, Any]]:
    """What stands in the strategy's own file but for docstring, imports and facts; then sell_one()
    and what else has one of its decisive lines. Each with file, lines and which are marked.

    A mark is the first line that contains it. Raises LookupError where no line does.
    """
    own, shared = _own(strategy), [_shared(function) for function in SHARED]
    for mark in strategy.marks:
        block, number = _find([*own, *shared], mark)
        block["marked"] = sorted({*block["marked"], number})
    return own + [one for one in shared if one["marked"] or (_sells(one) and not strategy.deferred)]


def _own(strategy: Strategy) -> list[dict[str, Any]]:
    text = (settings.BASE_DIR / strategy.file).read_text(encoding="utf-8")
    try:
        body = ast.parse(text).body
    except SyntaxError:  # a file of one's own that is being written
        return [_block(strategy.file, text.splitlines())]
    lines = text.splitlines()
    return [
        _block(strategy.file, dedent("\n".join(lines[first - 1 : node.end_lineno])).splitlines())
        for node in _parts(body)
        for first in [min((one.lineno for one in _decorators(node)), default=node.lineno)]
    ]


def _parts(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Functions, constants and classes; of a long class its methods."""
    for node in body:
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno > ONE_SCREEN:
            yield from (one for one in node.body if isinstance(one, ast.FunctionDef))
        elif not _is_around(node):
            yield node


def _is_around(node: ast.stmt) -> bool:
    """Whether it is the docstring, an import or the entry in the registry."""
    named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STRATEGY"
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return named or docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


def _shared(function: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    file = Path(inspect.getfile(function)).relative_to(settings.BASE_DIR)
    return _block(str(file), inspect.getsource(function).splitlines())


def _block(file: str, lines: list[str]) -> dict[str, Any]:
    return {"file": file, "lines": lines, "marked": []}


def _sells(block: dict[str, Any]) -> bool:
    return any(line.startswith("def sell_one(") for line in block["lines"])


def _find(blocks: list[dict[str, Any]], mark: str) -> tuple[dict[str, Any], int]:
    for block in blocks:
        for number, line in enumerate(block["lines"]):
            if mark in line:
                return block, number
    raise LookupError(f"no line contains {mark!r}: correct `marks` of the strategy")
