"""The security headers and the request's id, on every kind of answer: a policy that one lacks
protects none."""

from __future__ import annotations

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from pytest_django import Settings

from shop.tests.till import rolled_back
from shop.urls import urlpatterns as shops_own

pytestmark = rolled_back


def fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("from a test")


urlpatterns = [*shops_own, path("fails", fails)]

ANSWERS = {
    "page": ("/", 200),
    "json": ("/healthz", 200),
    "static file": ("/static/shop/page.css", 200),
    "admin's login": ("/admin/login/", 200),
    "redirect": ("/admin/", 302),
    "wrong method": ("/buy", 405),
    "not found": ("/nowhere", 404),
    "error": ("/fails", 500),
}


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(("path", "status"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_has_every_security_header(path: str, status: int) -> None:
    client = Client(raise_request_exception=False)
    answer = client.get(path, headers={"X-Request-ID": "mine"})
    answer.close()  # a static file is open until then
    assert answer.status_code == status
    assert_secured(dict(answer.headers))


def test_a_refused_host_and_a_redirect_to_https_have_them_too(settings: Settings) -> None:
    refused = Client().get("/", headers={"Host": "elsewhere.example", "X-Request-ID": "mine"})
    assert refused.status_code == 403
    assert_secured(dict(refused.headers))
    settings.SECURE_SSL_REDIRECT = True
    redirected = Client().get("/", headers={"X-Request-ID": "mine"})
    assert redirected.status_code == 301
    assert_secured(dict(redirected.headers))


def assert_secured(headers: dict[str, str]) -> None:
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    for loose in ("unsafe-inline", "unsafe-eval", "data:", "*", "http"):
        assert loose not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Request-ID"] == "mine"
    for feature in ("camera", "geolocation", "microphone", "payment", "usb"):
        assert f"{feature}=()" in headers["Permissions-Policy"]
