"""Free ports of 127.0.0.1."""

from __future__ import annotations

import socket


def free_port(wanted: int = 0) -> int:
    """The port `wanted` if nobody listens there, else any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            if not wanted:
                raise
            return free_port()
        return int(probe.getsockname()[1])
