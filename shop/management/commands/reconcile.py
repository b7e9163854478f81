"""manage.py reconcile: compare the promises of a sale with its orders. It changes nothing.

A promise is a unit that Redis has sold to a buyer, and whose order is written later
(shop/reserve/promises.py). Redis may have lost promises. The access logs of the nodes contain the
order numbers in the answers to buyers, so the command can find the lost promises with them.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from shop.api.parse import DEFAULT_PRODUCT
from shop.management.command_errors import raise_command_errors
from shop.models import Product, Sale
from shop.reserve.promises import counter_key, read_promises
from shop.sale import reports

#: Matches a line of the access log, as text or JSON, that reports an answer `sold`. The groups are
#: the numbers of the order and of the sale.
SOLD_LINE = re.compile(
    # The lines of these two loggers contain a path as the client sent it, which may be forged.
    r"^(?!.*\bdjango\.(?:request|security)\b).*"
    r'\boutcome(?:=|": ?")sold\b.*\border(?:=|": ?)([0-9]+)\b.*\bsale(?:=|": ?)([0-9]+)\b'
)


class Command(BaseCommand):
    help = (
        "Compare the promises of a sale (SHOP_LOCK=reserve) with its orders. The exit code is 1 if "
        "they differ. The command may be run while the shop sells."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "sale", nargs="?", type=int, help="number of the sale; default: the latest"
        )
        parser.add_argument("--product", default=DEFAULT_PRODUCT, help="default: %(default)s")
        parser.add_argument(
            "--answers",
            type=Path,
            nargs="+",
            default=[],
            metavar="FILE",
            help="access logs of the nodes (ACCESS_LOG=1), to find promises that Redis lost",
        )

    def handle(
        self, *args: Any, sale: int | None, product: str, answers: list[Path], **options: Any
    ) -> None:
        """Print figures from Redis and PostgreSQL for a sale. Fail if the two do not agree.

        answers  access logs of the nodes, which have the answers to buyers
        """
        try:
            with raise_command_errors():
                if sale is None:
                    sale = reports.find_latest_sale_id(product=product)
                sale_row = Sale.objects.get(pk=sale)
                lines: list[str] = []
                for file in answers:
                    lines += file.read_text().splitlines()
                figures = reconcile(sale_row, access_log=lines)
        except Sale.DoesNotExist as error:
            problem = f"there is no sale {sale}: manage.py sale_report shows the latest sale"
            raise CommandError(problem) from error
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--answers: {error}: give readable text files") from error
        except redis.RedisError as error:
            problem = f"Redis does not answer ({error}): run manage.py check_stack"
            raise CommandError(problem) from error
        lost_orders = figures.pop("not_kept")
        shown_figures = {**figures, "not_kept": len(lost_orders)}
        if figures["sellable"] is None:
            shown_figures["sellable"] = "not on sale"
        for name, figure in shown_figures.items():
            self.stdout.write(f"{name:14} {figure}")
        for order in lost_orders:
            message = f"order {order} is lost, but its buyer was answered `sold`"
            self.stdout.write(self.style.ERROR(message))
        if lost_orders or figures["undersold"] or figures["overpromised"]:
            raise CommandError(
                "promises and orders differ: refund the lost orders. If `undersold` or "
                f"`overpromised` is not 0, run DEL {counter_key(sale)} in the locks' Redis: "
                "the next purchase creates this counter again, from the stock in PostgreSQL"
            )


def read_sold_orders(lines: Iterable[str], sale: int) -> set[int]:
    """Return the sale's order numbers in the lines of an access log that report `sold`."""
    orders = set()
    for line in lines:
        for order, sale_of_order in SOLD_LINE.findall(line):
            if int(sale_of_order) == sale:
                orders.add(int(order))
    return orders


@transaction.atomic(durable=True)
def reconcile(sale: Sale, *, access_log: Iterable[str] = ()) -> dict[str, Any]:
    """Compare the promises of a sale in Redis with its orders and its stock in PostgreSQL.

    A promise is a unit that Redis has sold to a buyer. During the comparison the product's row is
    locked, so that no order of a promise is written.

    access_log    lines of the nodes' access logs

    Returns a dict:

    sale          the number of the sale
    left          units left in PostgreSQL
    unsettled     promises on the stream whose order is not written yet
    sellable      units that Redis may still promise; None if Redis has no counter for the sale
    undersold     units in PostgreSQL that Redis has not promised and cannot promise any more
    overpromised  number by which unsettled promises and sellable units together exceed the units
                  in PostgreSQL; 0 if they do not
    not_kept      numbers of lost orders: a buyer was answered `sold`, but the order is neither in
                  PostgreSQL nor on the stream

    Raises redis.RedisError.
    """
    product = Product.objects.select_for_update().get(pk=sale.product_id)
    sale.refresh_from_db()
    sellable, promises = read_promises(sale.pk)
    sold_orders = read_sold_orders(access_log, sale.pk)
    promised_orders = {promise.order for promise in promises}
    order_numbers = sold_orders | promised_orders
    written_orders = set(sale.orders.filter(pk__in=order_numbers).values_list("pk", flat=True))
    unsettled = promised_orders - written_orders
    units_left = product.amount if sale.final_stock is None else sale.final_stock
    unpromised_units = units_left - len(unsettled)
    return {
        "sale": sale.pk,
        "left": units_left,
        "unsettled": len(unsettled),
        "sellable": sellable,
        "undersold": 0 if sellable is None else max(0, unpromised_units - sellable),
        "overpromised": max(0, (sellable or 0) - unpromised_units),
        "not_kept": sorted(sold_orders - written_orders - unsettled),
    }
