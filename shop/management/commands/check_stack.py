"""manage.py check_stack: is everything there that a sale needs?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from shop import health
from shop.checks import check_eviction


class Command(BaseCommand):
    help = "Ask PostgreSQL and Redis, and say for each whether it is ready for a sale."

    def handle(self, *args: Any, **options: Any) -> None:
        parts = health.stack()
        for part in parts:
            word = self.style.SUCCESS("OK  ") if part.ok else self.style.ERROR("FAIL")
            self.stdout.write(f"{word} {part.name}: {part.detail}")
        for warning in check_eviction():
            self.stdout.write(f"{self.style.ERROR('FAIL')} {warning.msg} {warning.hint}")
            parts.append(health.Part("eviction", False, ""))
        if failed := [part.name for part in parts if not part.ok]:
            raise CommandError(f"not ready: {', '.join(failed)}")
