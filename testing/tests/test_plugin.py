"""The plugin's fixtures `interleave` and `rush`, with a live server and in a user's own project."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from testing import InterleavingFailed
from testing.tests.models import check_sold_once, reset_to_one_unit

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["testing.plugin"]


def post(url: str) -> int:
    """Return the status of one POST request."""
    try:
        with build_opener(ProxyHandler({})).open(
            Request(url, method="POST"), timeout=20
        ) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


@pytest.fixture
def shop_url(_tables: None, live_server: LiveServer, settings: Settings) -> str:
    """Return the URL of a live server with a view that oversells and a repaired one."""
    settings.ROOT_URLCONF = "testing.tests.urls"
    return live_server.url


def test_requests_to_live_server_are_interleaved(
    shop_url: str, interleave: Callable[..., Any]
) -> None:
    """The view of the first URL oversells, and interleave() finds an order that shows it."""

    def call() -> int:
        return post(f"{shop_url}/plain")

    with pytest.raises(InterleavingFailed, match="2 orders for 1 unit") as failure:
        interleave(call, call, before=reset_to_one_unit, check=check_sold_once, limit=6)
    assert "UPDATE warehouse_stock SET amount = 0 WHERE id = 1" in str(failure.value)


@pytest.mark.filterwarnings("ignore::testing.NotAllTried")
def test_repaired_view_passes_on_a_live_server(
    shop_url: str, interleave: Callable[..., Any]
) -> None:
    def call() -> int:
        return post(f"{shop_url}/repaired")

    for run in interleave(call, call, before=reset_to_one_unit, check=check_sold_once, limit=6):
        assert sorted(run.results) == [200, 409]


def test_rush_to_live_server(shop_url: str, rush: Callable[..., Any]) -> None:
    """Eight buyers want one unit: one gets status 200, and seven get 409."""
    reset_to_one_unit()
    assert sorted(rush(lambda: post(f"{shop_url}/repaired"), 8).returned) == [200] + [409] * 7


#: A test of a user of the plugin. It fails, because two calls of rename() lose an update.
TEST_OF_A_USER = """
import pytest
from django.contrib.auth.models import Group

def rename():
    group = Group.objects.get()
    group.name += "x"
    group.save()

def test_names(interleave):
    def before():
        Group.objects.all().delete()
        Group.objects.create(name="g")

    def check(run):
        assert Group.objects.get().name == "gxx"

    interleave(rename, rename, before=before, check=check)
"""


def test_failing_test_of_a_user_shows_the_timeline(tmp_path: Path) -> None:
    (tmp_path / "test_names.py").write_text(TEST_OF_A_USER)
    # pytest-django puts `test_` before this name, so the user's test does not use the database of
    # this test.
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/user{os.getpid()}")
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "testing.plugin",
            "--no-header",
            "-p",
            "shop.tests.servers",
            "--rootdir",
            str(tmp_path),
            "-c",
            "/dev/null",
            "--ds",
            "shop.settings",
            "-p",
            "no:cacheprovider",
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database.geturl()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert "Between A's" in process.stdout, process.stdout
    assert "InterleavingFailed: AssertionError" in process.stdout
