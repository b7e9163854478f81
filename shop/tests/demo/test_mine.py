"""A strategy from a file of one's own: read again after a save, and never a 500; and the code that
the page shows."""

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

from shop.demo import mine
from shop.demo.code import blocks_of
from shop.sale.fences import claim, sell_fenced
from shop.sale.locked import held
from shop.sale.purchase import sell_one
from shop.strategies import STRATEGIES
from shop.tests.node import run
from shop.tests.till import books, buy, committed, open_sale

WORKS = """
from django.db import transaction
from shop.sale.purchase import sell_one

def buy(attempt: Attempt) -> Receipt:  # names that it does not import
    with transaction.atomic(durable=True):
        return sell_one(attempt)
"""


@pytest.fixture
def file(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    path = tmp_path / "ex05.py"
    path.write_text(WORKS)
    settings.SHOP_DEMO_STRATEGIES = {"mine": str(path)}
    mine.install()
    yield path
    STRATEGIES.pop("mine", None)


@committed
def test_it_sells_and_is_listed(file: Path) -> None:
    open_sale(2)
    assert buy(lock="mine").status == 201
    assert books() == (1, 1)
    names = [each["name"] for each in Client().get("/strategies").json()["strategies"]]
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
def test_a_file_that_is_wrong_is_a_400_with_its_line(file: Path, text: str, error: str) -> None:
    open_sale(1)
    file.write_text(text)
    answer = buy(lock="mine")
    assert (answer.status, answer.body["error"]) == (400, error)
    assert books() == (0, 1)
    file.write_text(WORKS)
    assert buy(lock="mine").status == 201, "and the next save works"


@committed
def test_a_file_that_is_gone_or_no_text_is_a_400(file: Path) -> None:
    open_sale(1)
    file.write_bytes(b"\xff\xfe")
    assert "ex05.py cannot be read" in buy(lock="mine").body["error"]
    file.unlink()
    answer = buy(lock="mine")
    assert (answer.status, "ex05.py cannot be read" in answer.body["error"]) == (400, True)


def test_outside_a_demo_the_setting_does_nothing(tmp_path: Path, settings: Settings) -> None:
    settings.SHOP_DEMO = False
    settings.SHOP_DEMO_STRATEGIES = {"mine": str(tmp_path / "ex05.py")}
    mine.install()
    assert "mine" not in STRATEGIES


def test_the_environment_names_the_files(tmp_path: Path) -> None:
    show = "from shop.strategies import STRATEGIES; print(STRATEGIES['mine'].file)"
    given = {"SHOP_DEMO": "1", "SHOP_DEMO_STRATEGIES": f"mine={tmp_path}/ex05.py"}
    done = run("-c", f"import django; django.setup(); {show}", **given)
    assert done.stdout == f"{tmp_path}/ex05.py\n", done.stderr


# --- the code that the page shows: the file as it stands, its decisive lines marked ---------------


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
