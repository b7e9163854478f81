"""manage.py sale_report: print the figures of a sale."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.api.parse import DEFAULT_PRODUCT
from shop.management.command_errors import raise_command_errors
from shop.sale import reports


class Command(BaseCommand):
    help = "Print the figures of a sale: orders, stock left, oversold, lost updates."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "sale", nargs="?", type=int, help="number of the sale; default: the latest"
        )
        parser.add_argument("--product", default=DEFAULT_PRODUCT, help="default: %(default)s")
        parser.add_argument(
            "--buyers",
            type=int,
            help="number of buyers who tried to buy, to compute the undersold units",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(
        self, *args: Any, sale: int | None, product: str, buyers: int | None, **options: Any
    ) -> None:
        with raise_command_errors():
            if sale is None:
                sale = reports.find_latest_sale_id(product=product)
            report = reports.sale_report(sale, buyers=buyers).as_dict()
        if options["json"]:
            self.stdout.write(json.dumps(report, indent=2))
            return
        for name, figure in report.items():
            shown_figure = "-" if figure is None else figure
            self.stdout.write(f"{name:17} {shown_figure}")
