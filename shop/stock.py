"""Opening a sale."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from shop.models import Product, Sale


@transaction.atomic(durable=True)
def restock(*, product: str, amount: int) -> Sale:
    """Close the product's open sale, if there is one, and open a new one with `amount` units.

    Sales and orders of before stay as they are. A product that does not exist yet is made.
    """
    Product.objects.get_or_create(name=product)
    article = Product.objects.select_for_update().get(name=product)
    now = timezone.now()
    article.sales.filter(closed_at__isnull=True).update(closed_at=now, final_stock=article.amount)
    sale = Sale.objects.create(product=article, initial_stock=amount, opened_at=now)
    article.sale = sale
    article.amount = amount
    article.save(update_fields=["sale", "amount"])
    return sale
