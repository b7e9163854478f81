"""The listening socket: how to end it without a reset for whoever has connected already.

What the kernel has connected and nobody has accepted is reset when the last process closes the
socket, with the purchase that may have been sent on it. So new handshakes must stop first.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
import sys

logger = logging.getLogger("shop.web")

#: Linux's numbers; Python's socket module does not name them.
SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27

#: Classic BPF over the TCP header: drop a segment with the SYN flag, take all others. The last
#: segment of a handshake that has begun has none.
_INSTRUCTIONS = (
    (0x30, 0, 0, 13),  # load the byte with the flags
    (0x45, 0, 1, 0x02),  # is SYN among them?
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # take
)
_CODE = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in _INSTRUCTIONS))
_PROGRAM = struct.pack("HP", len(_INSTRUCTIONS), ctypes.addressof(_CODE))


def _is_tcp_on_linux(listener: socket.socket) -> bool:
    return sys.platform == "linux" and listener.family in (socket.AF_INET, socket.AF_INET6)


def stop_handshakes(listener: socket.socket) -> None:
    """Drop new connections silently from now on, in every process that has this socket.

    The client tries again after a second, and is refused then. Does nothing where there is no
    such filter: not on Linux, or not TCP (a Unix socket's name is gone already).
    """
    if _is_tcp_on_linux(listener):
        try:
            listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _PROGRAM)
        except OSError as error:
            logger.warning("who connects in this moment may be reset: no filter: %s", error)


def allow_handshakes(listener: socket.socket) -> None:
    """Undo stop_handshakes(). A process that goes on serving must call it now and then: another
    one, which stops, may have the same socket (after a reload, or from systemd)."""
    if _is_tcp_on_linux(listener):
        try:
            listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        except OSError:
            return  # there was none
