"""What each request asks for: its parameters by name, each within its bounds."""

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from shop.api.parameters import (
    LARGEST_ID,
    LARGEST_STOCK,
    PRODUCT_NAME,
    integer_of,
    parameters_of,
    text_of,
)
from shop.errors import BadInput
from shop.sale.purchase import Attempt
from shop.sale.strategy import STRATEGIES

#: The product that a request means when it names none: A1's own.
DEMO_PRODUCT = "apple"
KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
#: Orders in one answer at most.
LONGEST_PAGE = 1_000


def parse_attempt(request: HttpRequest) -> Attempt:
    """The purchase that the request asks for. Raises BadInput, naming what is allowed."""
    given = parameters_of(request, {"product", "lock", "buyer", "hold_ms", "sale"})
    lock = _lock(given)
    buyer = text_of(given, "buyer", default="")
    if not 1 <= len(buyer) <= 255 or not buyer.isprintable():
        wrong = "bad buyer" if buyer else "buyer is missing: say who buys"
        raise BadInput(wrong, allowed=["1 to 255 printable characters"])
    key = request.headers.get("Idempotency-Key")
    if key is not None and not KEY.match(key):
        raise BadInput("bad Idempotency-Key", allowed=["1 to 255 printable ASCII characters"])
    request.META["shop.lock"] = lock  # for its line in the log
    return Attempt(
        product=parse_product(given),
        buyer=buyer,
        lock=lock,
        hold=_hold_ms(given) / 1000,
        key=key,
        sale=_sale(given),
    )


def parse_restock(request: HttpRequest) -> tuple[str, int, str]:
    """The product and the stock of a new sale, and the strategy that will sell it."""
    given = parameters_of(request, {"product", "stock", "lock"})
    stock = integer_of(given, "stock", default=None, least=0, most=LARGEST_STOCK)
    return parse_product(given), stock, _lock(given)


def parse_product(given: Mapping[str, Any]) -> str:
    name = text_of(given, "product", default=DEMO_PRODUCT)
    if not PRODUCT_NAME.match(name):
        raise BadInput("bad product name", allowed=["1 to 64 letters, digits, - and _"])
    return name


def parse_buyers(request: HttpRequest) -> int | None:
    """How many buyers a report should count with, if it was asked to."""
    given = parameters_of(request, {"buyers", "product"})
    if "buyers" not in given:
        return None
    return integer_of(given, "buyers", default=None, least=0, most=LARGEST_STOCK)


def parse_page(request: HttpRequest) -> tuple[int, int]:
    """Which orders are asked for: those after this number, and how many at most."""
    given = parameters_of(request, {"after", "limit"})
    after = integer_of(given, "after", default=0, least=0, most=LARGEST_ID)
    limit = integer_of(given, "limit", default=LONGEST_PAGE, least=1, most=LONGEST_PAGE)
    return after, limit


def _lock(given: Mapping[str, Any]) -> str:
    """The strategy to sell under: the buyer's choice in a demo, the server's everywhere else."""
    if settings.SHOP_DEMO:
        lock = text_of(given, "lock", default="none")
        if lock not in STRATEGIES:
            raise BadInput(f"unknown lock {lock[:64]!r}", allowed=STRATEGIES)
        return lock
    if text_of(given, "lock", default=settings.SHOP_LOCK) != settings.SHOP_LOCK:
        raise BadInput(
            "the server chooses the lock: leave it out, or name its own",
            allowed=[settings.SHOP_LOCK],
        )
    return settings.SHOP_LOCK


def _hold_ms(given: Mapping[str, Any]) -> int:
    hold = integer_of(given, "hold_ms", default=0, least=0, most=settings.SHOP_LONGEST_HOLD_MS)
    if "hold_ms" in given and not settings.SHOP_DEMO:
        raise BadInput("hold_ms works in a demo only: start the shop with SHOP_DEMO=1")
    return hold


def _sale(given: Mapping[str, Any]) -> int | None:
    if "sale" not in given:
        return None
    return integer_of(given, "sale", default=None, least=1, most=LARGEST_ID)
