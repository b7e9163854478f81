"""Starting and stopping a rush (many buyers at once) on the page, and the verdict on its sale.

make serve does not run in these tests; the fixture rush_folder takes its place.
"""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from demo.tests.rush_folder import RushFolder
from demo.views import add_rush_fields
from shop.sale import opening
from shop.sale.reports import SaleReport
from shop.tests.purchases import buy, open_sale, rolled_back

#: The fields of the page's form that starts a rush.
RUSH_FORM = {"lock": "none", "buyers": "20", "stock": "10", "hold_ms": "0"}


def test_page_without_make_serve_cannot_start_a_rush(settings: Any) -> None:
    """Only `make serve` sets SHOP_RUSH_FOLDER, and runs the rushes that the page requests."""
    settings.SHOP_RUSH_FOLDER = ""
    html = Client().get("/").content.decode()
    assert re.search(r'<button id="start"[^>]* disabled>Start with make serve</button>', html)
    response = Client().post("/rush", RUSH_FORM)
    assert response.status_code == 503
    assert "make serve" in response.json()["error"]


def test_form_starts_one_rush_at_a_time(rush_folder: RushFolder) -> None:
    """A second request is refused, and does not replace the first."""
    assert Client().post("/rush", RUSH_FORM).status_code == 202
    rush = {"lock": "none", "buyers": 20, "stock": 10, "hold_ms": 0}
    # The shop adds the product, and the seconds after which the buyers give up.
    assert rush_folder.request == {**rush, "product": "apple", "deadline": 60}
    assert Client().post("/rush", {**RUSH_FORM, "lock": "redis"}).status_code == 409
    assert rush_folder.request["lock"] == "none"
    rush_folder.remove_request()
    assert Client().post("/rush", RUSH_FORM).status_code == 202


def test_form_without_a_csrf_token_is_refused(rush_folder: RushFolder) -> None:
    """Every POST needs the token that the page's cookie has."""
    visitor = Client(enforce_csrf_checks=True)
    for path in ("/rush", "/rush/stop", "/steps", "/steps/step", "/admin/login/"):
        response = visitor.post(path, RUSH_FORM)
        assert response.status_code == 403
        assert "without its CSRF token: load the page again" in response.json()["error"]
    assert rush_folder.request is None
    visitor.get("/")  # this sets the cookie
    token = visitor.cookies["csrftoken"].value
    assert visitor.post("/rush", {**RUSH_FORM, "csrfmiddlewaretoken": token}).status_code == 202


def test_form_of_another_origin_is_refused(rush_folder: RushFolder, settings: Any) -> None:
    """A form whose Origin is not the shop's address is refused, with advice.

    This happens behind a port forwarder: the forwarder's requests have the host localhost, but the
    browser's Origin is the forwarder's address. The error contains the setting with which the shop
    accepts the form.
    """
    origin = "https://demo-8000.app.example"
    browser = Client(enforce_csrf_checks=True)
    browser.get("/")
    form = {**RUSH_FORM, "csrfmiddlewaretoken": browser.cookies["csrftoken"].value}
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    response = browser.post("/rush", form, headers=headers)
    assert response.status_code == 403
    assert f"{origin} is not the address of this shop" in response.json()["error"]
    assert f"CSRF_TRUSTED_ORIGINS={origin}" in response.json()["error"]
    assert rush_folder.request is None
    settings.CSRF_TRUSTED_ORIGINS = [origin]
    # A client keeps its middleware, which reads the setting only once.
    client_of_restarted_shop = Client(enforce_csrf_checks=True)
    client_of_restarted_shop.cookies = browser.cookies
    response = client_of_restarted_shop.post("/rush", form, headers=headers)
    assert response.status_code == 202


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("buyers", "0", "a whole number from 1 to 20000"),
        ("stock", "-1", "a whole number from 0 to 10000"),
        ("hold_ms", "5001", "a whole number from 0 to 5000"),
    ],
)
def test_bad_input_is_refused_with_the_allowed_values(
    rush_folder: RushFolder, field: str, value: str, allowed: str
) -> None:
    """A number out of bounds, or an unknown strategy, starts no rush."""
    response = Client().post("/rush", {**RUSH_FORM, field: value})
    assert (response.status_code, response.json()["allowed"]) == (400, [allowed])
    assert response.json()["error"].startswith(f"bad {field}: ")
    assert Client().post("/rush", {**RUSH_FORM, "lock": "nonsense"}).status_code == 400
    assert rush_folder.request is None


