"""manage.py grant_role: give the shop's PostgreSQL role what it needs, and no more."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from shop.ops.db_role import grant


class Command(BaseCommand):
    help = "Give a PostgreSQL role the privileges of the shop. Run it as the tables' owner."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="the role of DATABASE_URL, as oversold_app")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            grant(role)
        except (LookupError, DatabaseError) as error:
            raise CommandError(f"nothing was granted to {role}: {error}") from error
        self.stdout.write(self.style.SUCCESS(f"{role} may sell, and owns nothing"))
