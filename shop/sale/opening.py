"""Opening and closing of a sale. `sell_one` in purchase.py sells its units."""

from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from shop.errors import KeyReused
from shop.models import Product, Sale
from shop.sale.purchase import Stock
from shop.sale.strategy import STRATEGIES

#: Time limit for closing a sale on PostgreSQL. The close waits for purchases that have locked the
#: product's row.
LONGEST_CLOSE_MS = 20_000


class SaleOfKeyExists(Exception):
    """A sale with this Idempotency-Key exists. All changes of this restock are rolled back."""


@transaction.atomic(durable=True)
def restock(*, product: str, amount: int, lock: str | None = None, key: str | None = None) -> Sale:
    """Close the product's open sale, if any, then open a sale of `amount` units and return it.

    The product is created if it does not exist. `lock` is the name of the strategy that will sell
    the units. If that strategy sells from its own rows, the units are moved to these rows. The
    default is SHOP_LOCK; a demo has no default, because each buyer chooses a strategy.

    Raises SaleOfKeyExists if a sale with this `key` exists, BadInput if the strategy cannot sell so
    many units, and Unavailable if the old sale cannot be closed in Redis.
    """
    Product.objects.get_or_create(name=product)
    product_row = Product.objects.select_for_update().get(name=product)
    now = timezone.now()
    try:
        # Open the new sale first. Closing the old sale changes Redis, and that change would not be
        # rolled back if the database refused the key.
        sale = Sale.objects.create(
            product=product_row, initial_stock=amount, opened_at=now, idempotency_key=key
        )
    except IntegrityError as error:
        if key is None:
            raise
        # No caller gives a negative `amount`, so the cause is that a sale with this key exists.
        raise SaleOfKeyExists from error
    _close_open_sales(product_row, product_row.sales.exclude(pk=sale.pk), now)
    product_row.sale = sale
    product_row.amount = amount
    product_row.save(update_fields=["sale", "amount"])
    if lock is None and not settings.SHOP_DEMO:
        lock = settings.SHOP_LOCK
    if lock:
        fill_own_rows = STRATEGIES[lock].fill_own_rows
        if fill_own_rows is not None:
            fill_own_rows(Stock(product_row.pk, sale.pk, amount))
    return sale


def restock_once(
    *, product: str, amount: int, lock: str | None = None, key: str | None
) -> tuple[Sale, bool]:
    """Open a sale, or find the sale that an earlier request with this `key` opened.

    Return the sale, and whether an earlier request opened it. Raises KeyReused if that request had
    another product or stock. Raises Unavailable and BadInput, as restock() does.
    """
    try:
        return restock(product=product, amount=amount, lock=lock, key=key), False
    except SaleOfKeyExists:
        sale = Sale.objects.select_related("product").get(idempotency_key=key)
        if (sale.product.name, sale.initial_stock) != (product, amount):
            raise KeyReused from None
        return sale, True


@transaction.atomic(durable=True)
def close_open_sale(*, product: str) -> None:
    """Close the product's open sale, if there is one. After the commit nothing more is sold.

    This waits for the purchases that have already written to the product's row: on PostgreSQL up to
    LONGEST_CLOSE_MS, on another database up to its lock timeout. Raises OperationalError if they
    take longer. Purchases that have not written yet are refused.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SET LOCAL lock_timeout = {LONGEST_CLOSE_MS}")
            cursor.execute(f"SET LOCAL statement_timeout = {LONGEST_CLOSE_MS}")
    product_row = Product.objects.select_for_update().filter(name=product).first()
    if product_row is None:
        return
    _close_open_sales(product_row, product_row.sales.all(), timezone.now())
    product_row.sale = None
    product_row.save(update_fields=["sale", "amount"])


def _close_open_sales(product_row: Product, sales: QuerySet[Sale], closed_at: datetime) -> None:
    """Close the sales of a product that are still open, at the time `closed_at`.

    sales  sales of this product; those that are closed already do not change

    Unsold units in a strategy's own rows, such as buckets, are moved back: they are added to
    `product_row.amount`, which the caller saves.
    """
    if product_row.sale_id is not None:
        for strategy in STRATEGIES.values():
            if strategy.close_sale is not None:
                product_row.amount += strategy.close_sale(product_row.sale_id)
    sales.filter(closed_at__isnull=True).update(closed_at=closed_at, final_stock=product_row.amount)
