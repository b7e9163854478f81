"""Wishes that the shop cannot fulfil: refused by name, with what is allowed, and nothing sold."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from shop.strategies import STRATEGIES
from shop.tests.till import ask, books, buy, open_sale, rolled_back

pytestmark = rolled_back

PARAMETERS = ["buyer", "hold_ms", "lock", "product", "sale"]
HOLD = ["a whole number from 0 to 5000"]
SALE = [f"a whole number from 1 to {2**63 - 1}"]
BUYER = ["1 to 255 printable characters"]
PRODUCT = ["1 to 64 letters, digits, - and _"]
LOCKS = list(STRATEGIES)

#: what is sent as JSON, beside a valid buyer; status; the error; what is allowed
BAD_WISHES: list[tuple[dict[str, Any], int, str, list[str] | None]] = [
    ({"lock": "redlock9"}, 400, "unknown lock 'redlock9'", LOCKS),
    ({"lock": ""}, 400, "unknown lock ''", LOCKS),
    ({"lock": "x" * 999}, 400, f"unknown lock '{'x' * 64}'", LOCKS),
    ({"lock": "re\0dis"}, 400, r"unknown lock 're\x00dis'", LOCKS),
    ({"lock": "\ud800"}, 400, r"unknown lock '\ud800'", LOCKS),
    ({"lock": None}, 400, "lock is not a text: None", ["a text"]),
    ({"lock": ["redis"]}, 400, "lock is not a text: ['redis']", ["a text"]),
    (
        {"product": "pear"},
        404,
        "There is no such product. Open a sale for it with POST /restock.",
        None,
    ),
    ({"product": ""}, 400, "bad product name", PRODUCT),
    ({"product": "a" * 65}, 400, "bad product name", PRODUCT),
    ({"product": "apple\n"}, 400, "bad product name", PRODUCT),
    ({"product": "apple\0"}, 400, "bad product name", PRODUCT),
    ({"product": "\udfff"}, 400, "bad product name", PRODUCT),
    ({"product": "äpfel"}, 400, "bad product name", PRODUCT),
    ({"product": 1}, 400, "product is not a text: 1", ["a text"]),
    ({"product": {"name": "apple"}}, 400, "product is not a text: {'name': 'apple'}", ["a text"]),
    ({"buyer": ""}, 400, "buyer is missing: say who buys", BUYER),
    ({"buyer": "b" * 256}, 400, "bad buyer", BUYER),
    ({"buyer": "a\0b"}, 400, "bad buyer", BUYER),
    ({"buyer": "\ud800"}, 400, "bad buyer", BUYER),
    ({"buyer": "a\nb"}, 400, "bad buyer", BUYER),
    ({"buyer": True}, 400, "buyer is not a text: True", ["a text"]),
    ({"hold_ms": -1}, 400, "bad hold_ms: -1", HOLD),
    ({"hold_ms": "-1"}, 400, "bad hold_ms: -1", HOLD),
    ({"hold_ms": 5001}, 400, "bad hold_ms: 5001", HOLD),
    ({"hold_ms": 10**18}, 400, f"bad hold_ms: {10**18}", HOLD),
    ({"hold_ms": "9" * 400}, 400, f"bad hold_ms: '{'9' * 60}...", HOLD),
    ({"hold_ms": "soon"}, 400, "bad hold_ms: 'soon'", HOLD),
    ({"hold_ms": ""}, 400, "bad hold_ms: ''", HOLD),
    ({"hold_ms": "\u0661"}, 400, "bad hold_ms: '\u0661'", HOLD),
    ({"hold_ms": 1.5}, 400, "bad hold_ms: 1.5", HOLD),
    ({"hold_ms": float("nan")}, 400, "bad hold_ms: nan", HOLD),
    ({"hold_ms": float("inf")}, 400, "bad hold_ms: inf", HOLD),
    ({"hold_ms": True}, 400, "bad hold_ms: True", HOLD),
    ({"hold_ms": None}, 400, "bad hold_ms: None", HOLD),
    ({"hold_ms": [1]}, 400, "bad hold_ms: [1]", HOLD),
    ({"sale": 0}, 400, "bad sale: 0", SALE),
    ({"sale": "next"}, 400, "bad sale: 'next'", SALE),
    ({"sale": None}, 400, "bad sale: None", SALE),
    ({"sale": 2**63}, 400, f"bad sale: {2**63}", SALE),
    ({"lok": "redis"}, 400, "unknown parameter: lok", PARAMETERS),
    ({"b": 1, "a\0": 2}, 400, "unknown parameter: a\0, b", PARAMETERS),
    ({"\ud800": 1}, 400, "unknown parameter: \ud800", PARAMETERS),
]


@pytest.mark.parametrize(
    ("wish", "status", "error", "allowed"), BAD_WISHES, ids=[str(w[0])[:30] for w in BAD_WISHES]
)
def test_a_wish_that_cannot_be_is_refused_by_name_with_what_is_allowed(
    wish: dict[str, Any], status: int, error: str, allowed: list[str] | None
) -> None:
    open_sale(1)
    answer = ask({"buyer": "ada", "lock": "redis", **wish})
    named = {} if allowed is None else {"allowed": allowed}
    assert answer.status == status
    assert answer.body == {"outcome": "error", "error": error, **named}
    assert "Retry-After" not in answer.headers
    assert books() == (0, 1)


@pytest.mark.parametrize("key", ["", "two words", "k" * 256, "näh", "a\0b", "a\tb"])
def test_a_bad_idempotency_key_is_400(key: str) -> None:
    open_sale(1)
    answer = buy(key=key)
    assert answer.status == 400
    assert answer.body == {
        "outcome": "error",
        "error": "bad Idempotency-Key",
        "allowed": ["1 to 255 printable ASCII characters"],
    }
    assert books() == (0, 1)


def test_hold_ms_outside_a_demo_is_refused_with_what_to_do(settings: Settings) -> None:
    open_sale(1)
    settings.SHOP_DEMO = False
    answer = buy(hold_ms=0)
    assert answer.status == 400
    assert answer.body == {
        "outcome": "error",
        "error": "hold_ms works in a demo only: start the shop with SHOP_DEMO=1",
    }
    assert books() == (0, 1)
