"""Fixtures of the demo's tests: some of shop/tests, and the folder of the page's rushes."""

from pathlib import Path

import pytest
from pytest_django import Settings

from demo.tests.page_rushes import Rushes
from shop.tests.conftest import (
    _empty_redis,
    _forget_cached_state,
    _silence_expected_logs,
    django_db_setup,
    redis_outage,
)

__all__ = [
    "_empty_redis",
    "_forget_cached_state",
    "_silence_expected_logs",
    "django_db_setup",
    "redis_outage",
]


@pytest.fixture
def rushes(settings: Settings, tmp_path: Path) -> Rushes:
    """A stand-in for make serve: it reads the requests for rushes that the page writes."""
    settings.SHOP_RUSH_FOLDER = str(tmp_path)
    return Rushes(tmp_path)
