"""Counting a purchase, without a node: it never harms the purchase."""

from __future__ import annotations

import pytest
from django.test import Client
from prometheus_client import generate_latest
from pytest_django import Settings

from shop.ops.current import Facts
from shop.tests.metered import TOKEN
from shop.tests.till import buy, open_sale, rolled_back


@rolled_back
def test_a_purchase_is_answered_even_if_it_cannot_be_counted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The unit is sold by then: a full /dev/shm must not make a 500 of it."""
    from shop.ops import metrics

    settings.METRICS_TOKEN = TOKEN
    open_sale(1)

    def fails(**what: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(metrics, "count", fails)
    assert buy(lock="none").status == 201
    assert "not counted" in caplog.text


@rolled_back
def test_an_outcome_that_is_new_is_counted_like_any_other() -> None:
    from shop.ops import metrics

    facts = Facts("mine", outcome="draining", lock="redis")
    metrics.count(route="/buy", status=503, seconds=0.1, facts=facts)
    exposed = generate_latest().decode()
    assert 'oversold_purchases_total{lock="redis",outcome="draining"} 1.0' in exposed


@rolled_back
def test_without_a_token_in_the_settings_there_is_no_such_page() -> None:
    assert Client().get("/metrics").status_code == 404
