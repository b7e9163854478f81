"""A rule to lose one reply: which request it belongs to, and whether it was lost."""

from __future__ import annotations

import threading


class LostReply:
    """The server carries a request out, and its reply never reaches the client.

    match  bytes of the request
    after  bytes that the same connection must have sent before it; empty for none
    reply  the first bytes that were dropped; empty until then

    With `is_of_request` the request itself is lost, and the server never sees it.
    """

    def __init__(self, match: bytes, after: bytes = b"", *, is_of_request: bool = False) -> None:
        if not match:
            raise ValueError("every request contains b'': say which one, as in match=b'COMMIT'")
        self.match = match
        self.after = after
        self.is_of_request = is_of_request
        self.reply = b""
        self.is_cancelled = False
        self._fired = threading.Event()

    @property
    def fired(self) -> bool:
        """Whether the reply was lost: the evidence of the fault."""
        return self._fired.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait until the reply was lost, at most `timeout` seconds. Returns whether it was."""
        return self._fired.wait(timeout)

    def cancel(self) -> None:
        """Lose no reply any more. One whose request was passed on already is still lost."""
        self.is_cancelled = True

    def fire(self, reply: bytes) -> None:
        """The proxy has lost it."""
        self.reply = reply
        self._fired.set()


class Watcher:
    """Looks for the request of one LostReply on one connection, in chunks of any size."""

    def __init__(self, rule: LostReply) -> None:
        self._to_come = [part for part in (rule.after, rule.match) if part]
        self._tail = b""

    def sees(self, data: bytes) -> bool:
        """Whether these bytes complete the request. Bytes before `after` do not match."""
        text = self._tail + data
        while self._to_come:
            part = self._to_come[0]
            _, found, rest = text.partition(part)
            if not found:
                self._tail = text[max(0, len(text) - len(part) + 1) :]
                return False
            self._to_come.pop(0)
            text = rest
        return True
