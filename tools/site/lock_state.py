"""The state of the lock on its server, and its fences, at each turn of a recorded schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tools.site.worlds import (
    BUYERS,
    FAILOVER,
    KILL,
    OTHER_BUYER,
    RESTART,
    UNTIL_DELETED,
    Moves,
    World,
)

#: The text for a lock without an owner. shared/board.js has the same one.
FREE = "free"


@dataclass(frozen=True, slots=True)
class LockState:
    """The lock on its server at a moment of a schedule.

    owner      the buyer with the lock; empty if it is free, or if the owner was not recorded
    lacks_ttl  whether SETNX has been sent, and EXPIRE has not
    fences     the fence of each buyer's last lock; the first fence is 1
    grants     how often the lock was acquired so far, which is also the last fence
    """

    owner: str = ""
    lacks_ttl: bool = False
    fences: Mapping[str, int] = field(default_factory=dict)
    grants: int = 0

    def after(self, event: Sequence[Any]) -> "LockState":
        """Return the state after an event. Only an event of a buyer changes it."""
        actor, kind = event[:2]
        if actor not in BUYERS:
            return self
        if kind == "setnx:before_expire":
            return replace(self, owner=actor, lacks_ttl=True)
        if kind == "acquired":
            grants = self.grants + 1
            fences = {**self.fences, actor: grants}
            return replace(self, owner=actor, lacks_ttl=False, fences=fences, grants=grants)
        if kind == "released" and self.owner == actor:
            return replace(self, owner="")
        return self


def find_lock_state(moves: Moves, turns_made: str) -> LockState:
    """Return the state of the lock after the turns in `turns_made`."""
    lock = LockState()
    for length in range(1, len(turns_made) + 1):
        move = moves[turns_made[:length]]
        for event in move["did"]:
            lock = lock.after(event)
        if turns_made[length - 1] in (RESTART, FAILOVER):
            lock = replace(lock, lacks_ttl=False)  # the server has lost the key
        # Between SETNX and EXPIRE the recording has no owner, because the recorder learns the
        # buyer's token only at `acquired`, after EXPIRE. Then the owner is that of
        # LockState.after().
        if not lock.lacks_ttl:
            lock = replace(lock, owner=read_owner(move["state"]))
    return lock


def read_owner(state: Sequence[Any]) -> str:
    """Return the owner of the lock in a state; empty if the lock is free, or if it is not known.

    The fourth part of a state is the owner. The states in schedules.json do not have this part.
    """
    if len(state) < 4:
        return ""
    return str(state[3])


def read_believers(state: Sequence[Any]) -> str:
    """Return the buyers who believe in a state that they have the lock: empty, A, B, AB or BA."""
    return str(state[2])


def has_recorded_owner(moves: Moves, turns_made: str) -> bool:
    """Return whether the recording has the owner of the lock on the server."""
    return len(moves[turns_made]["state"]) >= 4


def describe_lock(moves: Moves, turns_made: str, world: World) -> str:
    """Return the owner of the lock after the turns in `turns_made`, as text for the page."""
    lock = find_lock_state(moves, turns_made)
    if not lock.owner:
        return FREE
    if lock.lacks_ttl or world.lock_duration == UNTIL_DELETED:
        return f"{lock.owner}'s, without a ttl"
    return f"{lock.owner}'s"


def find_believers(moves: Moves, turns_made: str) -> str:
    """Return the buyers who believe after these turns that they have the lock, such as `AB`.

    The recorded state contains A even after its process was killed. Here A is left out then.
    """
    buyers = read_believers(moves[turns_made]["state"])
    if KILL in turns_made:
        return buyers.replace("A", "")
    return buyers


def deletes_others_lock(moves: Moves, turns_made: str) -> bool:
    """Return whether the buyer who moved last deleted the other buyer's lock on the server.

    This is so if the other buyer still believes that it has the lock: it has not released the lock
    itself.
    """
    if turns_made[-1] not in BUYERS or not turns_made[:-1]:
        return False
    other = OTHER_BUYER[turns_made[-1]]
    state_before = moves[turns_made[:-1]]["state"]
    state = moves[turns_made]["state"]
    return (
        read_owner(state_before) == other
        and read_owner(state) != other
        and other in read_believers(state)
    )


def describe_release(lock: LockState, buyer: str, *, deletes_others: bool) -> str:
    """Return the text for a buyer who releases its lock, which it may have lost."""
    other = OTHER_BUYER[buyer]
    if deletes_others:
        return f"deletes the lock, which is {other}'s"
    if lock.owner == buyer:
        return "gives the lock back"
    if lock.owner == other:
        return f"finds its lock gone (it is {other}'s now), deletes nothing"
    return "finds its lock gone, deletes nothing"
