"""The figures of a sale, such as its orders and the oversold units.

The stock in the database is never negative. So the number of oversold units is the number of orders
minus the initial stock.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from shop.errors import ShopError, Unavailable
from shop.models import MAX_ID, PurchaseHistory, Sale
from shop.sale.strategy import STRATEGIES


class UnknownSale(ShopError):
    text = "There is no such sale. Open one with POST /restock or manage.py restock."
    status = 404


#: The figures on promises (see SaleReport) if they were not read, or could not be read.
UNKNOWN_SETTLEMENT = dict.fromkeys(
    ("settled", "unsettled", "broken_promises", "settlement_lag_ms"), None
)


@dataclass(frozen=True, slots=True)
class SaleReport:
    """The figures of one sale, in units.

    buyers        number of buyers who tried to buy, or None
    oversold      orders beyond the initial stock
    undersold     units that buyers tried to buy, but that were not sold; None without `buyers`
    lost_updates  decrements that another write erased
    settlement    figures on the promises of a sale under the strategy `reserve`. A promise is a
                  unit that Redis has sold, and whose order is written to the database later
        settled            promises with an order
        unsettled          promises whose order is not written yet
        broken_promises    promises whose order cannot be written, for example because no unit was
                           left, or because the key has another order
        settlement_lag_ms  p50, p99 and max of the milliseconds from a promise to the commit of its
                           order, by Redis's clock. None before the first order. p50 and p99 are
                           rounded up to multiples of 1 ms below 100 ms, of 10 ms below 1 s, and of
                           100 ms above. They are 60 s at most
    """

    sale: int
    product: str
    open: bool
    initial_stock: int
    orders: int
    stock_left: int
    buyers: int | None = None
    settlement: Mapping[str, Any] = field(default_factory=UNKNOWN_SETTLEMENT.copy)

    @property
    def oversold(self) -> int:
        return max(0, self.orders - self.initial_stock)

    @property
    def undersold(self) -> int | None:
        """Units that buyers tried to buy, but that were not sold; None if `buyers` is unknown."""
        if self.buyers is None:
            return None
        return max(0, min(self.initial_stock, self.buyers) - self.orders)

    @property
    def lost_updates(self) -> int:
        return self.orders - (self.initial_stock - self.stock_left)

    def as_dict(self) -> dict[str, Any]:
        figures = asdict(self)
        settlement = figures.pop("settlement")
        return {
            **figures,
            "oversold": self.oversold,
            "undersold": self.undersold,
            "lost_updates": self.lost_updates,
            **settlement,
        }


#: A single statement, so that it sees one snapshot. It is written in SQL because the page runs it
#: up to four times a second, and the ORM takes longer to build it than the database to run it.
REPORTS_SQL = """
    SELECT sale.id, product.name, sale.closed_at IS NULL, sale.initial_stock,
        coalesce(sold.units, 0),
        coalesce(
            sale.final_stock,
            product.amount
            + (SELECT coalesce(sum(amount), 0) FROM shop_bucket WHERE sale_id = sale.id)
            + (SELECT count(*) FROM shop_unit WHERE sale_id = sale.id)
        ),
        sold.first_lock,
        sold.last_lock
    FROM shop_sale AS sale JOIN product ON product.id = sale.product_id
    LEFT JOIN (
        SELECT sale_id, sum(amount) AS units, min("lock") AS first_lock, max("lock") AS last_lock
        FROM purchase_history WHERE sale_id IN ({sale_ids}) GROUP BY sale_id
    ) sold ON sold.sale_id = sale.id
    WHERE sale.id IN ({sale_ids}) ORDER BY sale.id DESC
"""
#: The ids of the newest sales of one product. The inner SELECT is for MySQL, which allows no LIMIT
#: directly inside IN.
NEWEST_SALES_SQL = """
    SELECT id FROM (
        SELECT id FROM shop_sale WHERE product_id = (SELECT id FROM product WHERE name = %s)
        ORDER BY id DESC LIMIT %s
    ) newest
