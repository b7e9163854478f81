"""An outage of Valkey, for one test."""

import signal

from servers import embedded
from servers.valkey import Valkey


class Outage:
    """A Valkey that a test kills, and starts again, empty, on its old port."""

    def __init__(self, server: Valkey) -> None:
        self.server = server
        self._down = False

    def begin(self) -> None:
        if not self._down:
            self._down = True
            self.server.stop(signal.SIGKILL)

    def end(self) -> None:
        if self._down:
            embedded.kill_at_exit(self.server.start())
            self._down = False
