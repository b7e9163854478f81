"""Whether a worker of Locust is still connected to its master."""

from __future__ import annotations

from typing import Any

import zmq
from locust.rpc import Message
from locust.runners import MasterRunner


def reach(runner: MasterRunner, id: str, kind: str, data: dict[str, Any]) -> bool:
    """Send a message to a worker. Returns whether it is connected.

    Locust notices a lost worker by its heartbeats alone, after many seconds. Its socket knows at
    once when a connection is gone, and says so to a sender that asks for it.
    """
    message: Any = Message  # it has no types
    frames = [id.encode(), message(kind, data, id).serialize()]
    socket = runner.server.socket
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:  # connected, and busy
        return True
    except zmq.ZMQError:
        return False
    finally:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 0)  # Locust's own messages go to lost ones too
    return True
