"""The rate limiter (BUY_RATE_LIMIT): an IP address has n attempts to buy in a time window.

It is a version of the rate limiter in article A3, one of the articles in docs/sources.md.
"""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.test import Client, RequestFactory
from pytest_django import Settings

from shop.api.throttle import enforce_rate_limit
from shop.errors import Throttled
from shop.ops.environment import parse_buy_rate_limit
from shop.ops.redis import locks_client
from shop.tests.outage import Outage
from shop.tests.purchases import (
    JsonReply,
    assert_retry_later,
    buy,
    count_orders_and_stock,
    open_sale,
    parse_reply,
    rolled_back,
)

pytestmark = rolled_back


ADDRESS = "10.0.0.1"
#: The Redis key with the number of attempts of ADDRESS.
KEY = f"throttle:{ADDRESS}".encode()
with_rate_limit = pytest.mark.usefixtures("rate_limit")


@pytest.fixture
def rate_limit(settings: Settings) -> None:
    """Allow 3 attempts in a window of 100 s, which is longer than any test."""
    settings.BUY_RATE_LIMIT = parse_buy_rate_limit("3/100s")


def make_request_from(address: str) -> HttpRequest:
    """Return a POST /buy request of a client with this IP address."""
    return RequestFactory().post("/buy", REMOTE_ADDR=address)


def buy_from(address: str, buyer: str) -> JsonReply:
    """Send POST /buy from a client with this IP address, and return the reply."""
    client = Client(REMOTE_ADDR=address)
    return parse_reply(client.post("/buy", {"buyer": buyer, "lock": "token"}))


def read_rate_limit_windows() -> dict[bytes, tuple[int, int]]:
    """Return the rate limiter's keys in Redis, with the state of each window.

    A state is the number of attempts, and the ttl: the milliseconds until the window ends.
    """
    client: Any = locks_client()
    keys = client.keys("throttle:*")
    return {key: (int(client.get(key)), client.pttl(key)) for key in keys}


# --- off and on ---------------------------------------------------------------------------------


def test_rate_limit_is_off_by_default() -> None:
    """Without BUY_RATE_LIMIT any number of purchases is allowed, and Redis counts none."""
    open_sale(20)
    assert {buy().status for _ in range(4)} == {201}
    assert read_rate_limit_windows() == {}


@with_rate_limit
def test_unreadable_purchase_is_not_counted() -> None:
    """A request that is refused with 400 uses up no attempt."""
    open_sale(20)
    assert {buy(hold_ms="long").status for _ in range(4)} == {400}
    assert read_rate_limit_windows() == {}


@with_rate_limit
def test_retry_after_is_the_rest_of_the_window() -> None:
    """Retry-After has the seconds until the window ends, rounded up."""
    for _ in range(3):
        enforce_rate_limit(make_request_from(ADDRESS))
    for left_ms, retry_after_seconds in ((8_400, 9), (7_900, 8)):
        locks_client().pexpire(KEY, left_ms)
        for _ in range(2):  # a refusal does not move the end of the window
            with pytest.raises(Throttled) as refusal:
                enforce_rate_limit(make_request_from(ADDRESS))
            assert refusal.value.retry_after == retry_after_seconds


# --- which address is counted -------------------------------------------------------------------


@with_rate_limit
@pytest.mark.parametrize(("is_behind_proxy", "address"), [(True, "10.0.0.7"), (False, ADDRESS)])
def test_forwarded_address_is_used_only_behind_a_proxy(
    is_behind_proxy: bool, address: str, settings: Settings
) -> None:
    """X-Forwarded-For is read only if SHOP_BEHIND_PROXY is set, and only its last address.

    The proxy appends the client's address. The addresses before it may be forged by the client.
    """
    settings.SHOP_BEHIND_PROXY = is_behind_proxy
    open_sale(20)
    client = Client(REMOTE_ADDR=ADDRESS, HTTP_X_FORWARDED_FOR="10.0.0.66, 10.0.0.7")
    client.post("/buy", {"buyer": "b", "lock": "token"})
    assert list(read_rate_limit_windows()) == [f"throttle:{address}".encode()]


