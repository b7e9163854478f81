"""How many commands this process has sent, the handshakes of new connections left out."""

from __future__ import annotations

import threading
from typing import Any

import redis.asyncio
from redis.connection import AbstractConnection

from ..aio.link import Link

sent = 0
_connecting = threading.local()


def install() -> None:
    """Count from now on. A pipeline counts as one; none of the contenders sends one."""
    connect: Any = AbstractConnection.connect
    send: Any = AbstractConnection.send_packed_command

    def quiet_connect(self: Any) -> None:
        _connecting.now = True
        try:
            connect(self)
        finally:
            _connecting.now = False

    def counting_send(self: Any, command: Any, check_health: bool = True) -> None:
        global sent
        if not getattr(_connecting, "now", False):
            sent += 1
        send(self, command, check_health=check_health)

    write: Any = Link.write
    execute: Any = redis.asyncio.Redis.execute_command

    def counting_write(self: Any, command: Any) -> None:
        global sent
        sent += 1
        write(self, command)

    def counting_execute(self: Any, *args: Any, **options: Any) -> Any:
        global sent
        sent += 1
        return execute(self, *args, **options)

    Link.write = counting_write  # type: ignore[method-assign]
    redis.asyncio.Redis.execute_command = counting_execute  # type: ignore[method-assign]
    AbstractConnection.connect = quiet_connect  # type: ignore[method-assign]
    AbstractConnection.send_packed_command = counting_send  # type: ignore[method-assign]
