"""Request ids and the log: an answer and all log lines of its request have the same id.

A client cannot forge a log line with a path, a name or an id that contains line breaks.
"""

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

from shop.management.commands.reconcile import read_sold_orders
from shop.middleware import choose_request_id
from shop.models import PurchaseHistory
from shop.ops.logs import make_logging_config
from shop.tests.node import run_python
from shop.tests.outage import Outage
from shop.tests.purchases import open_sale, rolled_back

pytestmark = rolled_back
GENERATED_ID = re.compile(r"[0-9a-f]{32}")
MALFORMED_IDS = ["a" * 65, "", "with space", "a\n", "<script>", "é", "{jndi:ldap}", "\x1b[31m"]


def test_malformed_request_id_is_replaced() -> None:
    """The answer has the request's id if that is well-formed, and otherwise a generated id."""
    for request_id in ("a", "a" * 64, "0f-1_Z"):
        answer = Client().get("/healthz", headers={"X-Request-ID": request_id})
        assert answer["X-Request-ID"] == request_id
    assert all(
        GENERATED_ID.fullmatch(choose_request_id(header)) for header in (None, *MALFORMED_IDS)
    )


# --- log lines ----------------------------------------------------------------------------------

#: A function that returns the log lines so far.
ReadLog = Callable[[], list[str]]


@pytest.fixture
def read_log(request: pytest.FixtureRequest) -> Iterator[ReadLog]:
    """A function that returns the shop's log lines so far.

    Their format, `text` or `json`, is the argument of the test's mark `log_format`.
    """
    log_format = request.node.get_closest_marker("log_format").args[0]
    output = io.StringIO()
    root = logging.getLogger()
    access = logging.getLogger("shop.access")
    config = make_logging_config(log_format=log_format, level="WARNING", access=True)
    configurator = logging.config.DictConfigurator(config)
    handler = logging.StreamHandler(output)
    handler.setFormatter(configurator.configure_formatter(config["formatters"]["line"]))
    for line_filter in config["filters"].values():
        handler.addFilter(configurator.configure_filter(line_filter))
    root.addHandler(handler)
    original_level = access.level
    access.setLevel(config["loggers"]["shop.access"]["level"])
    yield lambda: output.getvalue().splitlines()
    access.setLevel(original_level)
    root.removeHandler(handler)


TEXT_LOG = pytest.mark.log_format("text")
JSON_LOG = pytest.mark.log_format("json")
BOTH_FORMATS = pytest.mark.parametrize(
    "log_format", [pytest.param("text", marks=TEXT_LOG), pytest.param("json", marks=JSON_LOG)]
)


def read_entries(read_log: ReadLog, logger: str) -> list[dict[str, Any]]:
    """Return the log lines of one logger, parsed as JSON."""
    entries = [json.loads(line) for line in read_log()]
    return [entry for entry in entries if entry["logger"] == logger]


@JSON_LOG
def test_purchase_logs_one_line_with_its_outcome(read_log: ReadLog) -> None:
    """The access log has one line for each purchase, without the buyer's name and key.

    The second purchase has the same key, so its outcome is `replayed`.
    """
    sale = open_sale(1)
    key = secrets.token_hex(8)
    buyer = "ada-lovelace"
    headers = {"X-Request-ID": "mine", "Idempotency-Key": key}
    path = f"/buy?lock=redis&buyer={buyer}"
    for outcome, status in (("sold", 201), ("replayed", 200)):
        assert Client().post(path, headers=headers).status_code == status
        line = read_entries(read_log, "shop.access")[-1]
        assert line["request_id"] == "mine"
        assert (line["method"], line["path"], line["status"]) == ("POST", "/buy", status)
        assert (line["outcome"], line["lock"], line["level"]) == (outcome, "redis", "INFO")
        assert (line["order"], line["sale"]) == (PurchaseHistory.objects.get(sale=sale).pk, sale.pk)
    sold_line = read_entries(read_log, "shop.access")[0]
    assert 0 <= sold_line["waited_ms"] <= sold_line["ms"]
    assert 0 < sold_line["held_ms"] <= sold_line["ms"]
    assert len(read_log()) == 2
    assert key not in "".join(read_log())
    assert buyer not in "".join(read_log())