@with_rate_limit
def test_attempts_are_counted_by_address_not_by_buyer() -> None:
    """Each address has 3 attempts, whatever buyers' names it sends.

    If attempts were counted by name, a visitor could evade the limit with new names, or use up the
    attempts of another buyer.
    """
    open_sale(20)
    answers = [buy_from("10.0.0.9", f"b{number}") for number in range(6)]
    assert [answer.status for answer in answers] == [201] * 3 + [429] * 3
    assert count_orders_and_stock() == (3, 17)
    assert answers[3].body == {
        "outcome": "throttled",
        "error": "Too many attempts. Retry after the seconds in Retry-After.",
    }
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 100
    assert buy_from(ADDRESS, "b0").status == 201
    windows = read_rate_limit_windows()
    assert {key: attempts for key, (attempts, _) in windows.items()} == {
        b"throttle:10.0.0.9": 3,
        KEY: 1,
    }
    assert all(0 < ttl_ms <= 100_000 for _, ttl_ms in windows.values())


@with_rate_limit
def test_purchases_of_unknown_products_are_counted() -> None:
    """A purchase of an unknown product uses up an attempt, because it may cost a query."""
    open_sale(20)
    client = Client(REMOTE_ADDR=ADDRESS)
    statuses = []
    for number in range(4):
        fields = {"buyer": "b", "lock": "token", "product": f"invented-{number}"}
        statuses.append(client.post("/buy", fields).status_code)
    assert statuses == [404, 404, 404, 429]


@with_rate_limit
@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("", "not an address", True),
    ],
)
def test_addresses_of_one_ipv6_network_share_a_limit(
    first: str, second: str, is_shared: bool
) -> None:
    """All addresses of one IPv6 network share a limit, because one visitor may use all of them.

    Each IPv4 address has a separate limit. All requests without a valid address share one limit.

    is_shared  whether the attempts of `first` use up those of `second`
    """
    for _ in range(3):
        enforce_rate_limit(make_request_from(first))
    if is_shared:
        with pytest.raises(Throttled):
            enforce_rate_limit(make_request_from(second))
    else:
        enforce_rate_limit(make_request_from(second))


# --- no key without an end ----------------------------------------------------------------------


@with_rate_limit
def test_key_without_a_ttl_gets_a_ttl() -> None:
    """A key without a ttl gets the ttl of a new window. Without one it would block buyers forever.

    The rate limiter in article A3 (docs/sources.md) leaves such a key if it crashes between INCR
    and EXPIRE.
    """
    locks_client().set(KEY, 1_000)  # many more attempts than the limit of 3
    assert read_rate_limit_windows()[KEY] == (1_000, -1)
    with pytest.raises(Throttled) as refusal:
        enforce_rate_limit(make_request_from(ADDRESS))
    assert refusal.value.retry_after == 100
    _, ttl_ms = read_rate_limit_windows()[KEY]
    assert 0 < ttl_ms <= 100_000


# --- failures -----------------------------------------------------------------------------------


@with_rate_limit
def test_purchase_without_redis_is_refused_under_any_strategy(redis_outage: Outage) -> None:
    """The rate limiter counts attempts in Redis, so an outage stops even the strategy `row-lock`.

    `row-lock` locks a row in PostgreSQL, and needs no Redis without the rate limit.
    """
    open_sale(1)
    redis_outage.begin()
    assert_retry_later(
        buy(lock="row-lock"),
        "unavailable",
        "the rate limit's server does not answer; nothing was sold: retry with the same key",
    )
    assert count_orders_and_stock() == (0, 1)


# --- BUY_RATE_LIMIT -----------------------------------------------------------------------------

MALFORMED_RATES = [
    "3/10",
    "0/10s",
    "-3/10s",
    "3/0s",
    "three/10s",
    "3/10m",
    "3/86401s",
    "3 / 10s",
    "3/10.0.0s",
    "3/s",
    "3/0.0001s",
    "3/infs",
    "1/1s2/2s",
]


def test_rate_is_attempts_and_seconds_or_empty() -> None:
    assert parse_buy_rate_limit("") is None
    assert parse_buy_rate_limit("3/10s") == (3, 10.0)
    assert parse_buy_rate_limit("100/0.5s") == (100, 0.5)
    assert parse_buy_rate_limit("1/86400s") == (1, 86_400.0)


def test_malformed_rate_is_an_error() -> None:
    for text in MALFORMED_RATES:
        with pytest.raises(ImproperlyConfigured, match="write attempts/seconds, as 3/10s"):
            parse_buy_rate_limit(text)
