"""The same without a lock: one conditional UPDATE, when the database alone is enough.

It is enough where check and decrement are one statement on one row. It is not where something else
has to happen between them, in another system or over seconds: then see checkout.py.
"""

from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.db.models import F

from examples.models import Order, Product


class SoldOut(Exception):
    """No unit is left, and this key has bought none. Answer 409."""


class TryAgain(Exception):
    """Not sold, or nobody knows. Answer 503: asking again with the same key is safe."""


def buy(*, product: int, buyer: str, key: str) -> Order:
    """Sell one unit; the same key gets the same order again. Raises SoldOut and TryAgain,
    IntegrityError for a key that bought something else."""
    try:
        with transaction.atomic(durable=True):
            on_the_shelf = Product.objects.filter(pk=product, amount__gt=0)
            if not on_the_shelf.update(amount=F("amount") - 1):
                raise SoldOut
            return Order.objects.create(product_id=product, buyer=buyer, key=key)
    except (SoldOut, IntegrityError):
        order = Order.objects.filter(key=key, product=product, buyer=buyer).first()
        if order is None:
            raise
        return order
    except (OperationalError, InterfaceError) as error:
        raise TryAgain from error
