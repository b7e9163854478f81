"""The figures of a sale, counted from its orders and never from a negative stock."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from shop.errors import ShopError
from shop.models import PurchaseHistory, Sale
from shop.sale.strategy import STRATEGIES


class UnknownSale(ShopError):
    text = "There is no such sale. Open one with POST /restock or manage.py restock."
    status = 404


#: The promises of a sale where Redis was not asked or did not answer.
UNKNOWN = dict.fromkeys(("settled", "unsettled", "broken_promises", "settlement_lag_ms"))


@dataclass(frozen=True, slots=True)
class SaleReport:
    """One sale in numbers of units.

    oversold      orders beyond the initial stock
    undersold     units that buyers were refused though there was stock; None where the number of
                  buyers is not known
    lost_updates  decrements that another write erased
    settlement    what became of its promises:
        settled            whose order is written
        unsettled          whose order is not written yet
        broken_promises    that nobody could write: no unit was left, the key has another order, ...
        settlement_lag_ms  p50, p99 and max of the milliseconds from the promise to after its
                           order's commit, both by Redis's clock; p50 and p99 rounded up, to a step
                           of 1 below 100 ms, of 10 below 1 s, of 100 above, 60 s at most; None
                           before the first
    """

    sale: int
    product: str
    open: bool
    initial_stock: int
    orders: int
    stock_left: int
    buyers: int | None = None
    settlement: Mapping[str, Any] = field(default_factory=UNKNOWN.copy)

    @property
    def oversold(self) -> int:
        return max(0, self.orders - self.initial_stock)

    @property
    def undersold(self) -> int | None:
        if self.buyers is None:
            return None
        return max(0, min(self.initial_stock, self.buyers) - self.orders)

    @property
    def lost_updates(self) -> int:
        return self.orders - (self.initial_stock - self.stock_left)

    def as_dict(self) -> dict[str, Any]:
        figures = asdict(self)
        settlement = figures.pop("settlement")
        found = {name: getattr(self, name) for name in ("oversold", "undersold", "lost_updates")}
        return {**figures, **found, **settlement}


#: One statement, so one snapshot. As SQL: the page asks up to four times a second, and putting the
#: statement together took Django more than all the rest.
REPORTS = """
    SELECT sale.id, product.name, sale.closed_at IS NULL, sale.initial_stock,
        coalesce(sold.units, 0),
        coalesce(
            sale.final_stock,
            product.amount
            + (SELECT coalesce(sum(amount), 0) FROM shop_bucket WHERE sale_id = sale.id)
            + (SELECT count(*) FROM shop_unit WHERE sale_id = sale.id)
        ),
        sold.locks
    FROM shop_sale AS sale JOIN product ON product.id = sale.product_id
    CROSS JOIN LATERAL (
        SELECT sum(amount) AS units, ARRAY[min(lock), max(lock)] AS locks
        FROM purchase_history WHERE sale_id = sale.id
    ) sold
    WHERE sale.id IN ({}) ORDER BY sale.id DESC
"""
#: The numbers of the newest sales of some products.
NEWEST = """
    SELECT newest.id FROM product CROSS JOIN LATERAL (
        SELECT id FROM shop_sale WHERE product_id = product.id ORDER BY id DESC LIMIT %s
    ) newest
    WHERE product.name = ANY(%s)
"""


def _reports(which: str, *arguments: Any) -> list[tuple[SaleReport, list[str]]]:
    """The reports of these sales, newest first, each with the locks that its orders have."""
    with connection.cursor() as cursor:
        cursor.execute(REPORTS.format(which), arguments)
        rows = cursor.fetchall()
    return [(SaleReport(*row), sorted({*filter(None, locks)})) for *row, locks in rows]


def recent_reports(*products: str, count: int = 1) -> list[dict[str, Any]]:
    """The reports of the newest sales of each product, newest first, each with the `locks` that its
    orders were sold under. One query."""
    found = _reports(NEWEST, count, list(products))
    return [{**report.as_dict(), "locks": locks} for report, locks in found]


def report_of(sale_id: int) -> SaleReport:
    """The report of one sale as PostgreSQL has it. Raises UnknownSale."""
    for report, _ in _reports("%s", sale_id):
        return report
    raise UnknownSale


def sale_report(sale_id: int, *, buyers: int | None = None) -> SaleReport:
    """The report of one sale, with the settlement of its promises. Raises UnknownSale."""
    # First: what is settled by then is in the database after.
    (settlement,) = (one.settled(sale_id) for one in STRATEGIES.values() if one.settled)
    return replace(report_of(sale_id), buyers=buyers, settlement=settlement)


def latest_sale_id(*, product: str) -> int:
    """The newest sale of a product. Raises UnknownSale."""
    sale = Sale.objects.filter(product__name=product).order_by("-pk").first()
    if sale is None:
        raise UnknownSale(
            f"{product} was never on sale. Open one with POST /restock or manage.py restock."
        )
    return sale.pk


def sale_orders(sale_id: int, *, after: int, limit: int) -> list[dict[str, Any]]:
    """A page of a sale's orders, oldest first, as the judge reads them: at most `limit`, those
    whose number is above `after`. Raises UnknownSale."""
    return [
        {
            "order": order.pk,
            "buyer": order.purchaser,
            "key": order.idempotency_key,
            "lock": order.lock,
            "fence": order.fence,
            "stock_seen": order.stock_seen,
            "product": order.product_name,
            "amount": order.amount,
            "time": order.purchase_time.isoformat(),
        }
        for order in _orders(sale_id).filter(pk__gt=after).order_by("pk")[:limit]
    ]


#: Orders that a curve has at most: more is not drawn.
LONGEST_CURVE = 2_000


def sale_curve(sale_id: int) -> list[tuple[float, int]]:
    """When each unit went and the stock that its buyer saw: (seconds since the first, stock), by
    time, LONGEST_CURVE at most. Nothing of a buyer or a key. Raises UnknownSale."""
    orders = list(
        _orders(sale_id)
        .order_by("purchase_time", "pk")
        .values_list("purchase_time", "stock_seen")[:LONGEST_CURVE]
    )
    return [((time - orders[0][0]).total_seconds(), seen) for time, seen in orders]


def _orders(sale_id: int) -> QuerySet[PurchaseHistory, PurchaseHistory]:
    if not Sale.objects.filter(pk=sale_id).exists():
        raise UnknownSale
    return PurchaseHistory.objects.filter(sale_id=sale_id)
