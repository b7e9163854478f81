"""The comparison of HTTP servers: what it starts, and its table."""

from __future__ import annotations

import sys

from loadtest.commands import http_servers, readme
from loadtest.commands.http_servers import SERVERS
from loadtest.http.slow_clients import CROWDS
from loadtest.tests.checkout import ROOT


def test_each_server_is_started_with_its_port_and_the_shop() -> None:
    for program in SERVERS.values():
        command = program.command(8123)
        assert command[:3] == [sys.executable, "-m", program.module]
        assert any("8123" in part for part in command)
        assert command[-1].startswith((http_servers.WSGI, http_servers.ASGI))


def test_a_server_that_does_not_answer_is_dead_in_the_table() -> None:
    found = {
        "server": "one",
        **dict.fromkeys(CROWDS, None),
        "silent": 12,
        **{"last_byte_s": 0.5, "rush_s": 0.4, "lost": 0, "sent": 9},
    }
    head, _, row = http_servers.markdown([found]).splitlines()
    assert head.count("|") == row.count("|") == len(CROWDS) + 5
    assert row.count("dead") == len(CROWDS) - 1
    assert row.endswith("| 0.50 | 0.40 | 0 of 9 |")


def test_the_page_has_a_place_for_the_table() -> None:
    page = (ROOT / "docs" / "http-servers.md").read_text()
    assert "new table" in readme.with_table(page, "http-servers", "new table\n")
