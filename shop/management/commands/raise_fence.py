"""manage.py raise_fence: raise a lock's fence above the fence in the database."""

from typing import Any

import redis
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.models import Product
from shop.sale.fences import raise_fence
from shop.strategies import STRATEGIES


class Command(BaseCommand):
    help = (
        "Give the next holder of a product's lock a fence above the fence in the database. Run it "
        "if buyers get the answer that the fence in the database is higher (docs/production.md). "
        "It is safe while the shop runs: no fence is lowered, so a stale holder is still refused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("product")
        parser.add_argument("--lock", default=settings.SHOP_LOCK, help="default: %(default)s")

    def handle(self, *args: Any, product: str, lock: str, **options: Any) -> None:
        fenced = [name for name, strategy in STRATEGIES.items() if strategy.fenced]
        if lock not in fenced:
            raise CommandError(f"{lock} has no fence: use {', '.join(fenced)}")
        product_row = Product.objects.filter(name=product).first()
        if product_row is None:
            raise CommandError(
                f"there is no product {product!r}: see manage.py sale_report, or the admin"
            )
        try:
            was_raised = raise_fence(lock, product_row)
        except OverflowError as error:
            raise CommandError(
                f"{error}: stop every node, so that no holder is left, then UPDATE product SET "
                f"fence = 0 WHERE name = '{product}', then start them"
            ) from error
        except redis.RedisError as error:
            raise CommandError(
                f"the locks' Redis refused the command ({error}): run manage.py check_stack"
            ) from error
        if not was_raised:
            self.stdout.write(
                f"{product}: nothing to do, the next fence is above the database's "
                f"({product_row.fence})"
            )
            return
        self.stdout.write(
            self.style.SUCCESS(
                f"{product}: the fence of the lock was raised above the database's "
                f"({product_row.fence}); a buyer that acquired the lock before this is still "
                "refused, later buyers are not"
            )
        )
