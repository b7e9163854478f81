"""manage.py raise_fence: sell again where the database's fence is ahead of Redis."""

from typing import Any

import redis
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shop.models import Product
from shop.sale.fences import raise_fence
from shop.strategies import STRATEGIES


class Command(BaseCommand):
    help = (
        "Let the next holder of a product's lock have a fence above the one in the database. For "
        "buyers who are answered that the database's fence is ahead (docs/production.md). Safe "
        "while the shop runs: no fence is lowered, so no stale holder gets in."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("product")
        parser.add_argument("--lock", default=settings.SHOP_LOCK, help="default: %(default)s")

    def handle(self, *args: Any, product: str, lock: str, **options: Any) -> None:
        fenced = [name for name, strategy in STRATEGIES.items() if strategy.fenced]
        if lock not in fenced:
            raise CommandError(f"{lock} has no fence: use {', '.join(fenced)}")
        found = Product.objects.filter(name=product).first()
        if found is None:
            raise CommandError(
                f"there is no product {product!r}: see manage.py sale_report, or the admin"
            )
        try:
            raised = raise_fence(lock, found)
        except OverflowError as error:
            raise CommandError(
                f"{error}: stop every node, so that no holder is left, then UPDATE product SET "
                f"fence = 0 WHERE name = '{product}', then start them"
            ) from error
        except redis.RedisError as error:
            raise CommandError(
                f"the locks' Redis does not do it ({error}): manage.py check_stack"
            ) from error
        if not raised:
            self.stdout.write(
                f"{product}: nothing to do, the next fence is above the database's ({found.fence})"
            )
            return
        self.stdout.write(
            self.style.SUCCESS(
                f"{product}: the fence of the lock was raised above the database's "
                f"({found.fence}); a buyer who holds the lock from before is refused once more"
            )
        )
