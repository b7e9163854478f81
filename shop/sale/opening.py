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

#: Milliseconds for which the close of a sale waits for purchases that hold the product's row.
LONGEST_CLOSE_MS = 20_000


class KeyHasOpened(Exception):
    """A sale with this Idempotency-Key exists; whatever this restock did is rolled back."""


@transaction.atomic(durable=True)
def restock(*, product: str, amount: int, lock: str | None = None, key: str | None = None) -> Sale:
    """Close the product's open sale, if there is one, and open a new one with `amount` units.

    Earlier sales and orders stay as they are. A product that does not exist yet is made. `lock`
    names the strategy that the units will be sold under: they are put where it sells them from.
    Without it that is the server's own, and in a demo, where each buyer chooses, the product's row.
    Raises KeyHasOpened if `key` has opened a sale before.
    """
    Product.objects.get_or_create(name=product)
    article = Product.objects.select_for_update().get(name=product)
    now = timezone.now()
    try:  # first: closing the old sale also changes Redis, which is not rolled back
        sale = Sale.objects.create(
            product=article, initial_stock=amount, opened_at=now, idempotency_key=key
        )
    except IntegrityError as error:
        if key is None:
            raise
        raise KeyHasOpened from error
    _close(article, article.sales.exclude(pk=sale.pk), now)
    article.sale = sale
    article.amount = amount
    article.save(update_fields=["sale", "amount"])
    if lock is None and not settings.SHOP_DEMO:
        lock = settings.SHOP_LOCK
    if lock:
        fill = STRATEGIES[lock].fill
        if fill is not None:
            fill(Stock(article.pk, sale.pk, amount))
    return sale


def restock_once(
    *, product: str, amount: int, lock: str | None = None, key: str | None
) -> tuple[Sale, bool]:
    """Open a sale, or return the sale that `key` has opened, and whether it had.

    Raises KeyReused if the key came with another product or stock.
    """
    try:
        return restock(product=product, amount=amount, lock=lock, key=key), False
    except KeyHasOpened:
        sale = Sale.objects.select_related("product").get(idempotency_key=key)
        if (sale.product.name, sale.initial_stock) != (product, amount):
            raise KeyReused from None
        return sale, True


@transaction.atomic(durable=True)
def close(*, product: str) -> None:
    """Close the product's open sale, if there is one: from its commit on nothing more is sold.

    Waits for purchases that have written, LONGEST_CLOSE_MS at most; all later ones are refused.
    Raises OperationalError when that was too short.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SET LOCAL lock_timeout = {LONGEST_CLOSE_MS}")
            cursor.execute(f"SET LOCAL statement_timeout = {LONGEST_CLOSE_MS}")
    article = Product.objects.select_for_update().filter(name=product).first()
    if article is None:
        return
    _close(article, article.sales.all(), timezone.now())
    article.sale = None
    article.save(update_fields=["sale", "amount"])


def _close(article: Product, sales: QuerySet[Sale], now: datetime) -> None:
    """Close those of these sales of a product that are open."""
    if article.sale_id is not None:
        ends = [strategy.close for strategy in STRATEGIES.values() if strategy.close]
        article.amount += sum(end(article.sale_id) for end in ends)
    sales.filter(closed_at__isnull=True).update(closed_at=now, final_stock=article.amount)
