"""`make levels`: the page of the levels, whose turns are played on real servers.

A turn is a letter: a move of the buyer A or B, or an outside event, such as a restart of the locks'
server (R). The element `#order` of the page shows the turns so far.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests
from playwright.sync_api import Page, expect

from servers.embedded import ROOT
from tools.site.levels import read_levels
from tools.site.tests.test_levels_page import find_shortest_schedule, press_key
from tools.site.tests.test_recorded import SHARED_SERVERS

#: Time for the program to play a schedule, and before the first one to start its servers.
PLAY_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run the program of `make levels`, which starts its own servers; yield the page's address.

    At the end, stop the program as Ctrl-C does, and check that it ends without an error.
    """
    environment = {name: value for name, value in os.environ.items() if name not in SHARED_SERVERS}
    command = [sys.executable, "-m", "tools.site.live_levels", "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]  # the first line is `levels  ADDRESS`
        os.killpg(process.pid, signal.SIGINT)  # the signal that Ctrl-C sends in a terminal
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_level_is_won_on_real_servers(address: str, page: Page) -> None:
    """The program plays each turn on its servers before the page shows the turn."""
    page.goto(f"{address}#restart")
    expect(page.locator("#verdict")).to_contain_text("Nobody has moved", timeout=PLAY_TIMEOUT_MS)
    level = next(level for level in read_levels() if level.slug == "restart")
    schedule = find_shortest_schedule(level)
    for turn in schedule:
        order_before = page.locator("#order").inner_text()
        press_key(page, turn)
        expect(page.locator("#order")).not_to_have_text(order_before, timeout=PLAY_TIMEOUT_MS)
    expect(page.locator("#order")).to_contain_text(schedule)
    expect(page.locator("#verdict .won")).to_be_visible(timeout=PLAY_TIMEOUT_MS)
    expect(page.locator("#recorded")).to_contain_text("on real servers")


def test_events_stay_possible_after_going_back(address: str, page: Page) -> None:
    """After the turns AB the visitor takes B's turn back.

    The outside event R, a restart of the locks' server, must still be possible.
    """
    page.goto(f"{address}#restart/AB")
    expect(page.locator("#order")).to_contain_text("AB", timeout=PLAY_TIMEOUT_MS)
    page.keyboard.press("Backspace")
    expect(page.locator("#order")).to_have_text("So far: A, 1 move", timeout=PLAY_TIMEOUT_MS)
    expect(page.locator("[data-event=R]")).to_have_attribute("aria-disabled", "false")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"world": "none", "schedule": "AZ"}, "Z of AZ is impossible"),
        ({"world": "atlantis", "schedule": "A"}, "there is no world 'atlantis'"),
    ],
)
def test_impossible_schedule_is_refused(address: str, query: dict[str, str], message: str) -> None:
    """No turn has the letter Z. A world is a strategy with its stock and its outside events."""
    response = requests.get(address.replace("levels.html", "turns"), params=query, timeout=120)
    assert response.status_code == 400
    assert response.json() == {"error": message}


def test_other_host_is_refused(address: str) -> None:
    """A request for another host is refused. Otherwise another site could use DNS rebinding.

    In DNS rebinding, the name of that site resolves to 127.0.0.1.
    """
    response = requests.get(address, headers={"Host": "shop.example"}, timeout=10)
    assert response.status_code == 400
