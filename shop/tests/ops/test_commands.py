"""manage.py restock, sale_report and check_stack: their output, and the errors of commands."""

import json
import os
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from pytest_django import Settings

from shop.models import Sale
from shop.ops.redis import locks_client
from shop.tests.node import run_python
from shop.tests.ops.test_checks import list_check_ids
from shop.tests.purchases import APPLE, buy, expected_report, open_sale, rolled_back

pytestmark = rolled_back

#: The timeouts of PostgreSQL, as check_stack prints them.
TIMEOUTS_TEXT = ", ".join(f"{name} {value} ms" for name, value in settings.DB_TIMEOUTS_MS.items())


def run_command(*command: str, **options: Any) -> str:
    """Run a command of manage.py, and return its output."""
    out = StringIO()
    call_command(*command, stdout=out, no_color=True, **options)
    return out.getvalue()


# --- restock ------------------------------------------------------------------------------------


def test_restock_opens_a_sale_of_100_apples() -> None:
    output = run_command("restock")
    sale = Sale.objects.latest("pk")
    assert output == f"sale {sale.pk} is open: 100 units of apple\n"
    assert (sale.product.name, sale.initial_stock, sale.product.amount) == (APPLE, 100, 100)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("restock", "--stock=-1"), "--stock is -1: use 0 to 1000000"),
        (("restock", "--stock=1000001"), "--stock is 1000001: use 0 to 1000000"),
        (
            ("restock", "--product", "two words"),
            "bad product name: 'two words': use 1 to 64 letters, digits, - and _",
        ),
        (
            ("sale_report", "0"),
            "There is no such sale. Open one with POST /restock or manage.py restock.",
        ),
        (
            ("sale_report", "--product", "plum"),
            "plum has never had a sale. Open a sale with POST /restock or manage.py restock.",
        ),
        (
            ("reconcile", "999999999"),
            "there is no sale 999999999: manage.py sale_report shows the latest sale",
        ),
    ],
)
def test_bad_argument_is_an_error_with_the_allowed_values(
    command: tuple[str, ...], error: str
) -> None:
    with pytest.raises(CommandError) as failure:
        run_command(*command)
    assert str(failure.value) == error


@pytest.mark.parametrize("command", ["restock", "sale_report", "reconcile"])
def test_dead_postgresql_is_an_error_without_a_traceback(command: str) -> None:
    """The error tells the operator to run check_stack."""
    completed = run_python(
        "manage.py",
        command,
        DATABASE_URL="postgresql://ann@127.0.0.1:1/shop",
        REDIS_URL=os.environ["REDIS_URL"],
        SHOP_DB_POOL="0",  # without a pool, a refused connection is an error at once
    )
    assert completed.returncode == 1
    assert completed.stderr.startswith("CommandError: the database failed (")
    assert completed.stderr.endswith("): run manage.py check_stack\n")


def test_too_much_stock_for_the_strategy_is_an_error(settings: Settings) -> None:
    """The strategy `skip-locked` inserts a row per unit, so it allows 100,000 units at most."""
    settings.SHOP_DEMO = False
    settings.SHOP_LOCK = "skip-locked"
    with pytest.raises(CommandError, match="use 100000 units at most"):
        run_command("restock", "--stock=200000")


# --- sale_report --------------------------------------------------------------------------------


def test_sale_report_prints_the_latest_sale() -> None:
    """Without an argument, sale_report prints the report of the latest sale, a line per field."""
    sale = open_sale(3)
    buy()
    output = run_command("sale_report")
    assert output.startswith(f"sale              {sale.pk}\nproduct           apple\nopen      ")
    fields = expected_report(sale, orders=1, stock_left=2)
    lines = [f"{name:17} {'-' if value is None else value}" for name, value in fields.items()]
    assert output == "\n".join(lines) + "\n"


def test_sale_report_as_json_equals_the_http_report() -> None:
    """`sale_report --json` prints the fields of GET /sales/<sale>."""
    sale = open_sale(3)
    open_sale(5)  # closes the first sale, which the command then reports
    output = run_command("sale_report", str(sale.pk), "--buyers", "2", "--json")
    assert output == json.dumps(json.loads(output), indent=2) + "\n"
    # With `--buyers 2`, two buyers wanted one of the 3 units each, and none bought one: 2 units
    # are undersold.
    assert json.loads(output) == expected_report(sale, open=False, buyers=2, undersold=2)


# --- check_stack --------------------------------------------------------------------------------


def test_check_stack_reports_every_part() -> None:
    version = connection.pg_version  # type: ignore[attr-defined]  # 180004 for 18.4
    assert run_command("check_stack") == (
        f"OK   PostgreSQL: version {version // 10_000}.{version % 10_000}, fsync on\n"
        "OK   migrations: all applied\n"
        f"OK   Redis (locks): Valkey {locks_client().info()['valkey_version']}, "
        "maxmemory-policy noeviction\n"
        "OK   Redis (cache): answers\n"
        f"OK   PostgreSQL timeouts: {TIMEOUTS_TEXT}\n"
    )


def test_redis_with_eviction_is_reported() -> None:
    """check_stack fails, and check --deploy warns, if Redis may evict keys."""
    out = StringIO()
    locks_client().config_set("maxmemory-policy", "volatile-lru")
    try:
        with pytest.raises(CommandError, match="not ready: eviction"):
            call_command("check_stack", stdout=out, no_color=True)
        for policy in ("volatile-lru", "allkeys-lru"):
            locks_client().config_set("maxmemory-policy", policy)
            assert list_check_ids() == []
            assert "shop.W003" in list_check_ids(deploy=True)
    finally:
        locks_client().config_set("maxmemory-policy", "noeviction")
    assert "shop.W003" not in list_check_ids(deploy=True)
    assert "FAIL eviction: The locks' Redis has maxmemory-policy volatile-lru" in out.getvalue()
