"""The code that the page shows: decisive lines marked, hooks left out."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from shop.demo import source
from shop.demo.source import MARKS, critical_section
from shop.strategies import STRATEGIES


def marked(name: str) -> list[str]:
    blocks = critical_section(STRATEGIES[name])
    return [block["lines"][n].strip() for block in blocks for n in block["marked"]]


def test_every_strategy_has_its_decisive_lines() -> None:
    assert list(MARKS) == list(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_marked_lines_come_first_and_no_hook_stands_between_them(name: str) -> None:
    blocks = critical_section(STRATEGIES[name])
    assert 1 <= len(marked(name)) == len(MARKS[name]) <= 2
    has_marks = [bool(block["marked"]) for block in blocks]
    assert has_marks == sorted(has_marks, reverse=True)
    shown = "\n".join(line for block in blocks for line in block["lines"])
    for noise in ("point(", "note(", "STRATEGY", "\nimport ", '"""Check, hold', ".committing ="):
        assert noise not in shown, noise
    for block in blocks:
        ast.parse("\n".join(block["lines"]))  # still Python, indented from the margin


def test_without_a_lock_the_write_of_a_stale_value_is_shown() -> None:
    assert marked("none") == [
        "stock = read(attempt)",
        "[stock.amount - 1, stock.product_id, stock.sale_id],",
    ]


def test_the_lock_to_copy_shows_its_hold_and_the_claim_of_its_fence() -> None:
    hold, claim = marked("redis")
    assert hold == "with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:"
    assert claim.startswith("UPDATE product SET fence = %s WHERE name = %s AND fence < %s")


def test_of_the_hold_the_idea_is_left_and_its_body_moved_out_of_the_try() -> None:
    held = critical_section(STRATEGIES["redis"])[0]["lines"]
    assert held == [
        "def held(lock, *, even_inside_a_transaction):",
        "    with lock.hold(wait=settings.SHOP_LOCK_WAIT) as lease:",
        "        yield lease",
    ]


def test_a_mark_whose_line_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source.MARKS, "none", ("stock = nowhere(attempt)",))
    with pytest.raises(LookupError, match=r"correct MARKS in shop/demo/source\.py"):
        critical_section(STRATEGIES["none"])


def test_the_code_of_a_flawed_lock_has_the_lock_itself() -> None:
    blocks: list[Any] = Client().get("/strategies/setnx/code").json()["blocks"]
    assert {block["file"] for block in blocks} == {
        "locks/classic/setnx.py",
        "shop/sale/purchase.py",
    }
    assert Client().get("/strategies/nonsense/code").status_code == 400


@pytest.mark.parametrize("text", ["def buy(attempt):\n    return None\n", "def buy(attempt:\n"])
def test_a_file_of_ones_own_is_shown_without_marks_also_while_it_is_being_written(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "ex05.py"
    file.write_text(text)
    own, inside = critical_section(replace(STRATEGIES["none"], name="mine", path=str(file)))
    assert (own["lines"], own["marked"]) == (text.splitlines(), [])
    assert inside["lines"][0].startswith("def sell_one(")
