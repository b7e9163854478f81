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
        self._fired = threading.Event()
        self._taken = self._cancelled = False

    @property
    def fired(self) -> bool:
        """Whether the reply was lost: the evidence of the fault."""
        return self._fired.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait until the reply was lost, at most `timeout` seconds. Returns whether it was."""
        return self._fired.wait(timeout)

    def cancel(self) -> None:
        """Lose no reply any more. One whose request was passed on already is still lost."""
        self._cancelled = True

    # --- called in the proxy's thread -------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it still looks for its request."""
        return not self._taken and not self._cancelled

    def take(self) -> None:
        """The request was found: look for no other."""
        self._taken = True

    def give_back(self) -> None:
        """The connection ended before the reply came: look for another request."""
        self._taken = False

    def fire(self, reply: bytes) -> None:
        self.reply = reply
        self._fired.set()


class Watcher:
    """Looks for the request of one LostReply on one connection, in chunks of any size."""

    def __init__(self, rule: LostReply) -> None:
        self._rule = rule
        self._armed = not rule.after
        self._tail = b""

    def sees(self, data: bytes) -> bool:
        """Whether these bytes complete the request. Bytes before `after` do not match, and after a
        match `after` has to come again."""
        text = self._tail + data
        start = 0
        if not self._armed:
            at = text.find(self._rule.after)
            if at < 0:
                self._keep(text, 0, len(self._rule.after) - 1)
                return False
            self._armed = True
            start = at + len(self._rule.after)
        found = text.find(self._rule.match, start) >= 0
        if found:
            self._armed, self._tail = not self._rule.after, b""
        else:
            self._keep(text, start, len(self._rule.match) - 1)
        return found

    def _keep(self, text: bytes, start: int, size: int) -> None:
        self._tail = text[max(start, len(text) - size) :]
