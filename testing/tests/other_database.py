"""A project on another database, which interleaves a flawed purchase and two repaired ones.

    python other_database.py SETTINGS

SETTINGS are Django's settings of the database, in JSON. The output has a line for each purchase,
which says whether every order of the steps of two buyers passed. The last line says whether a buyer
of a repaired purchase waited for the other.
"""

import json
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": json.loads(sys.argv[1])},
    INSTALLED_APPS=["testing"],
    USE_TZ=True,
)
if "mysql" in sys.argv[1]:
    import pymysql

    pymysql.install_as_MySQLdb()
django.setup()

from django.db import connection, transaction  # noqa: E402

from testing import InterleavingFailed, interleave  # noqa: E402
from testing.tests.models import (  # noqa: E402
    Sold,
    Stock,
    buy_plainly,
    buy_with_a_condition,
    check_sold_once,
    reset_to_one_unit,
)


def buy_with_a_row_lock() -> int:
    """Buy a unit, with the row locked from the read until COMMIT. Return an HTTP status."""
    with transaction.atomic():
        stock = Stock.objects.select_for_update().get(pk=1)
        if stock.amount < 1:
            return 409
        stock.amount -= 1
        stock.save()
        Sold.objects.create(buyer="somebody")
    return 200


def main() -> None:
    """Interleave two buyers for each way to buy, and print whether every order passed."""
    with connection.schema_editor() as editor:
        editor.create_model(Stock)
        editor.create_model(Sold)
    wait_count = 0
    for buy in (buy_plainly, buy_with_a_row_lock, buy_with_a_condition):
        try:
            runs = interleave(buy, buy, before=reset_to_one_unit, check=check_sold_once)
        except InterleavingFailed as error:
            print(f"{buy.__name__}: {str(error).splitlines()[0]}")
        else:
            print(f"{buy.__name__}: passed")
            for run in runs:
                wait_count += sum(step.kind == "waits" for step in run.steps)
    print(f"a call waited for another: {wait_count > 0}")


main()
