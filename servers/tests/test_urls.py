"""manage.py brings a server where nothing names one: neither a URL nor a file with a URL."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from servers import embedded


class Attached(Exception):
    """A server was to be started."""


@pytest.mark.parametrize(
    ("named", "starts"),
    [
        ({"DATABASE_URL_FILE", "REDIS_URL_FILE"}, False),
        ({"DATABASE_URL_FILE", "REDIS_SENTINELS"}, False),
        ({"DATABASE_URL_FILE"}, True),
        ({"REDIS_URL_FILE"}, True),
        ({"REDIS_URL"}, True),
    ],
)
def test_a_server_is_started_only_where_one_of_the_two_is_not_named(
    named: set[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has neither server in it: `manage.py migrate` failed there for want of one."""
    for name in ("DATABASE_URL", "REDIS_URL", "REDIS_SENTINELS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    for name in named:
        monkeypatch.setenv(name, "/somewhere")

    def attach() -> None:
        raise Attached

    monkeypatch.setattr(embedded, "attach", attach)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    before = dict(os.environ)
    with pytest.raises(Attached) if starts else nullcontext():
        embedded.provide_urls()
    assert dict(os.environ) == before
