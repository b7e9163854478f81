"""An outage of Valkey, for one test."""

import signal

from servers import embedded
from servers.valkey import Valkey


class Outage:
    """An outage of a Valkey server, which later starts again on the same port without data."""

    def __init__(self, server: Valkey) -> None:
        self.server = server
        self._is_under_way = False

    def begin(self) -> None:
        """Kill the server. During the outage this has no effect."""
        if not self._is_under_way:
            self._is_under_way = True
            self.server.stop(signal.SIGKILL)

    def end(self) -> None:
        """Start the server again. Without an outage this has no effect."""
        if self._is_under_way:
            embedded.kill_at_exit(self.server.start())
            self._is_under_way = False
