"""manage.py reconcile: what was promised, compared with what is written."""

from pathlib import Path
from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.api.parse import DEMO_PRODUCT
from shop.models import Sale
from shop.reserve.promises import count_key
from shop.reserve.reconcile import reconcile
from shop.sale import reports


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
        except OSError as error:
            raise CommandError(f"--answers: {error}: name files that can be read") from error
        except redis.RedisError as error:
            raise CommandError(f"Redis does not answer ({error}): manage.py check_stack") from error
        sellable = "not on sale" if balance.sellable is None else balance.sellable
        for name, value in (
            ("sale", balance.sale),
            ("left", balance.left),
            ("unsettled", balance.unsettled),
            ("sellable", sellable),
            ("undersold", balance.undersold),
            ("overpromised", balance.overpromised),
            ("not_kept", len(balance.not_kept)),
        ):
            self.stdout.write(f"{name:14} {value}")
        for order in balance.not_kept:
            self.stdout.write(self.style.ERROR(f"order {order} was answered sold, and is lost"))
        if balance.not_kept or balance.undersold or balance.overpromised:
            raise CommandError(
                "promises and orders differ: refund what is lost; where Redis counts wrongly, "
                f"DEL {count_key(balance.sale)} there: the next buyer begins with what is left"
            )
