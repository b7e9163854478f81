"""The code of a strategy, as it stands in its file and in what it shares with others."""

import inspect
import re
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
#: Lines of a class that is shown whole; of a longer one each method is a block.
ONE_SCREEN = 30


def blocks_of(strategy: Strategy) -> list[dict[str, Any]]:
    """The strategy's own file but for its docstring and its entry in the registry; then sell_one()
    and what else has one of its decisive lines. Each with file, lines and which are marked.

    A mark is the first line that contains it. Raises LookupError where no line does.
    """
    text = (settings.BASE_DIR / strategy.file).read_text(encoding="utf-8")
    own = [_block(strategy.file, part) for part in _parts(text)]
    shared = {one: _block(_file_of(one), inspect.getsource(one)) for one in SHARED}
    for mark in strategy.marks:
        for block in (*own, *shared.values()):
            if found := [n for n, line in enumerate(block["lines"]) if mark in line]:
                block["marked"].append(found[0])
                break
        else:
            raise LookupError(f"no line contains {mark!r}: correct `marks` of the strategy")
    always = None if strategy.deferred else purchase.sell_one
    return own + [block for one, block in shared.items() if block["marked"] or one is always]


def _parts(text: str) -> Iterator[str]:
    """What two empty lines set apart: functions, classes and, before them, imports."""
    code = re.sub(r'\A""".*?"""\n', "", text, flags=re.DOTALL).partition("\nSTRATEGY = ")[0]
    for part in code.strip("\n").split("\n\n\n"):
        if part.startswith("class ") and part.count("\n") > ONE_SCREEN:
            yield from map(dedent, re.split(r"\n\n(?=    (?:@|def ))", part))
        else:
            yield part


def _file_of(function: Callable[..., Any]) -> str:
    file = Path(inspect.getfile(inspect.unwrap(function)))
    return str(file.relative_to(settings.BASE_DIR))


def _block(file: str, code: str) -> dict[str, Any]:
    return {"file": file, "lines": code.rstrip().splitlines(), "marked": []}
