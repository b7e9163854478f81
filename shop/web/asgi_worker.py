"""A worker process of gunicorn that runs an event loop: its heartbeat, its bounds, and its end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Any

from gunicorn.workers.gasgi import ASGIWorker

from shop.web.asgi_connection import Connection
from shop.web.intake import Intake
from shop.web.listener import allow_handshakes, stop_handshakes
from shop.web.server import LINGER
from shop.web.worker import HANDSHAKE, HEARTBEAT
from shop.web.youngest import announce, is_youngest

#: Seconds for which a thread keeps the interpreter lock where others want it. Python's own 5 ms are
#: what a section under a lock would wait after each of its statements while the loop has work.
SWITCH = 0.0005
#: Parts of requests that are parsed in one turn of the event loop: some 20 ms of work.
PARSED_AT_ONCE = 40


class AsgiWorker(ASGIWorker):
    """gunicorn's own ASGI worker, which ends as WaitressWorker does, and whose connections are
    bounded in number and in time.

    On SIGTERM it answers everything that was sent, up to graceful_timeout: what is in flight, what
    sits in the kernel's queue, and what comes in on open connections within LINGER seconds.
    """

    def __init__(self, age: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(age, *args, **kwargs)
        announce(age)
        self.alive: bool
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.intake = Intake(PARSED_AT_ONCE)
        self.stopping_since: float | None = None

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        if cfg.is_ssl:
            raise RuntimeError("the nodes speak plain HTTP: put nginx in front of them for TLS")

    def handle_exit_signal(self) -> None:
        super().handle_exit_signal()
        self._ending.set()  # at once, not at its next heartbeat

    def handle_quit_signal(self) -> None:
        super().handle_quit_signal()
        self._ending.set()

    def connected(self, connection: Connection) -> None:
        """A client has connected. Where there are too many, the one that has been idle longest is
        closed for it; if all are being answered, the new one is refused."""
        self.accepted += 1
        self.connections.add(connection)
        if len(self.connections) <= self.worker_connections:
            return
        idle = [one for one in self.connections if one.is_idle() and one is not connection]
        if idle:
            min(idle, key=lambda one: one.idle_since)._close_transport()
        else:
            connection.refuse(503, "this node has too many connections; nothing was sold")

    def run(self) -> None:
        sys.setswitchinterval(SWITCH)
        super().run()

    async def _serve(self) -> None:
        self._ending = asyncio.Event()
        if not self.alive:
            return
        await self.asgi.open()
        for listener in self.sockets:
            self.servers.append(
                await self.loop.create_server(
                    lambda: Connection(self), sock=listener.sock, backlog=self.cfg.backlog
                )
            )
        while self.alive and self.ppid == os.getppid():
            self._look()
            for listener in self.sockets:
                allow_handshakes(listener.sock)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), HEARTBEAT)
        self.alive = False
        if not self._quick_shutdown:
            await self._end()

    def _look(self) -> None:
        """The heartbeat; and close what has taken too long."""
        self.notify()
        now = time.monotonic()
        for connection in list(self.connections):
            connection.close_if_late(now, stopping_since=self.stopping_since)

    # --- the end ----------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Answer what was sent, then return, at the latest after graceful_timeout."""
        began = self.stopping_since = time.monotonic()
        self.state["stopping"] = True
        refuse_from = began + min(LINGER, self.cfg.graceful_timeout / 2)
        await self._close_listeners(began)
        while self.connections and not self._quick_shutdown:
            now = time.monotonic()
            if now > began + self.cfg.graceful_timeout:
                break
            if now > refuse_from:
                self.asgi.lanes.refuse_waiting()
            self._look()
            await asyncio.sleep(0.05)

    async def _close_listeners(self, began: float) -> None:
        """Accept every connection in the kernel's queue, then close. Where handshakes can be
        stopped, new ones are kept out meanwhile; elsewhere they come in for LINGER at most."""
        is_last = is_youngest(self.age)
        close_at = began + (HANDSHAKE if is_last else 0.0)
        accepted = self.accepted
        while True:
            if is_last:
                for listener in self.sockets:
                    stop_handshakes(listener.sock)
            await asyncio.sleep(0.02)  # the loop accepts
            if self.accepted > accepted and is_last:
                accepted = self.accepted
                close_at = min(time.monotonic() + HANDSHAKE, began + LINGER)
            if time.monotonic() >= close_at:
                break
        for server in self.servers:
            server.close()
