"""A strategy from a file of one's own: read again after a save, and never a 500."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from shop.demo import mine
from shop.strategies import STRATEGIES
from shop.tests.till import books, buy, committed, open_sale

ROOT = Path(__file__).resolve().parents[3]
WORKS = """
from django.db import transaction
from shop.sale.purchase import sell_one

def buy(attempt):
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


def rewrite(path: Path, text: str) -> None:
    """Save, with a time of its own even where the file system's clock is coarse."""
    path.write_text(text)
    later = path.stat().st_mtime_ns + 10_000_000
    os.utime(path, ns=(later, later))


@committed
def test_it_sells_and_is_listed_and_its_code_is_shown(file: Path) -> None:
    open_sale(2)
    assert buy(lock="mine").status == 201
    assert books() == (1, 1)
    names = [each["name"] for each in Client().get("/strategies").json()["strategies"]]
    assert names[-1] == "mine"
    (own, *_) = Client().get("/strategies/mine/code").json()["blocks"]
    assert "    with transaction.atomic(durable=True):" in own["lines"]


@committed
def test_a_save_is_seen_without_a_restart(file: Path) -> None:
    open_sale(2)
    assert buy(lock="mine").status == 201
    rewrite(
        file, "from shop.errors import SoldOut\ndef buy(attempt):\n    raise SoldOut('closed')\n"
    )
    answer = buy(lock="mine")
    assert (answer.status, answer.body["error"]) == (409, "closed")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def buy(attempt:\n", "ex05.py: line 1: SyntaxError: '(' was never closed"),
        ("\n\nboom\n", "ex05.py: line 3: NameError: name 'boom' is not defined"),
        ("import sys\nsys.exit('enough')\n", "ex05.py: line 2: SystemExit: enough"),
        ("BUY = None\n", "ex05.py defines no buy(attempt)"),
        (
            "def buy(attempt):\n    return attempt.nothing\n",
            "ex05.py: line 2: AttributeError: 'Attempt' object has no attribute 'nothing'",
        ),
        ("def buy(attempt):\n    raise SystemExit\n", "ex05.py: line 2: SystemExit: "),
        ("def buy(attempt):\n    pass\n", "ex05.py: buy() returned None, not a Receipt"),
    ],
    ids=["syntax", "name", "exit", "no buy", "attribute", "exit in buy", "no receipt"],
)
@committed
def test_a_file_that_is_wrong_is_a_400_with_its_line(file: Path, text: str, error: str) -> None:
    open_sale(1)
    rewrite(file, text)
    answer = buy(lock="mine")
    assert (answer.status, answer.body["error"]) == (400, error)
    assert books() == (0, 1)
    rewrite(file, WORKS)
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
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import django; django.setup(); from shop.strategies import STRATEGIES;"
            "print(STRATEGIES['mine'].file)",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "SHOP_DEMO_STRATEGIES": f"mine={tmp_path}/ex05.py",
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{tmp_path}/ex05.py\n", done.stderr
