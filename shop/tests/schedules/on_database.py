"""Every schedule of two buyers on the database of DATABASE_URL.

python -m shop.tests.schedules.on_database [STRATEGY ...] prints a JSON object: strategy -> in how
many of the 20 schedules the last unit is sold twice. Without names it runs every strategy that
needs no server besides the database. A buyer who finds SQLite locked is refused at once and asks
again.
"""

import json
import os
import sys
from collections.abc import Sequence

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection


def set_up() -> None:
    """Set Django up for a demo, and make the shop's tables."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    os.environ["SHOP_DEMO"] = "1"
    django.setup()
    if connection.vendor == "sqlite":
        # While another buyer writes, SQLite refuses a buyer at once, without a wait.
        settings.DATABASES["default"]["OPTIONS"]["timeout"] = 0
    call_command("migrate", verbosity=0)


def main(requested_names: Sequence[str]) -> None:
    set_up()

    from shop.schedules.two_buyers import run_all_schedules
    from shop.strategies import STRATEGIES

    # The backend `postgresql` means the shop's database, even if that is SQLite or MariaDB.
    strategy_names = requested_names or [
        name
        for name, strategy in STRATEGIES.items()
        if strategy.backend in ("none", "postgresql") and strategy.works_with(connection.vendor)
    ]
    oversold_by_strategy = {
        name: sum(run.report.oversold for run in run_all_schedules(name, units=1))
        for name in strategy_names
    }
    print(json.dumps(oversold_by_strategy))


if __name__ == "__main__":
    main(sys.argv[1:])
