"""GET /openapi.json: complete, and the same as what the shop does. test_fuzz.py holds every answer
of a real node against it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import get_resolver
from pytest_django import Settings

from shop import errors
from shop.strategies import STRATEGIES
from shop.tests.till import get

#: For the page alone, and the admin: no part of what others may build on.
OF_THE_PAGE = {
    "/",
    "/state",
    "/history",
    "/rush",
    "/rush/stop",
    "/steps",
    "/steps/step",
    "/admin/",
} | {"/strategies/{lock}/code"}
#: Of POST /buy, as design and docs/running.md have it.
CONTRACT = {
    "200": ["sold"],
    "201": ["sold"],
    "400": ["error"],
    "404": ["error"],
    "409": ["sold_out"],
    "410": ["closed"],
    "411": ["error"],
    "422": ["error"],
    "429": ["full", "throttled"],
    "503": ["busy", "lost", "unavailable", "unknown"],
}


def described() -> dict[str, Any]:
    answer = get("/openapi.json")
    assert answer.status == 200
    return answer.body


def body_of(response: dict[str, Any]) -> dict[str, Any]:
    return dict(response["content"]["application/json"]["schema"])


def test_every_path_of_the_shop_is_described_but_the_pages_own() -> None:
    routes = {f"/{pattern.pattern}" for pattern in get_resolver().url_patterns}
    named = {re.sub(r"<\w+:(\w+)>", r"{\1}", route).replace("sale_id", "sale") for route in routes}
    assert set(described()["paths"]) == named - OF_THE_PAGE


def test_every_outcome_of_a_purchase_is_described_with_its_status() -> None:
    responses = described()["paths"]["/buy"]["post"]["responses"]
    assert {
        status: body_of(response)["properties"]["outcome"]["enum"]
        for status, response in responses.items()
    } == CONTRACT
    for status in ("429", "503"):
        assert responses[status]["headers"]["Retry-After"]["required"]


def test_every_error_of_the_shop_is_in_the_contract() -> None:
    """Forbidden is no answer to a purchase."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, errors.ShopError) and kind not in (errors.ShopError, errors.Forbidden):
            assert kind.outcome in CONTRACT[str(kind.status)], kind


@pytest.mark.parametrize("demo", [True, False])
def test_what_a_demo_allows_is_described_in_a_demo_alone(demo: bool, settings: Settings) -> None:
    settings.SHOP_DEMO = demo
    members = described()["paths"]["/buy"]["post"]["requestBody"]["content"]["application/json"]
    wish = members["schema"]["properties"]
    assert ("hold_ms" in wish) is demo
    assert wish["lock"]["enum"] == (list(STRATEGIES) if demo else ["redis"])


def test_what_needs_the_token_says_so() -> None:
    closed = {
        path
        for path, methods in described()["paths"].items()
        for operation in methods.values()
        if "security" in operation
    }
    assert closed == {"/restock", "/sales/{sale}/orders"}
