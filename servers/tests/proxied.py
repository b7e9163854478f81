"""Clients, and looks at the state of a proxy."""

from __future__ import annotations

import socket

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.proxy.proxy import Proxy
from servers.tests.polling import eventually as eventually

#: Seconds that a client waits for an answer in these tests.
SILENCE = 0.3


def client_at(port: int, *, timeout: float = 5.0) -> redis.Redis:
    return redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        decode_responses=True,
    )


def is_queued(proxy: Proxy) -> bool:
    return any(each.client.queue for each in list(proxy._conditions.connections))


def has_lost(proxy: Proxy) -> int:
    return sum(each.has_lost for each in list(proxy._conditions.connections))


def has_left(proxy: Proxy) -> bool:
    connections = list(proxy._conditions.connections)
    return bool(connections) and all(
        each.client.transport is None and each.client.queue and each.server.transport is None
        for each in connections
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
