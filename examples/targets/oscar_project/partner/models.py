"""The repair of Oscar: an order is placed only if the stock has a unit that is not allocated."""

from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce
from oscar.apps.order.exceptions import UnableToPlaceOrder
from oscar.apps.partner.abstract_models import AbstractStockRecord


class StockRecord(AbstractStockRecord):  # type: ignore[misc]
    """Oscar's stock of a product, with a check when an order allocates units."""

    def allocate(self, quantity: int) -> Any:
        """Allocate `quantity` units as Oscar does, but only if that many units are free.

        An UPDATE checks this and locks the row. A concurrent buyer waits for the lock, and then
        checks the new row. Raises UnableToPlaceOrder if too few units are free. Oscar then rolls
        the whole order back.
        """
        allocated = Coalesce(F("num_allocated"), 0)
        row_with_free_units = type(self).objects.filter(
            pk=self.pk, num_in_stock__gte=allocated + quantity
        )
        # The UPDATE does not change the number. Oscar's own method, called below, adds `quantity`.
        if self.can_track_allocations and not row_with_free_units.update(num_allocated=allocated):
            raise UnableToPlaceOrder("no unit is left")
        return super().allocate(quantity)


from oscar.apps.partner.models import *  # noqa: E402  # the models that are not registered yet
