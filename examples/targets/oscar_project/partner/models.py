"""The repair: an allocation has a condition, and an order without one is not placed."""

from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce
from oscar.apps.order.exceptions import UnableToPlaceOrder
from oscar.apps.partner.abstract_models import AbstractStockRecord


class StockRecord(AbstractStockRecord):  # type: ignore[misc]
    def allocate(self, quantity: int) -> Any:
        """Oscar's own allocation, after a statement that locks the row if this many units are free.

        Who waits for that lock checks the row as the one before left it. Raises UnableToPlaceOrder;
        Oscar places an order in one transaction, so nothing of it stays.
        """
        allocated = Coalesce(F("num_allocated"), 0)
        free = type(self).objects.filter(pk=self.pk, num_in_stock__gte=allocated + quantity)
        if self.can_track_allocations and not free.update(num_allocated=allocated):
            raise UnableToPlaceOrder("no unit is left")
        return super().allocate(quantity)


from oscar.apps.partner.models import *  # noqa: E402  # the models that are not registered yet
