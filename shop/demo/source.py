"""The code of a strategy, as the page shows it: what a reader needs, its decisive lines marked.

Left out: imports, docstrings of functions, types of arguments, the entry in the registry, what only
records and stops purchases for the demo (`point`, `note`), and guards against misuse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from django.conf import settings

from shop.strategies import Strategy

PURCHASE, LOCKED, PROMISES = (
    "shop/sale/purchase.py",
    "shop/sale/locked.py",
    "shop/reserve/promises.py",
)
#: The functions of those files that a strategy may run through.
SHARED = {
    PURCHASE: {"sell_one", "read_stock", "write_stock", "write_relative"},
    LOCKED: {"held"},
    PROMISES: {"_ask"},
}
#: Strategy -> what its decisive lines contain; of several such lines the first one is meant.
MARKS: dict[str, tuple[str, ...]] = {
    "none": ("stock = read(attempt)", "[stock.amount - 1, "),
    "process": ("setdefault(self.name, threading.Lock())", "lock.acquire("),
    "setnx": ("setnx(self.key", "delete(self.key)"),
    "setnx-expire": ("setnx(self.key", "pexpire(self.key"),
    "setnx-expire-repair": ("pttl(self.key)", "pexpire(self.key"),
    "setnx-expire-lua": ('script("setnx_expire")', 'script("compare_and_delete")'),
    "setnx-timestamp": ("setnx(self.key, expires)", "getset(self.key"),
    "setnx-timestamp-del": ("delete(self.key)", "setnx(self.key"),
    "setpx-del": ("nx=True", "delete(self.key)"),
    "token-get-del": ("self.client.get(self.key)", "delete(self.key)"),
    "token": ("nx=True", 'script("compare_and_delete")'),
    "token-watchdog": ("= Renewal(", 'script("compare_and_expire")'),
    "reentrant": ('script("reentrant_acquire")', "self._watch(taken)"),
    "redlock": ('"SET", self.key', ">= self.quorum and validity"),
    "zookeeper": ("self._queue(node", "create_async("),
    "redis": ("lock.hold(wait=", "UPDATE product SET fence"),
    "fence-at-write": ("lock.hold(wait=", "fence__lt=lease.fence"),
    "redis-in-transaction": ("transaction.atomic(", "with held("),
    "advisory": ("pg_advisory_xact_lock",),
    "row-lock": ("for_update=True)", "select_for_update()"),
    "version": ("version=stock.version", "raise Conflict"),
    "rollback": ('update(amount=F("amount") - 1)', "raise SoldOut from error"),
    "conditional": ("filter(amount__gt=0)",),
    "serializable": ("@until_it_fits", "ISOLATION LEVEL SERIALIZABLE"),
    "buckets": ("random.choice(", "SET amount = amount - 1 "),
    "skip-locked": ("FOR UPDATE SKIP LOCKED", "wait_for_a_unit(attempt)"),
    "counter": ("= reserve(", "write=write_relative"),
    "reserve": ("promises.promise(attempt)", 'script("promise"'),
}
#: Calls, a decorator, and the guard of held() against a lock inside a transaction.
NOISE = {"point", "note", "entered", "leaving", "contextmanager"}
GUARD = "LockInsideTransaction"


@dataclass(slots=True)
class Block:
    """A function, a method or an assignment: its file, its lines, and which of them are marked."""

    file: str
    name: str
    lines: list[str]
    marked: set[int]

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.file, "lines": self.lines, "marked": sorted(self.marked)}


def critical_section(strategy: Strategy) -> list[dict[str, Any]]:
    """The blocks of a strategy as file, lines and the places of those that are marked: first what
    has a mark, in the order of MARKS, then the rest of its own file and of its lock's, sell_one()
    included. A strategy from a file of one's own has no marks. Raises LookupError where MARKS names
    a line that is not there any more."""
    lock = f"locks/classic/{Path(strategy.file).name}"
    own = [file for file in (strategy.file, lock) if (settings.BASE_DIR / file).is_file()]
    blocks = [block for file in own for block in _blocks(file)]
    for file, names in SHARED.items():
        blocks += [block for block in _blocks(file) if block.name in names]
    shown: list[Block] = []
    for fragment in MARKS.get(strategy.name, ()):
        block = _mark(blocks, fragment)
        if block not in shown:
            shown.append(block)
    rest = [
        block
        for block in blocks
        if block.file in own or (block.name == "sell_one" and not strategy.deferred)
    ]
    return [block.as_dict() for block in (*shown, *(one for one in rest if not one.marked))]


def _mark(blocks: list[Block], fragment: str) -> Block:
    """Mark the first line that contains it. Returns its block."""
    for block in blocks:
        for number, line in enumerate(block.lines):
            if fragment in line:
                block.marked.add(number)
                return block
    raise LookupError(f"no line contains {fragment!r}: correct MARKS in shop/demo/source.py")


def _blocks(file: str) -> Iterator[Block]:
    text = (settings.BASE_DIR / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    try:
        body = ast.parse(text).body
    except SyntaxError:  # a file of one's own that is being written
        yield Block(file, "", lines, set())
        return
    for node in body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield _block(file, inner, lines)
        elif isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.Assign | ast.AnnAssign) and not _is_entry(node)
        ):
            yield _block(file, node, lines)


def _block(file: str, node: ast.stmt, lines: list[str]) -> Block:
    """The lines of a statement that the page shows, unindented."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    shown = [it.lineno for it in decorators if ast.unparse(it) not in NOISE]
    first = min([node.lineno, *shown])
    kept = {number: lines[number - 1] for number in range(first, (node.end_lineno or 0) + 1)}
    if isinstance(node, ast.FunctionDef):
        _clean(node, kept)
    text = dedent("\n".join(kept[number] for number in sorted(kept)))
    return Block(file, getattr(node, "name", ""), text.split("\n"), set())


