"""The connections of one listener: how many at most, and for how long."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any

from waitress.server import BaseWSGIServer

from shop.web.channel import Channel
from shop.web.errors import TooSlow

logger = logging.getLogger("shop.web")

#: Seconds for a whole request to come in, from its first byte; and for a client that does not read
#: to take some more of its answer.
REQUEST_TIMEOUT = 20.0
#: Seconds for a client to end its side of a connection that the node has ended.
CLOSE_TIMEOUT = 2.0
#: Seconds that a stopping node waits for the rest of a request, or for one on an idle connection.
LINGER = 2.0
#: Seconds between two warnings that the node is full.
WARN_EVERY = 10.0


class Server(BaseWSGIServer):
    """One listener and its connections. Bounds, all of them per process:

    number  connection_limit. One more, and the connection that has been idle longest is closed for
            it, one that has never asked before one that has. If all are being answered, new ones
            wait in the kernel's queue.
    time    without a request: channel_timeout. For a request to come in, or for an answer to be
            read: REQUEST_TIMEOUT.

    accepted        how many connections there have been
    stopping_since  when the node began to stop; None before
    """

    channel_class = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.accepted = 0
        self.stopping_since: float | None = None
        self._warned_at = 0.0
        super().__init__(*args, bind_socket=False, **kwargs)

    @property
    def stopping(self) -> bool:
        return self.stopping_since is not None

    # --- the end ----------------------------------------------------------------------------------

    def begin_to_stop(self) -> None:
        """From now on answers say `Connection: close`, and idle connections are given LINGER."""
        self.stopping_since = time.time()

    def accept_waiting(self) -> int:
        """Accept every connection in the kernel's queue. Returns how many there were."""
        first = before = self.accepted
        self.handle_accept()
        while self.accepted > before:
            before = self.accepted
            self.handle_accept()
        return self.accepted - first

    def close_listener(self) -> None:
        """Stop accepting. Open connections stay."""
        self.accepting = False
        self.del_channel()
        self.socket.close()

    def is_idle(self) -> bool:
        """Whether the listener is closed and every connection too."""
        return not (self.accepting or self.active_channels)

    # --- what waitress's event loop calls ---------------------------------------------------------

    def readable(self) -> bool:
        return bool(self.accepting and (not self._is_full() or self._idlest() is not None))

    def handle_accept(self) -> None:
        if not self._is_full() or self._make_room():
            super().handle_accept()

    def add_task(self, channel: Channel) -> None:
        if channel.total_outbufs_len:
            channel.park()
        else:
            self.task_dispatcher.add_task(channel)

    def maintenance(self, now: float) -> None:
        """Close what has taken too long. The worker calls it every second."""
        started = self.stopping_since or 0.0
        for channel in list(self.active_channels.values()):
            if channel.is_in_flight():
                continue
            if channel.closing_since is not None:
                late = now - channel.closing_since > CLOSE_TIMEOUT
            elif channel.total_outbufs_len:
                late = now - channel.last_activity > REQUEST_TIMEOUT
            elif channel.begun is None:
                bound = LINGER if started else self.adj.channel_timeout
                late = now - max(channel.last_activity, started) > bound and channel.is_silent()
            else:
                late = False
                bound = LINGER if started else REQUEST_TIMEOUT
                if now - max(channel.begun, started) > bound:
                    channel.refuse(TooSlow(f"a whole request must come in within {bound:g} s"))
            if late:
                channel.handle_close()

    def getsockname(self) -> tuple[str, str]:
        if self.family == socket.AF_UNIX:
            return "unix", self.socket.getsockname()
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        return socket.getnameinfo(self.socket.getsockname(), numeric)

    def set_socket_options(self, conn: socket.socket) -> None:
        if self.family != socket.AF_UNIX:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fix_addr(self, addr: Any) -> Any:
        return ("", None) if self.family == socket.AF_UNIX else addr

    # --- who goes when the node is full -----------------------------------------------------------

    def _is_full(self) -> bool:
        return len(self.active_channels) >= int(self.adj.connection_limit)

    def _idlest(self) -> Channel | None:
        idle = [one for one in self.active_channels.values() if not one.is_in_flight()]
        return min(idle, key=Channel.worth, default=None)

    def _make_room(self) -> bool:
        """Close the connection whose end loses least. Returns whether there is one."""
        idlest = self._idlest()
        if idlest is None:
            return False
        idlest.handle_close()
        if time.time() - self._warned_at > WARN_EVERY:
            self._warned_at = time.time()
            logger.warning(
                "%d connections: the longest idle are closed for new ones",
                self.adj.connection_limit,
            )
        return True
