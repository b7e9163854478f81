"""One purchase in an event loop: shop/sale/checkout.py, and where each part runs."""

from __future__ import annotations

from django.conf import settings

from shop.sale import checkout, on_sale
from shop.sale.locked import sell_under
from shop.sale.points import apoint
from shop.sale.purchase import Attempt, Receipt
from shop.strategies import STRATEGIES
from shop.waiting import locked
from shop.waiting.lanes import Lanes
from shop.waiting_room import admitted

#: Backends of the strategies that wait for nobody but the database.
DATABASES = {"none", "postgresql"}


async def check_out(attempt: Attempt, *, address: str, lanes: Lanes) -> Receipt:
    """As `check_out` in a thread. A strategy that has no form for an event loop runs whole in
    one."""
    strategy = STRATEGIES[attempt.lock]
    selling = locked.under_redis_lock(strategy)
    if selling is None:
        lane = lanes.database if strategy.backend in DATABASES else lanes.others
        return await lane.run(checkout.check_out, attempt, address=address)
    with checkout.named_errors(attempt):
        if settings.BUY_RATE_LIMIT is not None or not on_sale.is_known(attempt.product):
            await lanes.database.run(_admit, attempt, address)
        with admitted(attempt.product):
            return await _buy(attempt, selling, lanes)


async def _buy(attempt: Attempt, selling: sell_under, lanes: Lanes) -> Receipt:
    await apoint("begins", lock=attempt.lock, product=attempt.product, sale=attempt.sale)
    try:
        return await locked.buy(attempt, selling, lanes.holders)
    except checkout.MAY_HAVE_BOUGHT as refusal:
        if attempt.key is None:
            raise
        return await lanes.database.run(_order_again, attempt, refusal)


def _admit(attempt: Attempt, address: str) -> None:
    with checkout.named_errors(attempt):  # in the thread whose connection has failed
        checkout.admit_attempt(attempt, address)


def _order_again(attempt: Attempt, refusal: Exception) -> Receipt:
    with checkout.named_errors(attempt):
        return checkout.order_again(attempt, refusal)
