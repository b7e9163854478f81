"""Requests from pages of other sites are refused, and every answer has the security headers.

loadtest/tests/test_attacks_from_the_web.py repeats the attacks in Chromium.
"""

import pytest
from django import urls
from django.http import HttpRequest, HttpResponse
from django.test import Client
from pytest_django import Settings

from shop.tests.purchases import committed, count_orders_and_stock, open_sale, rolled_back
from shop.urls import urlpatterns as shop_urlpatterns

POST_PATHS = ("/buy", "/restock", "/rush", "/admin/login/", "/no-such-page")
PURCHASE = {"buyer": "ada", "lock": "redis"}


@rolled_back
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver:81"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://testserver:81"},
        {"Origin": "http://testserver.evil.test"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
    ],
)
def test_page_of_another_site_changes_nothing(headers: dict[str, str]) -> None:
    """A POST with the headers that a browser sends for a page of another site is refused."""
    open_sale(1)
    for path in POST_PATHS:
        answer = Client().post(path, PURCHASE, headers=headers)
        assert answer.status_code == 403, path
        assert "CSRF_TRUSTED_ORIGINS" in answer.json()["error"]
    assert count_orders_and_stock() == (0, 1)


@committed
@pytest.mark.parametrize(
    "headers",
    [
        {},  # a program, not a browser
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"},
        {"Sec-Fetch-Site": "none"},  # the user typed the address
        {"Origin": "http://testserver"},
        {"Origin": "https://testserver"},  # behind a proxy that speaks HTTPS to the browser
    ],
)
def test_shop_page_and_programs_can_buy(headers: dict[str, str]) -> None:
    """A POST from the shop's own page, or without a browser's headers, is answered."""
    open_sale(1)
    assert Client().post("/buy", PURCHASE, headers=headers).status_code == 201
    assert count_orders_and_stock() == (1, 0)


@committed
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://front.example", 201),
        ("https://a.pages.example", 201),
        ("http://front.example", 403),
        ("https://front.example.evil.test", 403),
        ("https://evilpages.example", 403),
    ],
)
def test_only_trusted_sites_can_buy(settings: Settings, origin: str, status: int) -> None:
    """Pages of other sites can buy only if CSRF_TRUSTED_ORIGINS contains their origin."""
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example", "https://*.pages.example"]
    open_sale(1)
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": origin}
    assert Client().post("/buy", PURCHASE, headers=headers).status_code == status


def test_link_from_another_site_opens_the_page() -> None:
    """A GET request from another site is answered, because it changes nothing."""
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.test"}
    assert Client().get("/", headers=headers).status_code == 200


def test_foreign_host_name_is_refused() -> None:
    """A request with an unknown host name is refused on every path.

    This prevents DNS rebinding, in which the attacker's host name resolves to this machine.
    """
    for path in ("/", "/state", "/static/demo/page.css", "/admin/login/", "/buy"):
        answer = Client().get(path, headers={"host": "evil.test:8000"})
        assert answer.status_code == 403, path
        assert "the host 'evil.test:8000' is not allowed here" in answer.json()["error"]


# --- the security headers of every answer ---------------------------------------------------------


def failing_view(request: HttpRequest) -> HttpResponse:
    """Raise an error, which the shop answers with 500."""
    raise RuntimeError("from a test")


#: The shop's routes and `/fails`. The mark `pytest.mark.urls(__name__)` installs them for a test.
urlpatterns = [*shop_urlpatterns, urls.path("fails", failing_view)]

#: Kind of answer -> a path whose GET gets such an answer, and the answer's status.
ANSWERS = {
    "page": ("/", 200),
    "json": ("/healthz", 200),
    "static file": ("/static/demo/page.css", 200),
    "admin's login": ("/admin/login/", 200),
    "redirect": ("/admin/", 302),
    "wrong method": ("/buy", 405),
    "not found": ("/nowhere", 404),
    "error": ("/fails", 500),
}


@rolled_back
@pytest.mark.urls(__name__)
@pytest.mark.parametrize(("path", "status"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_has_every_security_header(path: str, status: int) -> None:
    """Each kind of answer has the headers, from a static file to an unexpected error."""
    client = Client(raise_request_exception=False)
    answer = client.get(path, headers={"X-Request-ID": "mine"})
    answer.close()  # a static file stays open until the answer is closed
    assert answer.status_code == status
    assert_security_headers(dict(answer.headers))


@rolled_back
def test_early_answers_have_the_security_headers(settings: Settings) -> None:
    """Answers that a middleware sends before any view is called have the security headers, too.

    They are the refusal of an unknown host, and the redirect to HTTPS.
    """
    refusal = Client().get("/", headers={"Host": "elsewhere.example", "X-Request-ID": "mine"})
    assert refusal.status_code == 403
    assert_security_headers(dict(refusal.headers))
    settings.SECURE_SSL_REDIRECT = True
    redirected = Client().get("/", headers={"X-Request-ID": "mine"})
    assert (redirected.status_code, redirected["Location"]) == (301, "https://testserver/")
    assert_security_headers(dict(redirected.headers))


def assert_security_headers(headers: dict[str, str]) -> None:
    """Assert that an answer has all security headers, and the request id `mine`."""
    policy = {}
    for directive in headers["Content-Security-Policy"].split(";"):
        name, _, sources = directive.strip().partition(" ")
        policy[name] = sources
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    for unsafe_source in ("unsafe-inline", "unsafe-eval", "data:", "*", "http"):
        assert unsafe_source not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Request-ID"] == "mine"
    for feature in ("camera", "geolocation", "microphone", "payment", "usb"):
        assert f"{feature}=()" in headers["Permissions-Policy"]
