"""manage.py restock: open a new sale."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.api.parse import DEFAULT_PRODUCT, MAX_STOCK, parse_product
from shop.management.command_errors import raise_command_errors
from shop.sale.opening import restock


class Command(BaseCommand):
    help = "Open a new sale of a product. Earlier sales and orders stay as they are."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--product", default=DEFAULT_PRODUCT, help="default: %(default)s")
        parser.add_argument("--stock", type=int, default=100, help="units; default: %(default)s")

    def handle(self, *args: Any, product: str, stock: int, **options: Any) -> None:
        with raise_command_errors():
            parse_product({"product": product})  # refuses the names that POST /restock refuses
            if not 0 <= stock <= MAX_STOCK:
                raise CommandError(f"--stock is {stock}: use 0 to {MAX_STOCK}")
            sale = restock(product=product, amount=stock)
        self.stdout.write(self.style.SUCCESS(f"sale {sale.pk} is open: {stock} units of {product}"))
