"""Every request has an id, in its answer and in each of its log lines. No line can be forged."""

import io
import json
import logging
import logging.config
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from shop.management.commands.reconcile import read_answered_orders
from shop.models import PurchaseHistory
from shop.ops.logs import choose_request_id, logging_config
from shop.tests.node import run
from shop.tests.outage import Outage
from shop.tests.purchases import open_sale, rolled_back

pytestmark = rolled_back
MADE = re.compile(r"[0-9a-f]{32}")
FORGED = ["a" * 65, "", "with space", "a\n", "<script>", "é", "{jndi:ldap}", "\x1b[31m"]


def test_malformed_request_id_is_replaced() -> None:
    """A well-formed id is kept, and is in the answer."""
    for given in ("a", "a" * 64, "0f-1_Z"):
        assert Client().get("/healthz", headers={"X-Request-ID": given})["X-Request-ID"] == given
    assert all(MADE.fullmatch(choose_request_id(header)) for header in (None, *FORGED))


# --- log lines ----------------------------------------------------------------------------------

Lines = Callable[[], list[str]]


@pytest.fixture
def logged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What the shop logs, in the format that the test is marked with; access lines included."""
    kind = request.node.get_closest_marker("log_format").args[0]
    written = io.StringIO()
    root, access = logging.getLogger(), logging.getLogger("shop.access")
    config = logging_config(kind=kind, level="WARNING", access=True)
    made = logging.config.DictConfigurator(config)
    handler = logging.StreamHandler(written)
    handler.setFormatter(made.configure_formatter(config["formatters"]["line"]))
    for line_filter in config["filters"].values():
        handler.addFilter(made.configure_filter(line_filter))
    root.addHandler(handler)
    before = access.level
    access.setLevel(config["loggers"]["shop.access"]["level"])
    yield lambda: written.getvalue().splitlines()
    access.setLevel(before)
    root.removeHandler(handler)


TEXT = pytest.mark.log_format("text")
JSON = pytest.mark.log_format("json")


def objects(logged: Lines, logger: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, logged()) if one["logger"] == logger]


@JSON
def test_a_purchase_leaves_one_line_with_what_it_came_to(logged: Lines) -> None:
    sale = open_sale(1)
    key, buyer = secrets.token_hex(8), "ada-lovelace"
    headers = {"X-Request-ID": "mine", "Idempotency-Key": key}
    query = f"/buy?lock=redis&buyer={buyer}"
    for outcome, status in (("sold", 201), ("replayed", 200)):
        assert Client().post(query, headers=headers).status_code == status
        line = objects(logged, "shop.access")[-1]
        assert line["request_id"] == "mine"
        assert (line["method"], line["path"], line["status"]) == ("POST", "/buy", status)
        assert (line["outcome"], line["lock"], line["level"]) == (outcome, "redis", "INFO")
        assert (line["order"], line["sale"]) == (PurchaseHistory.objects.get(sale=sale).pk, sale.pk)
    first = objects(logged, "shop.access")[0]
    assert 0 <= first["waited_ms"] <= first["ms"]
    assert 0 < first["held_ms"] <= first["ms"]
    assert len(logged()) == 2
    assert key not in "".join(logged())
    assert buyer not in "".join(logged())


@JSON
def test_an_expected_refusal_leaves_one_line_and_no_warning(logged: Lines) -> None:
    """200 sold-out buyers were 200 warnings, and hid the one that mattered."""
    open_sale(0)
    for status, path, outcome, lock in [
        (409, "/buy?buyer=ada&lock=none", "sold_out", "none"),
        (400, "/buy?buyer=ada&lock=nonsense", "error", None),
        (404, "/buy?buyer=ada&product=nothing", "error", "none"),
        *((404, "/nowhere", None, None), (405, "/healthz", None, None)),
        (403, "/restock", "error", None),
    ]:
        assert Client().post(path).status_code == status
        line = json.loads(logged()[-1])
        assert (line["logger"], line["status"]) == ("shop.access", status)
        assert (line.get("outcome"), line.get("lock")) == (outcome, lock)
    assert len(logged()) == 6


@JSON
def test_every_line_of_a_request_has_its_id_and_a_line_of_none_a_dash(
    logged: Lines, redis_outage: Outage
) -> None:
    """An outage is an error in the log, without a traceback."""
    open_sale(1)
    redis_outage.begin()
    answer = Client().post("/buy?buyer=ada&lock=token", headers={"X-Request-ID": "mine"})
    assert answer.status_code == 503
    lines = [json.loads(line) for line in logged()]
    assert {line["logger"] for line in lines} >= {"shop.sale.checkout", "shop.access"}
    (error,) = objects(logged, "django.request")
    assert (error["level"], "exc_info" in error) == ("ERROR", False)
    assert {line["request_id"] for line in lines} == {"mine"}
    logging.getLogger("shop.other").warning("of no request")
    assert json.loads(logged()[-1])["request_id"] == "-"


@pytest.mark.parametrize(
    "path", ["/x%0a2026-01-01 CRITICAL forged", "/x%0d%1b[31m", "/x%e2%80%a8y"]
)
@pytest.mark.parametrize("kind", [pytest.param("", marks=TEXT), pytest.param("", marks=JSON)])
def test_a_path_cannot_forge_a_line(logged: Lines, path: str, kind: str) -> None:
    Client().get(path)
    assert len([line for line in logged() if "shop.access" in line]) == 1
    assert all("shop.access" in line or "django.request" in line for line in logged())
    assert "\x1b" not in "".join(logged())


@pytest.mark.parametrize("path", ["/x/", "/x ", "/admin/"])  # Django logs a form without its token
@pytest.mark.parametrize("kind", [pytest.param("", marks=TEXT), pytest.param("", marks=JSON)])
def test_a_path_cannot_forge_an_answer_that_reconcile_would_miss(
    logged: Lines, path: str, kind: str
) -> None:
    Client(enforce_csrf_checks=True).post(f"{path}outcome=sold/order=9/sale=3")
    assert logged()
    assert read_answered_orders(logged(), 3) == set()


@TEXT
def test_an_exceptions_message_cannot_forge_a_line_either(logged: Lines) -> None:
    try:
        raise ValueError("bad\n2026-01-01 CRITICAL root [-] forged\u2028also")
    except ValueError:
        logging.getLogger("shop.test").exception("it failed: %s", "a\nb")
    first, *rest = logged()
    assert first.endswith(r"it failed: a\nb")
    assert rest
    assert all(line.startswith("    ") for line in rest)


# --- settings -----------------------------------------------------------------------------------

SHOW = "from shop import settings as s; print(s.LOGGING['loggers']['shop.access']['level'])"


def test_access_lines_are_off_in_a_demo_and_an_unknown_format_is_refused() -> None:
    assert run("-c", SHOW, SHOP_DEMO="1").stdout.strip() == "WARNING"
    refused = run("-c", SHOW, SHOP_DEMO="1", ACCESS_LOG="1", LOG_FORMAT="xml")
    assert refused.returncode == 1
    assert "LOG_FORMAT is 'xml': use one of text, json" in refused.stderr
