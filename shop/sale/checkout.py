"""One purchase from the outside: run the strategy, replay a key that has bought, name what failed.

The strategy's `buy` calls `sell_one`, the check and the decrement (shop/sale/purchase.py); one that
locks does so through shop/sale/locked.py. Only here an error of a backend becomes one of the shop.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from django.db import DatabaseError, InterfaceError, connection

from locks import LockBackendError, LockLost, LockTimeout, one_file
from shop.errors import (
    Busy,
    CommitUnknown,
    KeyReused,
    Lost,
    SaleOver,
    SoldOut,
    Unavailable,
)
from shop.ops.connections import discard_dead, is_gone
from shop.ops.throttle import admit
from shop.sale import waiting_room
from shop.sale.on_sale import require_on_sale
from shop.sale.points import point
from shop.sale.purchase import Attempt, KeyHasBought, Receipt
from shop.sale.strategy import STRATEGIES

logger = logging.getLogger("shop.sale.checkout")

#: PostgreSQL: lock_not_available, query_canceled (statement_timeout), idle in transaction.
TOOK_TOO_LONG = {"55P03", "57014", "25P03"}
#: A buyer who has a unit already finds the shelf empty, or the sale over, too.
MAY_HAVE_BOUGHT = (KeyHasBought, SoldOut, SaleOver)

# Everybody who comes too late asks this, as the shop is at its busiest: no query of the ORM.
BOUGHT = """
    SELECT id, sale_id, stock_seen, fingerprint FROM purchase_history WHERE idempotency_key = %s
"""


def check_out(attempt: Attempt) -> Receipt:
    """Sell one unit to one buyer, or say why not.

    A key that has bought gets its order again. Raises a ShopError; after any of them but
    CommitUnknown nothing was sold.
    """
    with named_errors(attempt), waiting_room.place(attempt.product):  # a repeat too
        admit_attempt(attempt)
        point("begins", lock=attempt.lock, product=attempt.product, sale=attempt.sale)
        try:
            return STRATEGIES[attempt.lock].buy(attempt)
        except MAY_HAVE_BOUGHT as refusal:
            return order_again(attempt, refusal)


def admit_attempt(attempt: Attempt) -> None:
    """Raises UnknownProduct, or Throttled, before the buyer waits for anything."""
    require_on_sale(attempt.product)
    admit(address=attempt.address)


def order_again(attempt: Attempt, refusal: Exception) -> Receipt:
    """The order that this attempt's key has bought before; if there is none, raises the refusal."""
    if attempt.key is None:
        raise refusal
    with connection.cursor() as cursor:
        cursor.execute(BOUGHT, [attempt.key])
        order = cursor.fetchone()
    if order is None:
        raise refusal
    order_id, sale_id, stock_seen, fingerprint = order
    if fingerprint != attempt.fingerprint:
        raise KeyReused
    return Receipt(order_id=order_id, sale_id=sale_id, stock_seen=stock_seen, replayed=True)


@contextmanager
def named_errors(attempt: Attempt) -> Iterator[None]:
    """Inside the block, an error of a backend becomes one of the shop."""
    try:
        yield
    except (LockTimeout, one_file.LockTimeout) as error:
        raise Busy from error
    except (LockLost, one_file.LockLost) as error:
        raise Lost from error
    except (LockBackendError, redis.RedisError) as error:
        logger.warning("%s: the lock's server: %s", attempt.lock, error.__cause__ or error)
        raise Unavailable("the lock's server does not answer; nothing was sold") from error
    except (DatabaseError, InterfaceError) as error:
        if getattr(error.__cause__, "sqlstate", None) in TOOK_TOO_LONG:
            raise Busy("the database was busy for too long; nothing was sold") from error
        if not is_gone(error):
            raise
        logger.warning("%s: PostgreSQL: %s", attempt.lock, error)
        discard_dead(error)
        if attempt.committing:
            raise CommitUnknown from error
        raise Unavailable("the database does not answer; nothing was sold") from error