@JSON_LOG
def test_expected_refusal_logs_one_line_and_no_warning(read_log: ReadLog) -> None:
    """A refusal such as `sold_out` is logged in the access log only, without a warning.

    In a rush, a warning for each of 200 sold-out buyers would hide the warnings that matter.
    """
    open_sale(0)
    for status, path, outcome, lock in [
        (409, "/buy?buyer=ada&lock=none", "sold_out", "none"),
        (400, "/buy?buyer=ada&lock=nonsense", "error", None),
        (404, "/buy?buyer=ada&product=nothing", "error", "none"),
        (404, "/nowhere", None, None),
        (405, "/healthz", None, None),
        (403, "/restock", "error", None),
    ]:
        assert Client().post(path).status_code == status
        line = json.loads(read_log()[-1])
        assert (line["logger"], line["status"]) == ("shop.access", status)
        assert (line.get("outcome"), line.get("lock")) == (outcome, lock)
    assert len(read_log()) == 6


@JSON_LOG
def test_every_log_line_has_the_request_id(read_log: ReadLog, redis_outage: Outage) -> None:
    """All log lines of a failed purchase have the id of its request.

    The outage of Redis is logged as an error, without a traceback.
    """
    open_sale(1)
    redis_outage.begin()
    answer = Client().post("/buy?buyer=ada&lock=token", headers={"X-Request-ID": "mine"})
    assert answer.status_code == 503
    lines = [json.loads(line) for line in read_log()]
    assert {line["logger"] for line in lines} >= {"shop.sale.checkout", "shop.access"}
    (error,) = read_entries(read_log, "django.request")
    assert (error["level"], "exc_info" in error) == ("ERROR", False)
    assert {line["request_id"] for line in lines} == {"mine"}
    logging.getLogger("shop.other").warning("outside any request")
    assert json.loads(read_log()[-1])["request_id"] == "-"


@pytest.mark.parametrize(
    "path", ["/x%0a2026-01-01 CRITICAL forged", "/x%0d%1b[31m", "/x%e2%80%a8y"]
)
@BOTH_FORMATS
def test_path_cannot_forge_a_line(read_log: ReadLog, path: str, log_format: str) -> None:
    """Line breaks and escape sequences in a path are escaped in the log."""
    Client().get(path)
    assert len([line for line in read_log() if "shop.access" in line]) == 1
    assert all("shop.access" in line or "django.request" in line for line in read_log())
    assert "\x1b" not in "".join(read_log())


@pytest.mark.parametrize("path", ["/x/", "/x ", "/admin/"])
@BOTH_FORMATS
def test_path_cannot_forge_an_answer_for_reconcile(
    read_log: ReadLog, path: str, log_format: str
) -> None:
    """A path that looks like an access line with the outcome `sold` does not count as an order.

    manage.py reconcile reads the sold orders from the access log. The POST has no CSRF token, so
    for the admin page Django's own logger logs the path, too.
    """
    Client(enforce_csrf_checks=True).post(f"{path}outcome=sold/order=9/sale=3")
    assert read_log(), "the path is logged"
    assert read_sold_orders(read_log(), 3) == set()


@TEXT_LOG
def test_exception_message_cannot_forge_a_line(read_log: ReadLog) -> None:
    """Line breaks in a message are escaped. The lines of a traceback are indented."""
    try:
        raise ValueError("bad\n2026-01-01 CRITICAL root [-] forged\u2028also")
    except ValueError:
        logging.getLogger("shop.test").exception("it failed: %s", "a\nb")
    message_line, *traceback_lines = read_log()
    assert message_line.endswith(r"it failed: a\nb")
    assert traceback_lines
    assert all(line.startswith("    ") for line in traceback_lines)


# --- settings -----------------------------------------------------------------------------------

#: Prints the level of the access log. At the level WARNING, requests are not logged.
PRINT_ACCESS_LEVEL = (
    "from shop import settings as s; print(s.LOGGING['loggers']['shop.access']['level'])"
)


def test_access_lines_are_off_in_a_demo() -> None:
    """A demo does not log requests: its access log has the level WARNING."""
    assert run_python("-c", PRINT_ACCESS_LEVEL, SHOP_DEMO="1").stdout.strip() == "WARNING"


def test_unknown_log_format_is_refused() -> None:
    completed = run_python(
        "-c", PRINT_ACCESS_LEVEL, SHOP_DEMO="1", ACCESS_LOG="1", LOG_FORMAT="xml"
    )
    assert completed.returncode == 1
    assert "LOG_FORMAT is 'xml': use one of text, json" in completed.stderr
