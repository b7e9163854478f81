"""The servers' proxy before a server on a port, with what only the locks' tests ask of it."""

from __future__ import annotations

from dataclasses import replace

from servers.proxy import proxy


class Proxy(proxy.Proxy):
    """It runs from the start. A lock's commands are found by their scripts: b"EVALSHA"."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port))
        self.start()

    def lead_to(self, port: int) -> None:
        """Where the connections go that are opened from now on; those that are open stay."""
        self._conditions.target = ("127.0.0.1", port)

    def freeze_subscriptions(self) -> None:
        """Deliver nothing more on the connections that are subscribed now, and leave them open."""
        for each in list(self._conditions.connections):
            if each.has_sent(b"SUBSCRIBE"):
                each.conditions = replace(each.conditions, hole=True)
