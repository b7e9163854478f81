"""A strategy from the user's own file, and the source code of strategies that the page shows.

A strategy is a way to guard the stock during a purchase.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from pytest_django import Settings

from demo import own_strategies
from demo.source import read_source_blocks
from shop.sale.fences import claim_fence_and_read_stock
from shop.sale.locked import hold_lock
from shop.sale.purchase import sell_one
from shop.strategies import STRATEGIES
from shop.tests.node import run_python
from shop.tests.purchases import buy, committed, count_orders_and_stock, open_sale

CORRECT_SOURCE = """
from django.db import transaction
from shop.sale.purchase import sell_one

def buy(attempt: Attempt) -> Receipt:  # this file does not import Attempt and Receipt
    with transaction.atomic(durable=True):
        return sell_one(attempt)
"""


@pytest.fixture
def own_file(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """The user's own file, with a correct `buy`, installed as the strategy `mine`."""
    path = tmp_path / "ex05.py"
    path.write_text(CORRECT_SOURCE)
    settings.SHOP_DEMO_STRATEGIES = {"mine": str(path)}
    own_strategies.add_own_strategies()
    yield path
    STRATEGIES.pop("mine", None)


@committed
def test_own_strategy_sells_and_is_listed(own_file: Path) -> None:
    """A strategy from the user's own file comes last in the list of strategies."""
    open_sale(2)
    assert buy(lock="mine").status == 201
    assert count_orders_and_stock() == (1, 1)
    strategies = Client().get("/strategies").json()["strategies"]
    names = [strategy["name"] for strategy in strategies]
    assert names[-1] == "mine"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def buy(attempt:\n", "ex05.py: line 1: SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit('enough')\n", "ex05.py: line 2: SystemExit: enough"),
        ("BUY = None\n", "ex05.py defines no buy(attempt)"),
        (
            "def buy(attempt):\n    return attempt.nothing\n",
            "ex05.py: line 2: AttributeError: 'Attempt' object has no attribute 'nothing'",
        ),
        ("def buy(attempt):\n    raise SystemExit\n", "ex05.py: line 2: SystemExit: "),
        ("def buy(attempt):\n    pass\n", "ex05.py: buy() returned None, not a Receipt"),
    ],
    ids=["syntax", "exit", "no buy", "attribute", "exit in buy", "no receipt"],
)
@committed
def test_mistake_in_the_file_is_400_with_its_line(own_file: Path, text: str, error: str) -> None:
    """The reply contains the name of the file, the line that failed, and the error.

    There is no line if `buy` is missing, or returns something other than a receipt.
    """
    open_sale(1)
    own_file.write_text(text)
    reply = buy(lock="mine")
    assert (reply.status, reply.body["error"]) == (400, error)
    assert count_orders_and_stock() == (0, 1)
    own_file.write_text(CORRECT_SOURCE)
    assert buy(lock="mine").status == 201, "the corrected file works without a restart"


@committed
def test_syntax_error_of_an_imported_module_names_the_import(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error begins with the line of the import in the user's file.

    The message that follows has the line of the syntax error in the imported module.
    """
    open_sale(1)
    monkeypatch.syspath_prepend(str(own_file.parent))
    (own_file.parent / "broken_helper.py").write_text("\n\nx = (\n")
    own_file.write_text("import broken_helper\n")
    error = buy(lock="mine").body["error"]
    assert error.startswith("ex05.py: line 1: SyntaxError: ")
    assert "broken_helper.py, line 3" in error


@committed
def test_unreadable_file_is_400(own_file: Path) -> None:
    """The buyer gets the reason: the file is not UTF-8, or was deleted."""
    open_sale(1)
    own_file.write_bytes(b"\xff\xfe")
    assert "ex05.py cannot be read" in buy(lock="mine").body["error"]
    own_file.unlink()
    reply = buy(lock="mine")
    assert reply.status == 400
    assert "ex05.py cannot be read" in reply.body["error"]


def test_environment_variable_sets_the_file_of_a_strategy(tmp_path: Path) -> None:
    """SHOP_DEMO_STRATEGIES contains the name of each strategy and the path of its file."""
    print_file = "from shop.strategies import STRATEGIES; print(STRATEGIES['mine'].file)"
    environment = {"SHOP_DEMO": "1", "SHOP_DEMO_STRATEGIES": f"mine={tmp_path}/ex05.py"}
    completed = run_python("-c", f"import django; django.setup(); {print_file}", **environment)
    assert completed.stdout == f"{tmp_path}/ex05.py\n", completed.stderr


# --- the code that the page shows, with its decisive lines marked ---------------------------------


def read_marked_lines(name: str) -> list[str]:
    """Return the lines that the page highlights in the source code of a strategy."""
    blocks = read_source_blocks(STRATEGIES[name])
    return [block["lines"][number].strip() for block in blocks for number in block["marked"]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_marks_of_every_strategy_are_in_its_source(name: str) -> None:
    """A strategy has one or two texts in `highlights`. The page marks one line for each of them.

    Each block of code on the page is a part of its file.
    """
    highlights = STRATEGIES[name].highlights
    assert len(highlights) in {1, 2}
    assert len(read_marked_lines(name)) == len(highlights)
    for block in read_source_blocks(STRATEGIES[name]):
        code = "\n".join(block["lines"])
        ast.parse(code)  # every block is valid Python: a method is shown without its indent
        assert code in read_source(block)


def read_source(block: dict[str, Any]) -> str:
    """Return the text of a block's file, in which its code must occur.

    A block may show a method without its indent. So the text is the file as it is, followed by
    the file with one indent less.
    """
    text = Path(settings.BASE_DIR, block["file"]).read_text()
    return text + re.sub(r"^    ", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("function", [hold_lock, sell_one, claim_fence_and_read_stock])
def test_shown_function_has_at_most_one_point(function: Callable[..., Any]) -> None:
    """At a point, `point_reached.send(...)`, a purchase reports its progress to the demo.

    The page shows the source of these functions. More than one such line would distract from what
    they do.
    """
    code = inspect.getsource(inspect.unwrap(function))
    assert len(re.findall(r"\b(?:point_reached\.send|reach_point_async)\(", code)) <= 1


def test_mark_that_no_line_contains_is_an_error() -> None:
    """`highlights` has a part of each line that the page highlights. Here no line contains it."""
    with pytest.raises(LookupError, match="correct `highlights` of the strategy"):
        read_source_blocks(replace(STRATEGIES["none"], highlights=("stock = nowhere(attempt)",)))


def test_source_of_a_flawed_lock_includes_the_lock() -> None:
    """The page shows the strategy's own file, which has the lock, and sell_one() of purchase.py."""
    blocks: list[Any] = Client().get("/strategies/setnx/code").json()["blocks"]
    files = {block["file"] for block in blocks}
    assert files == {"shop/strategies/setnx.py", "shop/sale/purchase.py"}
    assert Client().get("/strategies/nonsense/code").status_code == 400


@pytest.mark.parametrize("text", ["def buy(attempt):\n    return None\n", "def buy(attempt:\n"])
def test_own_file_is_shown_without_marks(text: str, tmp_path: Path) -> None:
    """The user's own file is shown as it is, even if Python cannot load it."""
    own_file = tmp_path / "ex05.py"
    own_file.write_text(text)
    own_block, shared_block = read_source_blocks(
        replace(STRATEGIES["none"], name="mine", highlights=(), path=str(own_file))
    )
    assert (own_block["lines"], own_block["marked"]) == (text.splitlines(), [])
    assert shared_block["lines"][0].startswith("def sell_one(")
