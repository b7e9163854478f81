"""manage.py check_stack: is everything there that a sale needs?"""

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from shop.checks import check_eviction
from shop.ops import health
from shop.sale import fences
from shop.strategies import STRATEGIES


class Command(BaseCommand):
    help = "Ask PostgreSQL and Redis, and say for each whether it is ready for a sale."

    def handle(self, *args: Any, **options: Any) -> None:
        parts = health.stack()
        for wrong in check_eviction():
            parts.append(health.Part("eviction", False, f"{wrong.msg} {wrong.hint}"))
        strategy = STRATEGIES.get(settings.SHOP_LOCK)
        if strategy is not None and strategy.fenced:
            with suppress(*health.NOT_READY):  # a line of its own says so
                for product, seconds in fences.blocked(settings.SHOP_LOCK).items():
                    said = (
                        f"{seconds:.0f} s ahead of the locks' Redis, so that nothing is sold. "
                        f"Correct its clock, or run manage.py raise_fence {product}"
                    )
                    parts.append(health.Part(f"fence of {product}", False, said))
        for part in parts:
            word = self.style.SUCCESS("OK  ") if part.ok else self.style.ERROR("FAIL")
            self.stdout.write(f"{word} {part.name}: {part.detail}")
        if failed := [part.name for part in parts if not part.ok]:
            raise CommandError(f"not ready: {', '.join(failed)}")
