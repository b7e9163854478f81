"""The source code of a strategy for the page: its own file, and functions that strategies share."""

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

#: Functions outside a strategy's own file that it may call, in the order in which they are shown.
SHARED_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    locked.hold_lock,
    purchase.sell_one,
    fences.claim_fence_and_read_stock,
    purchase.read_stock,
    purchase.write_stock,
    purchase.decrement_stock,
    promises.run_promise_script,
)
#: A longer class is shown method by method.
MAX_CLASS_LINES = 30


def read_source_blocks(strategy: Strategy) -> list[dict[str, Any]]:
    """Return the blocks of source code that the page shows for a strategy.

    A block has its `file`, its `lines`, and in `marked` the indexes of its highlighted lines.

    The blocks of the strategy's own file come first, without its docstring and its STRATEGY. Then
    come the shared functions that have a highlighted line. Unless the strategy is `deferred`,
    sell_one() is shown even if none of its lines is highlighted.

    For each text in `highlights` of the strategy, the first line that contains the text is
    highlighted. Raises LookupError if no line contains it.
    """
    text = (settings.BASE_DIR / strategy.file).read_text(encoding="utf-8")
    own_blocks = [_make_code_block(strategy.file, part) for part in _split_into_parts(text)]
    shared_blocks = {
        function: _make_code_block(_find_file(function), inspect.getsource(function))
        for function in SHARED_FUNCTIONS
    }
    for text_of_line in strategy.highlights:
        _highlight_line(text_of_line, own_blocks + list(shared_blocks.values()))
    shown_blocks = list(own_blocks)
    for function, block in shared_blocks.items():
        is_always_shown = function is purchase.sell_one and not strategy.deferred
        if block["marked"] or is_always_shown:
            shown_blocks.append(block)
    return shown_blocks


def _highlight_line(text_of_line: str, blocks: list[dict[str, Any]]) -> None:
    """Add the first line that contains `text_of_line` to the highlighted lines of its block.

    Raises LookupError if no line contains the text.
    """
    for block in blocks:
        for index, line in enumerate(block["lines"]):
            if text_of_line in line:
                block["marked"].append(index)
                return
    raise LookupError(f"no line contains {text_of_line!r}: correct `highlights` of the strategy")


def _split_into_parts(text: str) -> Iterator[str]:
    """Yield the parts of a strategy's file: its imports, its functions and its classes.

    The file's docstring and its STRATEGY are left out. A class of more than MAX_CLASS_LINES is
    yielded method by method.
    """
    without_docstring = re.sub(r'\A""".*?"""\n', "", text, flags=re.DOTALL)
    code = without_docstring.partition("\nSTRATEGY = ")[0]
    for part in code.strip("\n").split("\n\n\n"):  # two empty lines separate the parts
        if part.startswith("class ") and part.count("\n") > MAX_CLASS_LINES:
            yield from map(dedent, re.split(r"\n\n(?=    (?:@|def ))", part))
        else:
            yield part


def _find_file(function: Callable[..., Any]) -> str:
    """Return the path of the function's file, relative to the project."""
    file = Path(inspect.getfile(inspect.unwrap(function)))
    return str(file.relative_to(settings.BASE_DIR))


def _make_code_block(file: str, code: str) -> dict[str, Any]:
    """Return a block of source code for the page, in which no line is highlighted yet."""
    return {"file": file, "lines": code.rstrip().splitlines(), "marked": []}
