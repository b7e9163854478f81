"""Looks at the state of a proxy, and of the sockets before it."""

from __future__ import annotations

import socket

import redis

from servers.proxy.proxy import Proxy
from servers.tests.polling import eventually as eventually

#: Seconds that a client waits for an answer in these tests.
SILENCE = 0.3


def has_lost(proxy: Proxy) -> int:
    """How many of its connections have lost bytes or a close."""
    return sum(each.has_lost for each in list(proxy._conditions.connections))


def has_read(proxy: Proxy, text: bytes) -> bool:
    """Whether a client has sent this, and the proxy has read it."""
    return any(each.has_sent(text) for each in list(proxy._conditions.connections))


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