@rolled_back
def test_stop_ends_the_sale_and_the_rush(rush_folder: RushFolder) -> None:
    """The button closes the sale at once. The page then shows the verdict `stopped`."""
    sale = open_sale(10)
    buy(lock="none")
    rush_folder.write_request()
    assert Client().post("/rush/stop").status_code == 202
    assert rush_folder.is_stop_requested
    sale.refresh_from_db()
    assert sale.closed_at is not None
    assert sale.final_stock == 9
    assert buy(lock="none").status == 404, "nothing is sold any more"
    rush_folder.write_finished_rush(
        {"sale": sale.pk, "lock": "none", "verdict": "unknown", "stopped": True}
    )
    stopped_sale = Client().get("/state").json()["sale"]
    assert stopped_sale["verdict"] == "stopped"
    assert (stopped_sale["orders"], stopped_sale["stock_left"]) == (1, 9)


def test_late_stop_does_not_stop_the_next_rush(rush_folder: RushFolder) -> None:
    """A request to stop that came after the end of its rush has left the file `stop`."""
    (rush_folder.folder / "stop").touch()
    assert Client().post("/rush", RUSH_FORM).status_code == 202
    assert not rush_folder.is_stop_requested


@rolled_back
def test_stop_without_a_rush_is_refused(rush_folder: RushFolder) -> None:
    """Without a rush the request does not close the open sale."""
    sale = open_sale(10)
    response = Client().post("/rush/stop")
    assert (response.status_code, rush_folder.is_stop_requested) == (409, False)
    sale.refresh_from_db()
    assert sale.closed_at is None


@rolled_back
def test_rush_is_stopped_even_if_its_sale_cannot_be_closed(
    rush_folder: RushFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purchases have locked the product's row. The page gets status 503, but the buyers stop."""

    def raise_operational_error(**_: object) -> None:
        raise OperationalError

    monkeypatch.setattr(opening, "close_open_sale", raise_operational_error)
    rush_folder.write_request()
    response = Client().post("/rush/stop")
    assert (response.status_code, rush_folder.is_stop_requested) == (503, True)
    assert "The next rush closes the sale" in response.json()["error"]


# --- the verdict of a sale on the page ------------------------------------------------------------


def make_report(
    orders: int,
    *,
    stock_left: int | None = None,
    is_open: bool = True,
    locks: Sequence[str] = ("token",),
) -> dict[str, Any]:
    """Return the report of a sale of two units.

    By default the stock that is left is what the orders leave, and never below 0.
    """
    if stock_left is None:
        stock_left = max(0, 2 - orders)
    report = SaleReport(
        sale=1,
        product="apple",
        open=is_open,
        initial_stock=2,
        orders=orders,
        stock_left=stock_left,
    )
    return {**report.as_dict(), "locks": locks}


STOPPED: dict[str, Any] = {"verdict": "unknown", "stopped": True}


@pytest.mark.parametrize(
    ("report", "run", "rush", "verdict"),
    [
        # The first argument of make_report() is the number of orders. The sale has two units.
        # After a rush its verdict counts. Overselling overrides all but `unknown`.
        (make_report(1), {"verdict": "undersold"}, None, "undersold"),
        (make_report(3), {"verdict": "unknown"}, None, "unknown"),
        # an order after the rush has oversold
        (make_report(3, stock_left=0), {"verdict": "exact"}, None, "oversold"),
        (make_report(1, stock_left=0, is_open=False), STOPPED, None, "stopped"),
        (make_report(3, stock_left=0, is_open=False), STOPPED, None, "oversold"),
        # during a rush only overselling is certain
        (make_report(2), None, {"lock": "redis"}, "running"),
        (make_report(3, stock_left=1), None, {"lock": "redis"}, "oversold"),
        # without a rush the orders decide
        (make_report(3, stock_left=0), None, None, "oversold"),
        (make_report(2), None, None, "exact"),
        (make_report(2, stock_left=1), None, None, "open"),
        (make_report(0, locks=[], is_open=False), None, None, "closed"),
        (make_report(1, locks=["none", "redis"]), None, None, "open"),
    ],
    ids=[
        "verdict of the run",
        "unknown run",
        "exact run, then an order too many",
        "stopped run",
        "stopped run that has oversold",
        "during a rush",
        "during a rush that has oversold",
        "three orders of two units",
        "every unit sold",
        "one unit left",
        "closed without orders",
        "two strategies",
    ],
)
def test_verdict_comes_from_run_rush_or_orders(
    report: dict[str, Any], run: dict[str, Any] | None, rush: dict[str, Any] | None, verdict: str
) -> None:
    """A sale's verdict and lock come from its finished rush, its current rush, or its orders.

    Here every finished rush has the lock `none`, every current rush `redis`.

    run   the results of the finished rush of the sale, if any
    rush  the current rush of the sale, if any
    """
    finished_rushes = {1: {**run, "lock": "none"}} if run else {}
    sale = add_rush_fields(report, finished_rushes, rush and {**rush, "sale": 1})
    expected_lock = ", ".join(report["locks"])
    if rush:
        expected_lock = "redis"
    if run:
        expected_lock = "none"
    assert (sale["verdict"], sale["lock"]) == (verdict, expected_lock)
