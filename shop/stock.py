"""Opening a sale, and closing it."""

from __future__ import annotations

from django.db import connection, transaction
from django.utils import timezone

from shop.models import Product, Sale

#: Milliseconds for which the close of a sale waits for purchases that hold the product's row.
LONGEST_CLOSE_MS = 20_000


@transaction.atomic(durable=True)
def restock(*, product: str, amount: int) -> Sale:
    """Close the product's open sale, if there is one, and open a new one with `amount` units.

    Sales and orders of before stay as they are. A product that does not exist yet is made.
    """
    Product.objects.get_or_create(name=product)
    article = Product.objects.select_for_update().get(name=product)
    _close(article)
    sale = Sale.objects.create(product=article, initial_stock=amount)
    article.sale = sale
    article.amount = amount
    article.save(update_fields=["sale", "amount"])
    return sale


@transaction.atomic(durable=True)
def close(*, product: str) -> None:
    """Close the product's open sale, if there is one: from its commit on nothing more is sold.

    A purchase that has written is waited for, LONGEST_CLOSE_MS at most; one that has not is refused.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {LONGEST_CLOSE_MS}")
        cursor.execute(f"SET LOCAL statement_timeout = {LONGEST_CLOSE_MS}")
    article = Product.objects.select_for_update().filter(name=product).first()
    if article is None:
        return
    _close(article)
    article.sale = None
    article.save(update_fields=["sale"])


def _close(article: Product) -> None:
    still_open = article.sales.filter(closed_at__isnull=True)
    still_open.update(closed_at=timezone.now(), final_stock=article.amount)
