"""Compares what was promised with what is written, and changes nothing.

Redis knows what it has not lost. The nodes' access logs name the orders that buyers were answered:
with them, what Redis has lost is found too.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction

from shop.models import Product, Sale
from shop.reserve.promises import promised

#: An answer `sold` in a line of the access log, as text or as JSON.
SOLD = re.compile(r"outcome(?:=|\"?: ?\")sold\b")
NUMBER = r"\b{}(?:=|\"?: ?)([0-9]+)\b"
ORDER, OF_SALE = re.compile(NUMBER.format("order")), re.compile(NUMBER.format("sale"))


@dataclass(frozen=True, slots=True)
class Balance:
    """One sale, at one moment.

    left          units that PostgreSQL has left
    sellable      units that Redis may still promise; None where it does not sell this sale now
    unsettled     promises on the stream whose order is not written
    not_kept      orders that buyers were answered, and that neither PostgreSQL nor the stream has
    """

    sale: int
    left: int
    sellable: int | None
    unsettled: int
    not_kept: tuple[int, ...] = ()

    @property
    def undersold(self) -> int:
        """Units that nobody has and Redis does not sell."""
        return 0 if self.sellable is None else max(0, self.left - self.unsettled - self.sellable)

    @property
    def overpromised(self) -> int:
        """Units that Redis has promised or may promise, and PostgreSQL does not have."""
        return max(0, self.unsettled + (self.sellable or 0) - self.left)


def answered(lines: Iterable[str], sale: int) -> set[int]:
    """The orders of this sale that lines of the access log say were answered `sold`."""
    found = set()
    for line in lines:
        order, of_sale = ORDER.search(line), OF_SALE.search(line)
        if SOLD.search(line) and order and of_sale and int(of_sale[1]) == sale:
            found.add(int(order[1]))
    return found


@transaction.atomic(durable=True)
def reconcile(sale: Sale, *, answers: Iterable[str] = ()) -> Balance:
    """Compare one sale in Redis with PostgreSQL; while its product's row is locked nothing of it is
    settled. Returns what was found.

    answers  lines of the nodes' access logs

    Raises redis.RedisError.
    """
    product = Product.objects.select_for_update().get(pk=sale.product_id)
    sale.refresh_from_db()
    sellable, waiting = promised(sale.pk)
    told = answered(answers, sale.pk)
    numbers = told | {promise.order for promise in waiting}
    written = set(sale.orders.filter(pk__in=numbers).values_list("pk", flat=True))
    unsettled = {promise.order for promise in waiting} - written
    return Balance(
        sale=sale.pk,
        left=product.amount if sale.final_stock is None else sale.final_stock,
        sellable=sellable,
        unsettled=len(unsettled),
        not_kept=tuple(sorted(told - written - unsettled)),
    )