"""


def _query_reports(sale_ids_sql: str, *arguments: Any) -> list[tuple[SaleReport, list[str]]]:
    """Return (report, strategies) for each of the selected sales, newest first.

    `strategies` has the names of at most two strategies that sold orders of the sale.

    sale_ids_sql  the SQL between the parentheses of `IN (...)`: placeholders or a query
    arguments     the values for the placeholders in `sale_ids_sql`
    """
    with connection.cursor() as cursor:
        # REPORTS_SQL contains `sale_ids` twice, so the arguments are passed twice.
        cursor.execute(REPORTS_SQL.format(sale_ids=sale_ids_sql), arguments * 2)
        rows = cursor.fetchall()
    reports = []
    for sale, product, is_open, initial_stock, orders, stock_left, first_lock, last_lock in rows:
        report = SaleReport(
            sale, product, bool(is_open), initial_stock, int(orders), int(stock_left)
        )
        locks = {first_lock, last_lock} - {None}
        reports.append((report, sorted(locks)))
    return reports


def read_recent_reports(*products: str, count: int = 1) -> list[dict[str, Any]]:
    """Return the reports of the newest `count` sales of each product, newest first, in one query.

    Each report has an entry `locks`: the names of at most two strategies that sold its orders.
    """
    if not products:
        return []
    sale_ids_sql = " UNION ALL ".join([NEWEST_SALES_SQL] * len(products))
    arguments: list[str | int] = []
    for product in products:
        arguments += [product, count]
    return [
        report.as_dict() | {"locks": locks}
        for report, locks in _query_reports(sale_ids_sql, *arguments)
    ]


def read_reports(sale_ids: Sequence[int]) -> list[SaleReport]:
    """Return the reports of these sales, newest first, in one query. Unknown ids are left out."""
    if not sale_ids:
        return []
    placeholders = ", ".join(["%s"] * len(sale_ids))
    return [report for report, _ in _query_reports(placeholders, *sale_ids)]


def sale_report(sale_id: int, *, buyers: int | None = None) -> SaleReport:
    """Return the report of one sale, with the figures of its promises. Raises UnknownSale."""
    if not 0 < sale_id <= MAX_ID:  # sqlite3 would raise OverflowError
        raise UnknownSale
    # Read the settlement first. An order that is written between the two reads is then missing in
    # the settlement, and not in the orders.
    settlement = _read_settlement(sale_id)
    reports = read_reports([sale_id])
    if not reports:
        raise UnknownSale
    return replace(reports[0], buyers=buyers, settlement=settlement)


def _read_settlement(sale_id: int) -> Mapping[str, Any]:
    """Return the figures on a sale's promises, which SaleReport describes as `settlement`.

    A promise is a unit that Redis has sold, and whose order is written later. All figures are None
    if no strategy promises units.
    """
    for strategy in STRATEGIES.values():
        if strategy.read_settlement is not None:
            return strategy.read_settlement(sale_id)
    return UNKNOWN_SETTLEMENT


#: Time for which a thread waits for another thread's query: longer than a connect timeout.
QUERY_TIMEOUT_SECONDS = 8.0
#: Sales whose reports are kept at a time.
MAX_CACHED_REPORTS = 100


class CachedReports:
    """A cache of reports, because the cost of a report grows with the orders of its sale."""

    def __init__(self, *, max_age_seconds: float) -> None:
        self.max_age_seconds = max_age_seconds
        self.query_lock = threading.Lock()
        #: Number of the sale -> the time of the query, by the monotonic clock, and the report.
        self._reports: dict[int, tuple[float, SaleReport]] = {}

    def get_report(self, sale_id: int) -> SaleReport:
        """Return a report that is at most `max_age_seconds` old.

        Only one thread at a time queries the database. Raises UnknownSale, and Unavailable if the
        database is too slow.
        """
        if not self.query_lock.acquire(timeout=QUERY_TIMEOUT_SECONDS):
            raise Unavailable("the database does not answer; nothing was changed")
        try:
            if sale_id in self._reports:
                read_at, report = self._reports[sale_id]
                if time.monotonic() - read_at < self.max_age_seconds:
                    return report
            report = sale_report(sale_id)
            if len(self._reports) >= MAX_CACHED_REPORTS:
                self._reports.clear()
            self._reports[sale_id] = time.monotonic(), report
            return report
        finally:
            self.query_lock.release()


def find_latest_sale_id(*, product: str) -> int:
    """Return the id of the newest sale of a product. Raises UnknownSale."""
    sale = Sale.objects.filter(product__name=product).order_by("-pk").first()
    if sale is None:
        raise UnknownSale(
            f"{product} has never had a sale. Open a sale with POST /restock or manage.py restock."
        )
    return sale.pk


def read_orders(sale_id: int, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Return at most `limit` orders of a sale with an id above `after`, oldest first.

    Raises UnknownSale.
    """
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
        for order in _find_orders(sale_id).filter(pk__gt=after).order_by("pk")[:limit]
    ]


#: Maximum number of points in the chart of a sale's stock. A chart could not show more.
MAX_CURVE_POINTS = 2_000


def read_curve(sale_id: int) -> list[tuple[float, int]]:
    """Return the points of a chart of a sale's stock, one for each order, in order of time.

    A point is (seconds since the first order, stock that the buyer read). Only the first
    MAX_CURVE_POINTS orders are included. Raises UnknownSale.
    """
    times_and_stocks = list(
        _find_orders(sale_id)
        .order_by("purchase_time", "pk")
        .values_list("purchase_time", "stock_seen")[:MAX_CURVE_POINTS]
    )
    return [
        ((order_time - times_and_stocks[0][0]).total_seconds(), stock)
        for order_time, stock in times_and_stocks
    ]


def _find_orders(sale_id: int) -> QuerySet[PurchaseHistory, PurchaseHistory]:
    """Return the orders of a sale. Raises UnknownSale."""
    if not Sale.objects.filter(pk=sale_id).exists():
        raise UnknownSale
    return PurchaseHistory.objects.filter(sale_id=sale_id)
