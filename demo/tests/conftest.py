"""Fixtures of the demo's tests: some from shop/tests, and the folder of the page's rushes."""

from pathlib import Path

import pytest
from pytest_django import Settings

from demo.tests.rush_folder import RushFolder
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
def rush_folder(settings: Settings, tmp_path: Path) -> RushFolder:
    """The folder into which the page writes its requests for rushes. No make serve is running."""
    settings.SHOP_RUSH_FOLDER = str(tmp_path)
    return RushFolder(tmp_path)
