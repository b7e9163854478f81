"""The event loop: what it costs depends on the requests in flight, not on the idle connections."""

from __future__ import annotations

import selectors
from typing import Any

from waitress import wasyncore


class Loop(dict[int, Any]):
    """waitress's map of file descriptors to channels, and the poll over it.

    waitress's own loop asks every channel before every poll what it waits for: with 1,500 silent
    connections, or as many buyers who wait for a lock, that takes 5 ms a request. This one
    remembers. What a channel waits for changes in three cases alone: after an event of its own;
    while a thread writes its answer, which says so by ask_soon(); and by the clock, for which
    there is ask_all().
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        self._wanted: dict[int, int] = {}  # what the selector has been told of each
        self._soon: dict[int, None] = {}  # to be asked before the next poll

    def __setitem__(self, fd: int, channel: Any) -> None:
        super().__setitem__(fd, channel)
        self._forget(fd)
        self.ask_soon(fd)  # it is not whole yet

    def __delitem__(self, fd: int) -> None:
        super().__delitem__(fd)
        self._soon.pop(fd, None)
        self._forget(fd)

    def _forget(self, fd: int) -> None:
        # The selector itself is asked: a thread may close what the loop is just about to register.
        self._wanted.pop(fd, None)
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def ask_soon(self, fd: int) -> None:
        """Ask this one before every poll until it waits for something. From any thread."""
        self._soon[fd] = None

    def turn(self, timeout: float) -> None:
        """Poll once, for at most `timeout` seconds, and handle what has happened."""
        for fd in list(self._soon):
            self._ask(fd)
        for key, events in self._selector.select(timeout):
            if events & selectors.EVENT_READ and self.get(key.fd) is key.data:
                wasyncore.read(key.data)
            if events & selectors.EVENT_WRITE and self.get(key.fd) is key.data:
                wasyncore.write(key.data)
            self._ask(key.fd)

    def close(self) -> None:
        """Give the selector back."""
        self._selector.close()

    def ask_all(self) -> None:
        """Ask every channel anew what it waits for."""
        for fd in list(self):
            self._ask(fd)

    def _ask(self, fd: int) -> None:
        self._soon.pop(fd, None)  # before it is asked: a thread may say meanwhile that it changes
        channel = self.get(fd)
        if channel is None:
            return  # closed in the meantime
        wanted = selectors.EVENT_READ if channel.readable() else 0
        if channel.writable() and not channel.accepting:
            wanted |= selectors.EVENT_WRITE
        if not wanted and not getattr(channel, "awaits_its_thread", False):
            self.ask_soon(fd)
        known = self._wanted.get(fd, 0)
        if wanted == known:
            return
        self._wanted[fd] = wanted
        try:
            if not known:
                self._selector.register(fd, wanted, channel)
            elif wanted:
                self._selector.modify(fd, wanted, channel)
            else:
                self._selector.unregister(fd)
        except OSError:  # a thread has closed it in this instant
            self._wanted[fd] = 0
            channel.handle_close()
