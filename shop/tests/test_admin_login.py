"""The admin's login: a few wrong passwords, then a pause, counted for all nodes together."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from shop.ops.redis import locks_client
from shop.tests import servers
from shop.tests.node import Node, new_database
from shop.tests.outage import Outage
from shop.tests.till import rolled_back

pytestmark = rolled_back
RIGHT, WRONG = "correct horse battery staple", "guess"
LOGIN = "/admin/login/"


@pytest.fixture(autouse=True)
def clerk(settings: Settings) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # a fast one
    return User.objects.create_superuser("clerk", password=RIGHT)


@pytest.fixture(autouse=True)
def _three_in_a_minute(settings: Settings) -> None:
    settings.ADMIN_LOGIN_LIMIT = (3, 60.0)


def log_in(password: str, *, name: str = "clerk", address: str = "198.51.100.7") -> Any:
    """The answer to one attempt, by a browser that has no session."""
    return Client(REMOTE_ADDR=address).post(LOGIN, {"username": name, "password": password})


def guess(times: int, **how: str) -> list[int]:
    return [log_in(WRONG, **how).status_code for _ in range(times)]


def test_after_three_wrong_passwords_the_address_is_refused_even_with_the_right_one() -> None:
    assert guess(3) == [200, 200, 200]
    answer = log_in(RIGHT)
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert "Too many failed logins" in answer.content.decode()
    assert "sessionid" not in answer.cookies
    assert log_in(RIGHT, address="203.0.113.9").status_code == 302, "somebody else may log in"


def test_an_address_that_is_refused_does_not_lock_the_account() -> None:
    """Or anybody who knows a name would keep its owner out."""
    assert guess(30).count(429) == 27
    assert log_in(RIGHT, address="203.0.113.9").status_code == 302


def test_an_account_guessed_from_many_addresses_is_refused_however_its_name_is_written() -> None:
    """A limit by address alone is no limit for whoever has many."""
    names = ["clerk", "Clerk", " clerk", "\uff43lerk"]
    for number in range(12):
        name = names[number % len(names)]
        assert guess(1, name=name, address=f"198.51.100.{number}") == [200]
    assert log_in(RIGHT, address="203.0.113.9").status_code == 429


def test_an_ipv6_network_is_one_address() -> None:
    """A customer has 2^64 of them."""
    assert [guess(1, address=f"2001:db8::{number:x}")[0] for number in range(4)][-1] == 429
    assert log_in(RIGHT, address="2001:db8:0:1::1").status_code == 302
    assert guess(4, address="::ffff:198.51.100.7")[-1] == 429
    assert guess(1, address="::ffff:198.51.100.8") == [200], "IPv4 is no network of IPv6"


def test_a_successful_login_is_not_counted_and_does_not_wipe_out_the_failures_before_it() -> None:
    """Wiped out, an attacker with an account of his own would begin anew between two guesses."""
    assert [log_in(RIGHT).status_code for _ in range(12)] == [302] * 12
    assert guess(2) == [200, 200]
    assert log_in(RIGHT).status_code == 302
    assert guess(2) == [200, 429]


def test_the_window_ends_and_nothing_is_left() -> None:
    guess(3)
    assert log_in(RIGHT).status_code == 429
    keys: Any = locks_client().keys("throttle:*")
    assert len(keys) == 2
    assert all(0 < int(locks_client().pttl(key)) <= 60_000 for key in keys)
    assert not any(b"clerk" in key for key in keys), "what is typed there may be a password"
    for key in keys:
        locks_client().pexpire(key, 1)
    while locks_client().exists(*keys):
        pass
    assert log_in(RIGHT).status_code == 302


def test_without_redis_nobody_gets_in(redis_outage: Outage) -> None:
    redis_outage.begin()
    answer = log_in(RIGHT)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert "sessionid" not in answer.cookies
    assert Client().get(LOGIN).status_code == 200, "the form is shown"
    redis_outage.end()
    assert log_in(RIGHT).status_code == 302


# --- two nodes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[list[Node]]:
    url = new_database()
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder, ExitStack() as stack:
        nodes = [
            stack.enter_context(
                Node(Path(folder) / f"{name}.log", database_url=url, redis_url=servers.valkey.url)
            )
            for name in "ab"
        ]
        with psycopg.connect(url) as database:
            database.execute(
                "INSERT INTO auth_user (username, password, is_staff, is_superuser, is_active,"
                " first_name, last_name, email, date_joined)"
                " VALUES ('clerk', %s, true, true, true, '', '', '', now())",
                [make_password(RIGHT, hasher="pbkdf2_sha256")],
            )
        yield nodes


def log_in_at(node: Node, password: str) -> int:
    """Status of one attempt as a browser makes it: the form first, for its CSRF token."""
    asked = HTTPConnection("127.0.0.1", node.port, timeout=30)
    try:
        asked.request("GET", LOGIN)
        shown = asked.getresponse()
        cookie = (shown.getheader("Set-Cookie") or "").partition(";")[0]
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', shown.read().decode())
        assert token
        form = {"username": "clerk", "password": password, "csrfmiddlewaretoken": token[1]}
        headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        asked.request("POST", LOGIN, urlencode(form), headers)
        return asked.getresponse().status
    finally:
        asked.close()


def test_of_many_guesses_at_once_on_two_nodes_no_more_than_the_limit_are_looked_at(
    two_nodes: list[Node],
) -> None:
    """Counted after the check, or in each process, a burst would be let through."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: log_in_at(two_nodes[n % 2], WRONG), range(16)))
    assert sorted(answers) == [200] * 5 + [429] * 11  # ADMIN_LOGIN_LIMIT as it comes: 5/300s
    assert [log_in_at(node, RIGHT) for node in two_nodes] == [429, 429]
    locks_client().flushdb()
    assert [log_in_at(node, RIGHT) for node in two_nodes] == [302, 302]
