"""manage.py sale_report: the figures of a sale."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.api.parse import DEMO_PRODUCT
from shop.sale import reports


class Command(BaseCommand):
    help = "Say what a sale came to: orders, stock left, oversold, lost updates."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sale", nargs="?", type=int, help="its number; default: the latest")
        parser.add_argument("--product", default=DEMO_PRODUCT, help="default: %(default)s")
        parser.add_argument("--buyers", type=int, help="how many came, to count the undersold")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def handle(
        self, *args: Any, sale: int | None, product: str, buyers: int | None, **options: Any
    ) -> None:
        try:
            number = reports.latest_sale_id(product=product) if sale is None else sale
            report = reports.sale_report(number, buyers=buyers).as_dict()
        except reports.UnknownSale as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(report, indent=2))
            return
        for name, value in report.items():
            self.stdout.write(f"{name:17} {'-' if value is None else value}")
