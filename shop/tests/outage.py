"""An outage of Valkey (or Redis), which a test begins and ends."""

import signal

from servers import embedded
from servers.valkey import Valkey


class Outage:
    """An outage of a Valkey server. After it the server has the same port, but no data."""

    def __init__(self, server: Valkey) -> None:
        self.server = server
        self._has_begun = False

    def begin(self) -> None:
        """Kill the server, unless the outage has already begun."""
        if not self._has_begun:
            self._has_begun = True
            self.server.stop(signal.SIGKILL)

    def end(self) -> None:
        """Start the server again, if the outage has begun."""
        if self._has_begun:
            embedded.kill_at_exit(self.server.start())
            self._has_begun = False
