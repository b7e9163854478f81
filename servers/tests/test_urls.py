"""manage.py brings a server where nothing names one: neither a URL nor a file with a URL."""

from __future__ import annotations

import os

import pytest

from servers import embedded


class Attached(Exception):
    """A server was to be started."""


@pytest.fixture
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DATABASE_URL", "REDIS_URL", "REDIS_SENTINELS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)

    def attach() -> None:
        raise Attached

    monkeypatch.setattr(embedded, "attach", attach)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    return monkeypatch


def test_nothing_is_started_where_files_name_both_servers(
    nothing_named: pytest.MonkeyPatch,
) -> None:
    """A container has neither server in it: `manage.py migrate` failed there for want of one."""
    nothing_named.setenv("DATABASE_URL_FILE", "/run/oversold/database_url")
    nothing_named.setenv("REDIS_URL_FILE", "/run/oversold/redis_url")
    embedded.provide_urls()
    assert "DATABASE_URL" not in os.environ
    assert "REDIS_URL" not in os.environ


@pytest.mark.parametrize("named", ["DATABASE_URL_FILE", "REDIS_URL_FILE", "REDIS_URL"])
def test_a_server_is_started_where_one_of_the_two_is_not_named(
    named: str, nothing_named: pytest.MonkeyPatch
) -> None:
    nothing_named.setenv(named, "/somewhere")
    with pytest.raises(Attached):
        embedded.provide_urls()
