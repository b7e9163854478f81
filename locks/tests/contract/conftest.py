"""Fixture: one door at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...testing.server import Server
from .doors import Door, single


@pytest.fixture(params=["threads", "asyncio"])
def door(request: pytest.FixtureRequest, server: Server) -> Iterator[Door]:
    door: Door = single(server.port)[request.param]()
    yield door
    door.close()
    door.admin.close()
