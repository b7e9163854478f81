"""manage.py check_stack: is everything there that a sale needs?"""

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
        for product, seconds in self._blocked().items():
            said = (
                f"{seconds:.0f} s ahead of the locks' Redis, so that nothing is sold. Correct its "
                f"clock, or run manage.py raise_fence {product}"
            )
            parts.append(health.Part(f"fence of {product}", False, said))
        for part in parts:
            word = self.style.SUCCESS("OK  ") if part.ok else self.style.ERROR("FAIL")
            self.stdout.write(f"{word} {part.name}: {part.detail}")
        if failed := [part.name for part in parts if not part.ok]:
            raise CommandError(f"not ready: {', '.join(failed)}")

    @staticmethod
    def _blocked() -> dict[str, float]:
        """Products that cannot be sold for their fence; none where a server does not answer."""
        strategy = STRATEGIES.get(settings.SHOP_LOCK)
        if strategy is None or not strategy.fenced:
            return {}
        try:
            return fences.blocked(settings.SHOP_LOCK)
        except health.NOT_READY:
            return {}  # a line of its own says so
