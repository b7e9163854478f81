"""Requests that a browser sends for a page of another site are refused; played in Chromium in
loadtest/tests/test_attacks_from_the_web.py."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from shop.tests.till import books, committed, open_sale, rolled_back

POSTS = ("/buy", "/restock", "/rush", "/admin/login/", "/no-such-page")
BUY = {"buyer": "ada", "lock": "redis"}


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
@pytest.mark.parametrize("path", POSTS)
def test_a_page_of_another_site_changes_nothing(path: str, headers: dict[str, str]) -> None:
    open_sale(1)
    answer = Client().post(path, BUY, headers=headers)
    assert answer.status_code == 403
    assert "CSRF_TRUSTED_ORIGINS" in answer.json()["error"]
    assert books() == (0, 1)


@committed
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://testserver"},
        {"Origin": "https://testserver"},  # behind a proxy that speaks HTTPS to the browser
    ],
)
def test_the_shops_own_page_and_programs_buy(headers: dict[str, str]) -> None:
    open_sale(1)
    assert Client().post("/buy", BUY, headers=headers).status_code == 201
    assert books() == (1, 0)


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
def test_the_pages_of_a_trusted_site_buy(settings: Any, origin: str, status: int) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example", "https://*.pages.example"]
    open_sale(1)
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": origin}
    assert Client().post("/buy", BUY, headers=headers).status_code == status


def test_a_link_from_another_site_opens_the_page() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.test"}
    assert Client().get("/", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/state", "/static/shop/page.css", "/admin/login/", "/buy"])
def test_a_foreign_host_reads_nothing(path: str) -> None:
    """DNS rebinding: the attacker's name means this machine."""
    answer = Client().get(path, headers={"host": "evil.test:8000"})
    assert answer.status_code == 403
    assert answer.json()["error"] == (
        "the host 'evil.test:8000' is not allowed here: see ALLOWED_HOSTS"
    )
