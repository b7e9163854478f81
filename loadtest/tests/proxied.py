"""What the tests of the proxy share: clients, and what can be seen of a proxy from outside."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.proxy.proxy import Proxy

#: Seconds after which a client of these tests takes silence for an answer.
SILENCE = 0.3


def eventually(is_so: Callable[[], object], *, what: str, patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {patience} s: {what}"
        time.sleep(0.01)


def client_at(port: int, *, timeout: float = 5.0) -> redis.Redis:
    return redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        decode_responses=True,
    )


def is_queued(proxy: Proxy) -> bool:
    return any(link.client.queue for link in list(proxy._conditions.links))


def has_lost(proxy: Proxy) -> int:
    return sum(link.has_lost for link in list(proxy._conditions.links))


def has_left(proxy: Proxy) -> bool:
    links = list(proxy._conditions.links)
    return bool(links) and all(
        link.client.transport is None and link.client.queue and link.server.transport is None
        for link in links
    )


def names(direct: redis.Redis) -> list[str]:
    return [entry["name"] for entry in direct.client_list()]


def is_cut(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def listen_on(port: int) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
