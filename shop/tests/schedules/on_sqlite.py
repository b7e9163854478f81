"""Every schedule of two buyers on SQLite, without any server.

python -m shop.tests.schedules.on_sqlite FOLDER MODE prints a JSON object: strategy -> in how many
schedules the last unit is sold twice. MODE is IMMEDIATE or DEFERRED. A buyer who finds the database
locked is refused at once and asks again.
"""

import json
import os
import sys

import django
from django.conf import settings
from django.core.management import call_command


def main(folder: str, transaction_mode: str) -> None:
    os.environ["DATABASE_URL"] = (
        f"sqlite:///{folder}/shop.sqlite3?transaction_mode={transaction_mode}"
    )
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    os.environ["SHOP_DEMO"] = "1"
    django.setup()
    settings.DATABASES["default"]["OPTIONS"]["timeout"] = 0
    call_command("migrate", verbosity=0)

    from shop.schedules.two_buyers import every_run
    from shop.strategies import STRATEGIES

    oversold_by_strategy = {
        name: sum(run.report.oversold for run in every_run(name, units=1))
        for name, strategy in STRATEGIES.items()
        if strategy.backend in ("none", "postgresql") and strategy.exists_on("sqlite")
    }
    print(json.dumps(oversold_by_strategy))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
