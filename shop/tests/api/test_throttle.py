"""A3's rate limiter: n attempts in a window, per address, by Redis's clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from pytest_django import Settings

from shop.errors import Throttled
from shop.ops.environment import parse_rate
from shop.ops.redis import locks_client
from shop.ops.throttle import admit
from shop.tests.outage import Outage
from shop.tests.till import (
    Answer,
    answer_of,
    assert_asks_to_come_back,
    books,
    buy,
    committed,
    open_sale,
    rolled_back,
)

pytestmark = rolled_back


@pytest.fixture
def three_in_a_while(settings: Settings) -> None:
    """A window that no test outlasts, on however busy a machine."""
    settings.BUY_RATE_LIMIT = parse_rate("3/100s")


HERE = "10.0.0.1"
KEY = f"throttle:{HERE}"
limited = pytest.mark.usefixtures("three_in_a_while")


def buy_from(address: str, buyer: str) -> Answer:
    client = Client(REMOTE_ADDR=address)
    return answer_of(client.post("/buy", {"buyer": buyer, "lock": "token"}))


def keys() -> Iterator[bytes]:
    client: Any = locks_client()
    yield from client.keys("throttle:*")


def ttl(key: str) -> int:
    client: Any = locks_client()
    return int(client.pttl(key))


def count(key: str) -> int:
    client: Any = locks_client()
    return int(client.get(key) or 0)


# --- off and on ---------------------------------------------------------------------------------


def test_it_is_off_unless_it_is_configured_and_counts_only_what_can_be_read(
    settings: Settings,
) -> None:
    open_sale(20)
    assert {buy().status for _ in range(4)} == {201}
    settings.BUY_RATE_LIMIT = parse_rate("3/100s")
    assert {buy(hold_ms="long").status for _ in range(4)} == {400}
    assert list(keys()) == []


@limited
def test_the_fourth_attempt_is_429_says_when_to_come_back_and_sells_nothing() -> None:
    open_sale(20)
    assert [buy().status for _ in range(3)] == [201] * 3
    answer = buy()
    assert answer.status == 429
    assert answer.body == {
        "outcome": "throttled",
        "error": "Too many attempts. Come back when the window is over.",
    }
    assert 1 <= int(answer.headers["Retry-After"]) <= 100
    assert books() == (3, 17)


@limited
@pytest.mark.parametrize("left_ms", [8_400, 7_900])
def test_retry_after_is_what_the_window_has_left_in_whole_seconds(left_ms: int) -> None:
    for _ in range(3):
        admit(address=HERE)
    locks_client().pexpire(KEY, left_ms)
    for _ in range(2):  # a refusal does not move the end of the window
        with pytest.raises(Throttled) as caught:
            admit(address=HERE)
        assert caught.value.retry_after == -(-left_ms // 1000)


# --- who is counted -----------------------------------------------------------------------------


@limited
def test_an_address_is_counted_whatever_name_it_gives_and_leaves_one_key() -> None:
    """Any visitor may send any name: nobody uses up another one's attempts, and Redis is not
    filled with keys, one for each name."""
    open_sale(20)
    answers = [buy_from("10.0.0.9", f"b{number}").status for number in range(6)]
    assert answers == [201] * 3 + [429] * 3
    assert buy_from(HERE, "b0").status == 201
    assert set(keys()) == {b"throttle:10.0.0.9", KEY.encode()}
    assert count("throttle:10.0.0.9") == 3
    assert 0 < ttl(KEY) <= 100_000


@limited
@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("", "not an address", True),
    ],
)
def test_an_address_counts_as_what_its_visitor_cannot_choose(
    one: str, other: str, is_same: bool
) -> None:
    """An IPv6 network has more addresses than Redis has room for keys."""
    for _ in range(3):
        admit(address=one)
    if is_same:
        with pytest.raises(Throttled):
            admit(address=other)
    else:
        admit(address=other)


@limited
@committed
def test_a_burst_is_counted_one_by_one() -> None:
    def is_admitted(number: int) -> bool:
        try:
            admit(address=HERE)
        except Throttled:
            return False
        return True

    with ThreadPoolExecutor(16) as burst:
        assert sum(burst.map(is_admitted, range(64))) == 3
    assert count(KEY) == 3


# --- no key without an end ----------------------------------------------------------------------


@limited
def test_a_key_that_lost_its_ttl_gets_one_again_so_that_nobody_is_shut_out_forever() -> None:
    """A3's way, INCR and then EXPIRE, leaves such a key after a crash between the two."""
    locks_client().set(KEY, 1_000)
    assert ttl(KEY) == -1
    with pytest.raises(Throttled) as caught:
        admit(address=HERE)
    assert caught.value.retry_after == 100
    assert 0 < ttl(KEY) <= 100_000


# --- what goes wrong ----------------------------------------------------------------------------


@limited
def test_without_redis_nobody_is_admitted_whatever_the_strategy(redis_outage: Outage) -> None:
    open_sale(1)
    redis_outage.begin()
    assert_asks_to_come_back(
        buy(lock="row-lock"), "unavailable", "the lock's server does not answer; nothing was sold"
    )
    assert books() == (0, 1)


# --- BUY_RATE_LIMIT -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rate"),
    [("", None), ("3/10s", (3, 10.0)), ("100/0.5s", (100, 0.5)), ("1/86400s", (1, 86_400.0))],
)
def test_a_rate_is_attempts_and_seconds_or_nothing(
    text: str, rate: tuple[int, float] | None
) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("3/10", "0/10s", "-3/10s", "3/0s", "three/10s", "3/10m", "3/86401s"),
        *("3 / 10s", "3/10.0.0s", "3/s", "3/0.0001s", "3/infs", "1/1s2/2s"),
    ],
)
def test_any_other_rate_is_an_error_that_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        parse_rate(text)
    assert str(caught.value) == f"BUY_RATE_LIMIT is {text!r}: write attempts/seconds, as 3/10s"
