"""Two stock nodes behind nginx with the project's own configuration: slow clients hold up nobody,
and no purchase is lost when a node is restarted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from loadtest.stack.stack import SERVERS, Stack
from loadtest.tests.nginx import Nginx, program
from loadtest.tests.raw_clients import (
    CROWDS,
    HEALTH,
    PAGES,
    Customers,
    get,
    longest_wait,
    post_buy,
    whole_answer,
)

#: Seconds.
SOON = 0.5
#: How often a busy machine may be slow. A server that is held up is so each time.
TRIES = 5
#: Purchases before and after each restart.
SOLD = 100
PURCHASE = post_buy({"buyer": "other", "lock": "conditional"}).replace(
    b"Idempotency-Key: none\r\n", b""
)


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    if program() is None:
        why = "nginx is not installed: apt-get install nginx"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    as_in_production = {"SHOP_MAX_PURCHASES": "92", "SHOP_BEHIND_PROXY": "1"}
    quick = {"SHOP_LOCK_WAIT": "20", "WEB_GRACEFUL_TIMEOUT": "10"}
    with (
        tempfile.TemporaryFile() as log,
        Stack(
            nodes=2,
            workers=1,
            threads=100,
            log=log,
            server=request.param,
            environment=as_in_production | quick,
        ) as stack,
    ):
        yield stack
        for node in stack.nodes:  # it would answer first those in the crowd who hold the lock
            node.stop(0)


@pytest.fixture(scope="module")
def nginx(stack: Stack) -> Iterator[Nginx]:
    ports = [node.port for node in stack.nodes]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "log").open("wb") as log,
        Nginx(Path(folder), nodes=ports, log=log) as nginx,
    ):
        yield nginx


def restart(stack: Stack, number: int) -> None:
    node = stack.nodes[number]
    node.stop(15)
    node.start()
    node.wait_until_ready(stack.shop(number))


def assert_books_are_exact(stack: Stack, sale: int, customers: Customers) -> None:
    """Every key was answered `sold` in the end, and has one order."""
    assert customers.lost == {}
    assert set(customers.outcomes.values()) == {"sold"}
    keys = [order["key"] for order in stack.shop().orders(sale)]
    assert sorted(keys) == sorted(customers.outcomes)
    assert stack.shop().sale(sale)["lost_updates"] == 0


def test_nodes_taken_out_of_nginx_first_are_restarted_without_an_unknown(
    stack: Stack, nginx: Nginx
) -> None:
    sale = stack.shop().restock(product="apple", stock=1_000_000)["sale"]
    with Customers(nginx.port) as customers:
        for number in range(2):
            customers.buy_more(SOLD)
            nginx.send_nothing_to(number)
            restart(stack, number)
            customers.buy_more(SOLD)
            nginx.send_nothing_to()
    assert customers.unknown == set()
    assert_books_are_exact(stack, sale, customers)


def test_unannounced_restarts_answer_every_purchase_and_its_key_says_what_became_of_it(
    stack: Stack, nginx: Nginx
) -> None:
    sale = stack.shop().restock(product="apple", stock=1_000_000)["sale"]
    with Customers(nginx.port) as customers:
        for number in range(2):
            customers.buy_more(SOLD)
            restart(stack, number)
            customers.buy_more(SOLD)
    assert_books_are_exact(stack, sale, customers)


def test_of_guesses_at_the_admins_password_five_pass_and_the_next_is_429(nginx: Nginx) -> None:
    form = get("/admin/login/?next=/admin/")
    guess = form.replace(b"GET", b"POST").replace(b"Host:", b"Content-Length: 0\r\nHost:")

    def status(asked: bytes) -> bytes:
        return whole_answer(nginx.port, asked).split(b" ", 2)[1]

    assert [status(guess) for _ in range(7)] == [b"403"] * 5 + [b"429"] * 2
    assert status(form) == b"200"  # the form itself is no guess


@pytest.mark.parametrize("crowd", CROWDS)
def test_others_are_answered_soon_beside_200_or_more(
    stack: Stack, nginx: Nginx, crowd: str
) -> None:
    for product in ("apple", "queue"):
        stack.shop().restock(product=product, stock=1000)
    questions = [HEALTH, *PAGES, *([PURCHASE] if crowd != "waiting buyers" else [])]
    waits = [inf]
    with CROWDS[crowd].at(nginx.port):
        while waits[-1] > SOON and len(waits) <= TRIES:
            waits.append(longest_wait(nginx.port, questions))
    print(f"{stack.server}: {crowd}: {waits[1:]}")
    assert waits[-1] <= SOON
