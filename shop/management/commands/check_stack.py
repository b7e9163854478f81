"""manage.py check_stack: check the servers that a sale needs.

Each server and each of its settings that is checked is a part of the stack (shop/ops/health.py).
"""

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from shop.checks import check_eviction
from shop.ops import health
from shop.sale import fences
from shop.strategies import STRATEGIES


class Command(BaseCommand):
    help = "Check PostgreSQL and Redis, and print for each part whether it is ready for a sale."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the state of each part of the stack. Fail if a part is not ready."""
        parts = health.check_parts()
        for warning in check_eviction():
            problem = f"{warning.msg} {warning.hint}"
            parts.append(health.Part("eviction", ok=False, detail=problem))
        # In a demo SHOP_LOCK is not checked, so it need not be the name of a strategy.
        strategy = STRATEGIES.get(settings.SHOP_LOCK)
        if strategy is not None and strategy.fenced:
            # check_parts() already reports a server that is down.
            with suppress(*health.NOT_READY_ERRORS):
                seconds_ahead_by_product = fences.find_blocked_products(settings.SHOP_LOCK)
                for product, seconds_ahead in seconds_ahead_by_product.items():
                    problem = (
                        f"{seconds_ahead:.0f} s ahead of the locks' Redis, so nothing is sold: "
                        f"{fences.FENCE_AHEAD_REMEDY}"
                    )
                    parts.append(health.Part(f"fence of {product}", ok=False, detail=problem))
        for part in parts:
            status = self.style.SUCCESS("OK  ") if part.ok else self.style.ERROR("FAIL")
            self.stdout.write(f"{status} {part.name}: {part.detail}")
        failed_names = [part.name for part in parts if not part.ok]
        if failed_names:
            raise CommandError(f"not ready: {', '.join(failed_names)}")
