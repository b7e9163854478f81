"""manage.py restock, sale_report and check_stack: their whole output, and how they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from shop.models import Sale
from shop.ops.redis import locks_client
from shop.tests.outage import Outage
from shop.tests.till import APPLE, buy, open_sale, rolled_back

pytestmark = rolled_back

TIMEOUTS = ", ".join(f"{name} {value} ms" for name, value in settings.DB_TIMEOUTS_MS.items())


def output_of(*command: str, **options: Any) -> str:
    out = StringIO()
    call_command(*command, stdout=out, no_color=True, **options)
    return out.getvalue()


# --- restock ------------------------------------------------------------------------------------


def test_restock_opens_a_sale_of_a_hundred_apples() -> None:
    said = output_of("restock")
    sale = Sale.objects.latest("pk")
    assert said == f"sale {sale.pk} is open: 100 units of apple\n"
    assert (sale.product.name, sale.initial_stock, sale.product.amount) == (APPLE, 100, 100)


@pytest.mark.parametrize("units", ["-1", "1000001"])
def test_restock_says_which_stock_it_takes(units: str) -> None:
    with pytest.raises(CommandError) as error:
        output_of("restock", f"--stock={units}")
    assert str(error.value) == f"--stock is {units}: use 0 to 1000000"


def test_restock_says_which_name_it_takes() -> None:
    with pytest.raises(CommandError) as error:
        output_of("restock", "--product", "two words")
    assert str(error.value) == "bad product name: use 1 to 64 letters, digits, - and _"


# --- sale_report --------------------------------------------------------------------------------


def test_sale_report_says_what_the_latest_sale_came_to() -> None:
    sale = open_sale(3)
    buy()
    assert output_of("sale_report") == (
        f"sale              {sale.pk}\n"
        "product           apple\n"
        "open              True\n"
        "initial_stock     3\n"
        "orders            1\n"
        "stock_left        2\n"
        "buyers            -\n"
        "oversold          0\n"
        "undersold         -\n"
        "lost_updates      0\n"
        "settled           0\n"
        "unsettled         0\n"
        "broken_promises   0\n"
        "settlement_lag_ms -\n"
    )


def test_sale_report_as_json_is_the_report_of_the_http_interface() -> None:
    sale = open_sale(3)
    open_sale(5)
    said = output_of("sale_report", str(sale.pk), "--buyers", "2", "--json")
    assert said == json.dumps(json.loads(said), indent=2) + "\n"
    assert json.loads(said) == {
        "sale": sale.pk,
        "product": "apple",
        "open": False,
        "initial_stock": 3,
        "orders": 0,
        "stock_left": 3,
        "buyers": 2,
        "oversold": 0,
        "undersold": 2,
        "lost_updates": 0,
        "settled": 0,
        "unsettled": 0,
        "broken_promises": 0,
        "settlement_lag_ms": None,
    }


def test_sale_report_of_no_sale_says_how_to_open_one() -> None:
    with pytest.raises(CommandError) as error:
        output_of("sale_report", "0")
    assert str(error.value) == (
        "There is no such sale. Open one with POST /restock or manage.py restock."
    )


def test_sale_report_of_a_product_that_was_never_on_sale_says_how_to_open_one() -> None:
    with pytest.raises(CommandError) as error:
        output_of("sale_report", "--product", "plum")
    assert str(error.value) == (
        "plum was never on sale. Open one with POST /restock or manage.py restock."
    )


# --- check_stack --------------------------------------------------------------------------------


def versions() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        postgres = cursor.fetchone()[0]
    return postgres, locks_client().info()["valkey_version"]


def test_check_stack_says_ok_for_every_part() -> None:
    postgres, valkey = versions()
    assert output_of("check_stack") == (
        f"OK   PostgreSQL: version {postgres}, fsync on\n"
        "OK   migrations: all applied\n"
        f"OK   Redis (locks): Valkey {valkey}, maxmemory-policy noeviction\n"
        "OK   Redis (cache): answers\n"
        f"OK   PostgreSQL timeouts: {TIMEOUTS}\n"
    )


def test_check_stack_fails_on_a_redis_that_may_evict_locks() -> None:
    out = StringIO()
    locks_client().config_set("maxmemory-policy", "volatile-lru")
    try:
        with pytest.raises(CommandError, match="not ready: eviction"):
            call_command("check_stack", stdout=out, no_color=True)
    finally:
        locks_client().config_set("maxmemory-policy", "noeviction")
    assert "FAIL The locks' Redis has maxmemory-policy volatile-lru" in out.getvalue()


def test_check_stack_names_what_fails_when_redis_is_down(redis_outage: Outage) -> None:
    postgres, _ = versions()
    redis_outage.begin()
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command("check_stack", stdout=out, no_color=True)
    address = f"127.0.0.1:{redis_outage.server.port}"
    assert str(error.value) == "not ready: Redis (locks), Redis (cache)"
    assert out.getvalue() == (
        f"OK   PostgreSQL: version {postgres}, fsync on\n"
        "OK   migrations: all applied\n"
        f"FAIL Redis (locks): Error 111 connecting to {address}. Connection refused.\n"
        f"FAIL Redis (cache): Error 111 connecting to {address}. Connection refused.\n"
        f"OK   PostgreSQL timeouts: {TIMEOUTS}\n"
    )


def test_check_stack_ends_with_1_and_no_traceback_when_nothing_answers(tmp_path: Path) -> None:
    nowhere = {
        "DATABASE_URL": f"postgresql://postgres@/none?host={tmp_path}",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check_stack", "--no-color"],
        cwd=settings.BASE_DIR,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "CommandError: not ready: PostgreSQL, migrations, Redis (locks), Redis (cache), "
        "PostgreSQL timeouts\n"
    )
    lines = done.stdout.splitlines()
    assert [line[:4] for line in lines if line[:4] in ("OK  ", "FAIL")] == ["FAIL"] * 5
    assert "Traceback" not in done.stdout
