"""A whole purchase: run the strategy, and answer a repeated request with its earlier order.

The strategy's `buy` acquires its lock, if it has one, and calls `sell_one`, which checks and
decrements the stock (shop/sale/purchase.py). If the strategy does not handle an error of a server,
check_out() turns the error into an error of the shop.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from django.db import DatabaseError, InterfaceError, connection

from locks import LockBackendError, one_file
from shop.errors import (
    CommitUnknown,
    KeyReused,
    LockBusy,
    Lost,
    SaleOver,
    SoldOut,
    Unavailable,
    UnknownProduct,
    WrongStrategy,
)
from shop.ops.connections import discard_dead_connections
from shop.ops.database import is_busy_error, is_connection_lost
from shop.sale import waiting_room
from shop.sale.known_products import require_existing_product
from shop.sale.points import point_reached
from shop.sale.purchase import Attempt, KeyHasBought, Receipt
from shop.sale.strategy import STRATEGIES

logger = logging.getLogger("shop.sale.checkout")

#: Refusals after which the order of the attempt's Idempotency-Key is looked up. The attempt may be
#: a repeated request whose order exists; since its first request the units may have been sold, the
#: sale closed, or the shop's strategy changed.
REPLAYABLE_REFUSALS = (KeyHasBought, SoldOut, SaleOver, UnknownProduct, WrongStrategy)

# Written in SQL for speed: every late buyer runs this query when the shop is busiest.
SELECT_ORDER_OF_KEY = """
    SELECT id, sale_id, stock_seen, fingerprint FROM purchase_history WHERE idempotency_key = %s
"""


def check_out(attempt: Attempt) -> Receipt:
    """Sell one unit to one buyer, and return the receipt.

    If the attempt's Idempotency-Key already has an order, return the receipt of that order.

    Raises a ShopError. After CommitUnknown a unit may have been sold, after any other ShopError
    nothing was sold. A DatabaseError that is neither an outage nor a conflict shows a defect, and
    is not turned into a ShopError.
    """
    with translate_errors(attempt), waiting_room.occupy_seat(attempt.product):
        require_existing_product(attempt.product)
        point_reached.send("begins", lock=attempt.lock, product=attempt.product, sale=attempt.sale)
        try:
            # In production the strategy is SHOP_LOCK, by default shop/strategies/redis.py.
            return STRATEGIES[attempt.lock].buy(attempt)
        except REPLAYABLE_REFUSALS as refusal:
            return find_earlier_order(attempt, refusal)


def find_earlier_order(attempt: Attempt, refusal: Exception) -> Receipt:
    """Return the receipt of the order that the attempt's key already has.

    Raises `refusal` if the key has no order, and KeyReused if a different request placed the order.
    """
    if attempt.key is None:
        raise refusal
    with connection.cursor() as cursor:
        cursor.execute(SELECT_ORDER_OF_KEY, [attempt.key])
        order = cursor.fetchone()
    if order is None:
        raise refusal
    order_id, sale_id, stock_seen, fingerprint = order
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return Receipt(order_id=order_id, sale_id=sale_id, stock_seen=stock_seen, replayed=True)


@contextmanager
def translate_errors(attempt: Attempt) -> Iterator[None]:
    """Turn an error of a lock, its server or the database inside the block into a ShopError.

    A DatabaseError that is neither an outage nor a conflict shows a defect, and is not turned into
    a ShopError.
    """
    try:
        yield
    # LockTimeout and LockLost of `locks` are subclasses of these, so they are caught, too.
    except one_file.LockTimeout as error:
        raise LockBusy from error
    except one_file.LockLost as error:
        raise Lost from error
    except (LockBackendError, redis.RedisError) as error:
        logger.warning("%s: the lock's server: %s", attempt.lock, error.__cause__ or error)
        raise Unavailable(
            "the lock's server does not answer; nothing was sold: retry with the same key"
        ) from error
    except (DatabaseError, InterfaceError) as error:
        if is_busy_error(error):
            raise LockBusy(
                "the database was busy for too long; nothing was sold: retry with the same key"
            ) from error
        if not is_connection_lost(error):  # a defect
            raise
        logger.warning("%s: the database: %s", attempt.lock, error)
        discard_dead_connections(error)
        if attempt.may_have_committed:
            raise CommitUnknown from error
        raise Unavailable(
            "the database does not answer; nothing was sold: retry with the same key"
        ) from error
