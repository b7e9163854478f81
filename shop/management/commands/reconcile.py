"""manage.py reconcile: what was promised, compared with what is written. Changes nothing.

Redis knows what it has not lost. The nodes' access logs name the orders that buyers were answered:
with them, what Redis has lost is found too.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from shop.api.parse import DEMO_PRODUCT
from shop.models import Product, Sale
from shop.reserve.promises import count_key, promised
from shop.sale import reports

#: An answer `sold` in a line of the access log, as text or as JSON: its order and its sale.
SOLD = re.compile(
    r"^(?!.*\bdjango\.(?:request|security)\b).*"  # whose lines repeat a path as it came
    r'\boutcome(?:=|": ?")sold\b.*\border(?:=|": ?)([0-9]+)\b.*\bsale(?:=|": ?)([0-9]+)\b'
)


class Command(BaseCommand):
    help = (
        "Compare the promises of a sale (SHOP_LOCK=reserve) with its orders. Ends with 1 where "
        "they differ. Safe while the shop sells."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sale", nargs="?", type=int, help="its number; default: the latest")
        parser.add_argument("--product", default=DEMO_PRODUCT, help="default: %(default)s")
        parser.add_argument(
            "--answers", type=Path, nargs="+", default=[], metavar="FILE",
            help="access logs of the nodes (ACCESS_LOG=1): orders that were answered and are lost",
        )  # fmt: skip

    def handle(
        self, *args: Any, sale: int | None, product: str, answers: list[Path], **options: Any
    ) -> None:
        try:
            number = reports.latest_sale_id(product=product) if sale is None else sale
            found = Sale.objects.get(pk=number)
            lines = [line for file in answers for line in file.read_text().splitlines()]
            balance = reconcile(found, answers=lines)
        except (reports.UnknownSale, Sale.DoesNotExist) as error:
            raise CommandError(f"{error} See manage.py sale_report.") from error
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--answers: {error}: name files that can be read") from error
        except redis.RedisError as error:
            raise CommandError(f"Redis does not answer ({error}): manage.py check_stack") from error
        lost = balance.pop("not_kept")
        shown = {**balance, "not_kept": len(lost)}
        if balance["sellable"] is None:
            shown["sellable"] = "not on sale"
        for name, value in shown.items():
            self.stdout.write(f"{name:14} {value}")
        for order in lost:
            self.stdout.write(self.style.ERROR(f"order {order} was answered sold, and is lost"))
        if lost or balance["undersold"] or balance["overpromised"]:
            raise CommandError(
                "promises and orders differ: refund what is lost; where Redis counts wrongly, "
                f"DEL {count_key(number)} there: the next buyer begins with what is left"
            )


def answered(lines: Iterable[str], sale: int) -> set[int]:
    """The orders of this sale that lines of the access log say were answered `sold`."""
    found = (sold for line in lines for sold in SOLD.findall(line))
    return {int(order) for order, of_sale in found if int(of_sale) == sale}


@transaction.atomic(durable=True)
def reconcile(sale: Sale, *, answers: Iterable[str] = ()) -> dict[str, Any]:
    """One sale in Redis and in PostgreSQL, whose product's row is locked: nothing is settled then.

    answers       lines of the nodes' access logs

    left          units that PostgreSQL has left
    unsettled     promises on the stream whose order is not written
    sellable      units that Redis may still promise; None where it does not sell this sale now
    undersold     units that nobody has and Redis does not sell
    overpromised  units that Redis has promised or may promise, and PostgreSQL does not have
    not_kept      orders that buyers were answered, and that neither PostgreSQL nor the stream has

    Raises redis.RedisError.
    """
    product = Product.objects.select_for_update().get(pk=sale.product_id)
    sale.refresh_from_db()
    sellable, waiting = promised(sale.pk)
    told = answered(answers, sale.pk)
    numbers = told | {promise.order for promise in waiting}
    written = set(sale.orders.filter(pk__in=numbers).values_list("pk", flat=True))
    unsettled = {promise.order for promise in waiting} - written
    left = product.amount if sale.final_stock is None else sale.final_stock
    unpromised = left - len(unsettled)
    return {
        "sale": sale.pk,
        "left": left,
        "unsettled": len(unsettled),
        "sellable": sellable,
        "undersold": 0 if sellable is None else max(0, unpromised - sellable),
        "overpromised": max(0, (sellable or 0) - unpromised),
        "not_kept": sorted(told - written - unsettled),
    }
