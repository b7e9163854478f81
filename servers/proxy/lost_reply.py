"""One reply that gets lost on its way: which request it answers, and whether it happened."""

from __future__ import annotations

import threading


class LostReply:
    """The server did what a request asked, and its client was never told.

    match  bytes of the request
    after  bytes that the same connection must have sent before it; empty for none
    reply  the first bytes of what was thrown away; empty until then
    """

    def __init__(self, match: bytes, after: bytes = b"") -> None:
        if not match:
            raise ValueError("every request contains b'': say which one, as in match=b'COMMIT'")
        self.match = match
        self.after = after
        self.reply = b""
        self._fired = threading.Event()
        self._taken = self._cancelled = False

    @property
    def fired(self) -> bool:
        """Whether the reply got lost: the evidence of the fault."""
        return self._fired.is_set()

    def wait(self, timeout: float) -> bool:
        """Until it got lost, at most `timeout` seconds; False when it did not."""
        return self._fired.wait(timeout)

    def cancel(self) -> None:
        """No reply gets lost any more, but for one whose request is under way already."""
        self._cancelled = True

    # --- for the proxy's thread ------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it still looks for its request."""
        return not self._taken and not self._cancelled

    def take(self) -> None:
        """The request was found: no other connection's counts."""
        self._taken = True

    def give_back(self) -> None:
        """The connection ended before the reply came: look on."""
        self._taken = False

    def fire(self, reply: bytes) -> None:
        self.reply = reply
        self._fired.set()


class Watcher:
    """Looks for the request of one LostReply on one connection, however it is cut into chunks."""

    def __init__(self, rule: LostReply) -> None:
        self._rule = rule
        self._armed = not rule.after
        self._tail = b""

    def sees(self, data: bytes) -> bool:
        """Whether the request is complete with these bytes. What came before `after` is no match,
        and a match needs an `after` of its own."""
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