def _clean(function: ast.FunctionDef, kept: dict[int, str]) -> None:
    """Remove what the page leaves out, and the types of the signature. A `try` whose `finally`
    would be empty is removed too, and its body moves to the left."""
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            _shorten(node, kept)
        elif isinstance(node, ast.stmt) and _is_noise(node):
            _drop(node, kept)
        elif isinstance(node, ast.Try) and _only_records(node):
            _unwrap(node, kept)


def _only_records(node: ast.Try) -> bool:
    return not node.handlers and all(map(_is_noise, node.finalbody))


def _unwrap(node: ast.Try, kept: dict[int, str]) -> None:
    """Leave the body of a `try` without its `finally`."""
    body_ends = node.body[-1].end_lineno or 0
    for number in (node.lineno, *range(body_ends + 1, (node.end_lineno or 0) + 1)):
        kept.pop(number, None)
    for number in range(node.lineno, body_ends + 1):
        if number in kept:
            kept[number] = kept[number].removeprefix("    ")


def _shorten(function: ast.FunctionDef, kept: dict[int, str]) -> None:
    """The signature on one line, by its names alone; no docstring."""
    indent = " " * function.col_offset
    has_docstring = ast.get_docstring(function, clean=False) is not None
    if has_docstring:
        _drop(function.body[0], kept)
    for number in range(function.lineno + 1, function.body[0].lineno):
        kept.pop(number, None)
    given = function.args
    names = [it.arg for it in given.args]
    names += [f"*{given.vararg.arg}"] if given.vararg else ["*"] if given.kwonlyargs else []
    names += [it.arg for it in given.kwonlyargs]
    kept[function.lineno] = f"{indent}def {function.name}({', '.join(names)}):"


def _drop(node: ast.stmt, kept: dict[int, str]) -> None:
    for number in range(node.lineno, (node.end_lineno or 0) + 1):
        kept.pop(number, None)


def _is_noise(node: ast.stmt) -> bool:
    """Whether a statement records, or guards against misuse, and is no part of the idea."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name in NOISE
        case (
            ast.Assign(targets=[ast.Attribute(attr="committing") | ast.Name(id="blocks")])
            | ast.Assign(targets=[ast.Name(id="lease")], value=ast.Constant(value=None))
        ):
            return True
        case ast.If(body=body, orelse=[]) if all(map(_is_noise, body)):
            return True
        case ast.If(body=[ast.Raise(exc=ast.Name(id=name))]):
            return name == GUARD
    return False


def _is_entry(node: ast.Assign | ast.AnnAssign) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STRATEGY"
