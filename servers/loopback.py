"""This machine's own address: its free ports, and no proxy on the way to it."""

from __future__ import annotations

import os
import socket

LOOPBACK = ("127.0.0.1", "localhost")


def ask_loopback_directly() -> None:
    """Add this machine to no_proxy, for this process and those that it starts from now on.

    With http_proxy but without no_proxy, requests to 127.0.0.1 would go to that proxy.
    """
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    if "*" not in names:
        names += [name for name in LOOPBACK if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


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
