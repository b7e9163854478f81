"""A script that counts the schedules of two buyers that oversell on the database of DATABASE_URL.

A schedule is an order of the six moves (read, write, commit) of two buyers who want one unit. There
are 20 (shop/schedules/two_buyers.py).

python -m shop.tests.schedules.on_database [STRATEGY ...] prints a JSON object: strategy -> in how
many of the 20 schedules the unit is sold twice. Without arguments the script runs every strategy
that needs no server except the database.
"""

import json
import os
import sys
from collections.abc import Sequence

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection


def set_up_shop() -> None:
    """Set Django up, with SHOP_DEMO=1, and create the shop's tables in the database."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    os.environ["SHOP_DEMO"] = "1"
    django.setup()
    if connection.vendor == "sqlite":
        # While one buyer writes, SQLite then refuses the other buyer at once, without a wait. The
        # refused buyer tries again after the next move.
        settings.DATABASES["default"]["OPTIONS"]["timeout"] = 0
    call_command("migrate", verbosity=0)


def main(requested_names: Sequence[str]) -> None:
    """Print for each strategy the number of schedules that sell the only unit twice.

    requested_names  strategies; empty: all that need no server except the database
    """
    set_up_shop()

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
