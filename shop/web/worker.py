"""A worker process of gunicorn that runs waitress: its loop, its heartbeat, and how it ends."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from gunicorn.workers.base import Worker
from waitress.adjustments import Adjustments

from shop.web.errors import Stopping
from shop.web.lanes import Lanes
from shop.web.listener import allow_handshakes, stop_handshakes
from shop.web.loop import Loop
from shop.web.server import LINGER, Server
from shop.web.youngest import announce, is_youngest

#: Bytes. A purchase has a few hundred of each.
LARGEST_HEADERS = 32 * 1024
LARGEST_BODY = 16 * 1024 * 1024
#: Seconds between two heartbeats at most.
HEARTBEAT = 1.0
#: Seconds for a handshake that has begun to end, counted from the last one that did.
HANDSHAKE = 0.25


class WaitressWorker(Worker):
    """One process: an event loop that reads and writes, and threads that answer.

    On SIGTERM it answers everything that was sent, up to graceful_timeout: what is in flight, what
    sits in the kernel's queue, and what comes in on open connections within LINGER seconds.
    Purchases that have no thread by then are refused with 503; they have not begun.
    """

    def __init__(self, age: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(age, *args, **kwargs)
        announce(age)
        self.servers: list[Server] = []
        self._next_look = 0.0

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        if cfg.is_ssl:
            raise RuntimeError("the nodes speak plain HTTP: put nginx in front of them for TLS")

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.alive = False
        if self.servers:
            self.servers[0].pull_trigger()  # the loop looks at once, not at its next heartbeat

    def run(self) -> None:
        # A queue is no news here: every rush makes one.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self.loop = Loop()
        self.lanes = Lanes(self.cfg.threads)
        self.servers = [self._serve(listener.sock) for listener in self.sockets]
        while self.alive and os.getppid() == self.ppid:
            self._turn(HEARTBEAT)
        self._end()

    def _serve(self, listener: Any) -> Server:
        adjustments = Adjustments(
            backlog=self.cfg.backlog,
            connection_limit=self.cfg.worker_connections,
            channel_timeout=self.cfg.keepalive,
            max_request_header_size=LARGEST_HEADERS,
            max_request_body_size=LARGEST_BODY,
            clear_untrusted_proxy_headers=False,  # SHOP_BEHIND_PROXY says whether to believe them
            log_socket_errors=False,
            ident="",
        )
        server = Server(
            self.wsgi,
            self.loop,
            _sock=listener,
            dispatcher=self.lanes,
            adj=adjustments,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
        )
        server.server_name = server.effective_host  # for a request without a Host
        return server

    def _turn(self, timeout: float) -> None:
        """Do what can be done now; wait for something to do, at most `timeout` seconds."""
        self.notify()
        now = time.monotonic()
        if now > self._next_look:
            self._next_look = now + min(timeout, HEARTBEAT)
            for server in self.servers:
                server.maintenance(time.time())
                if self.alive:
                    allow_handshakes(server.socket)
            self.loop.ask_all()
        self.loop.turn(timeout)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Answer what was sent, then return. Raises nothing when the time is over."""
        began = time.monotonic()
        refuse_from = began + min(LINGER, self.cfg.graceful_timeout / 2)
        for server in self.servers:
            server.begin_to_stop()
        self._close_listeners(began)
        while not all(server.is_idle() for server in self.servers):
            now = time.monotonic()
            if now > began + self.cfg.graceful_timeout:
                break
            if now > refuse_from:
                self.lanes.refuse_waiting(Stopping("this node is stopping: nothing was sold"))
            self._turn(0.1)

    def _close_listeners(self, began: float) -> None:
        """Accept every connection in the kernel's queue, then close. Where handshakes can be
        stopped, new ones are kept out meanwhile; elsewhere they come in for LINGER at most."""
        is_last = is_youngest(self.age)
        close_at = began + HANDSHAKE
        while True:
            for server in self.servers:
                if is_last:
                    stop_handshakes(server.socket)
            if sum([server.accept_waiting() for server in self.servers]):
                close_at = min(time.monotonic() + HANDSHAKE, began + LINGER)
            elif not is_last:
                break
            if time.monotonic() >= close_at:
                break
            self._turn(0.05)
        for server in self.servers:
            server.close_listener()
