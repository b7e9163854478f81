"""Sell one unit without a lock, by one conditional UPDATE.

The database alone is enough if the check of the stock and the decrement are one statement on one
row. Use checkout.py, which has a lock, if you must call another system between the check and the
decrement, for example for a payment. Without a lock, every other buyer of the product would then
wait in the database for the end of that call, and use a connection meanwhile.

Add the field `key` and the CHECK constraint of models.py to your own models. You need the field
`fence` only with a lock.
"""

from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.db.models import F

from examples.models import Order, Product


class SoldOut(Exception):
    """No unit is left, and none was bought with this key. Respond with status 409."""


class TryAgain(Exception):
    """The unit was not sold, or the outcome is unknown.

    Respond with status 503. A retry with the same key is safe.
    """


def buy(*, product: int, buyer: str, key: str) -> Order:
    """Sell one unit and return the order. A retry with the same key returns the same order.

    Raises:
        SoldOut: No unit is left, or there is no such product. The buyer has no earlier order of
            this product with this key.
        TryAgain: The unit was not sold, or the outcome is unknown. Retry with the same key.
        IntegrityError: A unit was left, but the key belongs to another purchase.
    """
    try:
        try:
            with transaction.atomic(durable=True):
                in_stock = Product.objects.filter(pk=product, amount__gt=0)
                if not in_stock.update(amount=F("amount") - 1):
                    raise SoldOut
                return Order.objects.create(product_id=product, buyer=buyer, key=key)
        except (SoldOut, IntegrityError):  # an earlier request may have succeeded
            order = Order.objects.filter(key=key, product=product, buyer=buyer).first()
            if order is None:
                raise
            return order
    except (OperationalError, InterfaceError) as error:
        raise TryAgain from error
