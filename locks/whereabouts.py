"""Whether a subscription is still where the lock's commands go. No I/O.

Behind a name or a virtual address, and after REPLICAOF or FAILOVER, the connections to a demoted
master stay open, and its waiters would wait for wake-ups from a server that gives nothing to
anybody any more. Any command that writes meets its refusal (READONLY). Who only waits sends none:
so a new connection is opened now and then, which goes where commands go, and asks there.
"""

from __future__ import annotations

from typing import Any

ROLE = ("ROLE",)


def subscribers_of(channel: bytes) -> tuple[str | bytes, ...]:
    """The command that asks how many listen on the channel at the server that is asked."""
    return "PUBSUB", "NUMSUB", channel


class IsReplica(ConnectionError):
    """The client's address leads to a replica. Nothing can be locked until it leads to a master."""

    def __init__(self) -> None:
        super().__init__("this server is a replica; wait until the address leads to a master")


def is_replica(role: Any) -> bool:
    """What ROLE says. False where it was refused: without the right to ask, trust the address."""
    return isinstance(role, list) and bool(role) and role[0] != b"master"


def is_elsewhere(role: Any, subscribers: Any) -> bool:
    """Whether a subscription is at another server than the one that gave these two replies.

    False as long as that one is a replica: the address may not have followed a failover yet, and
    then there is nowhere to go.
    """
    known = isinstance(subscribers, list) and len(subscribers) == 2
    return known and not is_replica(role) and subscribers[1] == 0
