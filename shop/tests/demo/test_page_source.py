"""The code that the page shows: the file as it stands, its decisive lines marked."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from shop.demo.code import blocks_of
from shop.sale.fences import claim, sell_fenced
from shop.sale.locked import held
from shop.sale.purchase import sell_one
from shop.strategies import STRATEGIES


def marked(name: str) -> list[str]:
    blocks = blocks_of(STRATEGIES[name])
    return [block["lines"][n].strip() for block in blocks for n in block["marked"]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_its_decisive_lines_in_code_that_stands_in_its_file(name: str) -> None:
    blocks = blocks_of(STRATEGIES[name])
    assert 1 <= len(marked(name)) == len(STRATEGIES[name].marks) <= 2
    for block in blocks:
        code = "\n".join(block["lines"])
        ast.parse(code)  # still Python, indented from the margin
        assert code in source_of(block)


def source_of(block: dict[str, Any]) -> str:
    """The file of a block; its methods moved to the margin, as they are shown."""
    text = Path(settings.BASE_DIR, block["file"]).read_text()
    return text + re.sub(r"^    ", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("function", [held, sell_one, sell_fenced, claim])
def test_what_is_shown_has_at_most_one_line_of_instrumentation(
    function: Callable[..., Any],
) -> None:
    code = inspect.getsource(inspect.unwrap(function))
    assert len(re.findall(r"\b(?:point|seen|note)\(", code)) <= 1


def test_without_a_lock_the_write_of_a_stale_value_is_shown() -> None:
    assert marked("none") == [
        "stock = read(attempt)",
        "[stock.amount - 1, stock.product_id, stock.sale_id],",
    ]


def test_the_lock_to_copy_shows_its_hold_and_the_claim_of_its_fence() -> None:
    hold, claim = marked("redis")
    assert hold == "with seen(lock.hold(wait=settings.SHOP_LOCK_WAIT)) as lease:"
    assert claim.startswith('"UPDATE product SET fence = %s WHERE name = %s AND fence < %s')


def test_a_mark_whose_line_is_gone_is_an_error() -> None:
    with pytest.raises(LookupError, match="correct `marks` of the strategy"):
        blocks_of(replace(STRATEGIES["none"], marks=("stock = nowhere(attempt)",)))


def test_the_code_of_a_flawed_lock_has_the_lock_itself() -> None:
    blocks: list[Any] = Client().get("/strategies/setnx/code").json()["blocks"]
    files = {block["file"] for block in blocks}
    assert files == {"shop/strategies/setnx.py", "shop/sale/purchase.py"}
    assert Client().get("/strategies/nonsense/code").status_code == 400


@pytest.mark.parametrize("text", ["def buy(attempt):\n    return None\n", "def buy(attempt:\n"])
def test_a_file_of_ones_own_is_shown_without_marks_also_while_it_is_being_written(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "ex05.py"
    file.write_text(text)
    own, inside = blocks_of(replace(STRATEGIES["none"], name="mine", marks=(), path=str(file)))
    assert (own["lines"], own["marked"]) == (text.splitlines(), [])
    assert inside["lines"][0].startswith("def sell_one(")
