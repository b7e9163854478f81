"""Which buyer has the lock after each turn of a recorded schedule.

The buyer who has the lock on its server may differ from the buyers who believe that they have it.

worlds.py explains schedules, turns and Moves.
"""

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
    RecordedEvent,
    World,
    list_beginnings,
    read_events,
)

#: The text for a lock without an owner. pages/shared/board.js has the same text.
FREE = "free"


@dataclass(frozen=True, slots=True)
class LockState:
    """The state of the lock on its server at a moment of a schedule.

    owner      the buyer who has the lock; empty if it is free, or if the owner was not recorded
    lacks_ttl  whether the owner has sent SETNX and not yet EXPIRE
    fences     buyer -> the fence of the lock that it acquired last; the first fence is 1
    grants     how often the lock was acquired so far, which is also the highest fence
    """

    owner: str = ""
    lacks_ttl: bool = False
    fences: Mapping[str, int] = field(default_factory=dict)
    grants: int = 0

    def apply_event(self, event: RecordedEvent) -> "LockState":
        """Return the state after an event of a turn. Only events of the buyers change it."""
        buyer = event.buyer
        if buyer not in BUYERS:
            return self
        if event.kind == "setnx:before_expire":
            return replace(self, owner=buyer, lacks_ttl=True)
        if event.kind == "acquired":
            grants = self.grants + 1
            # Each acquisition gets the next fence, from 1. So the fence is the number of grants.
            fences = {**self.fences, buyer: grants}
            return replace(self, owner=buyer, lacks_ttl=False, fences=fences, grants=grants)
        if event.kind == "released" and self.owner == buyer:
            return replace(self, owner="")
        return self


def find_lock_state(moves: Moves, turns_made: str) -> LockState:
    """Return the state of the lock on its server after the turns in `turns_made`, such as `AAB`."""
    lock = LockState()
    for beginning in list_beginnings(turns_made):
        turn = moves[beginning]
        for event in read_events(turn):
            lock = lock.apply_event(event)
        if beginning[-1] in (RESTART, FAILOVER):
            lock = replace(lock, lacks_ttl=False)  # the server has lost the key
        # The recorder learns the token of a buyer's lock after EXPIRE. So there is no recorded
        # owner between SETNX and EXPIRE, and the owner that apply_event() has set is kept.
        if not lock.lacks_ttl:
            lock = replace(lock, owner=read_owner(turn["state"]))
    return lock


def read_owner(state: Sequence[Any]) -> str:
    """Return the buyer who has the lock on its server in a recorded state.

    Empty if the lock is free, or if the state has no owner, as in schedules.json. Moves in
    worlds.py explains states.
    """
    return "".join(state[3:])


def read_believers(state: Sequence[Any]) -> str:
    """Return the buyers who, in a recorded state, believe that they have the lock.

    The text is empty, `A`, `B`, `AB` or `BA`. Moves in worlds.py explains states.
    """
    return str(state[2])


def has_recorded_owner(moves: Moves, turns_made: str) -> bool:
    """Return whether the state after `turns_made` has the lock's owner, as in worlds.json.

    The states in schedules.json do not have it.
    """
    return len(moves[turns_made]["state"]) > 3


def describe_lock(moves: Moves, turns_made: str, world: World) -> str:
    """Return who has the lock after the turns in `turns_made`, as text, such as `A's` or `free`.

    If the lock has no ttl, the text says so.
    """
    lock = find_lock_state(moves, turns_made)
    if not lock.owner:
        return FREE
    if lock.lacks_ttl or world.lock_duration == UNTIL_DELETED:
        return f"{lock.owner}'s, without a ttl"
    return f"{lock.owner}'s"


def find_believers(moves: Moves, turns_made: str) -> str:
    """Return the buyers who believe after these turns that they have the lock, such as `AB`.

    A buyer whose process was killed believes nothing, although the recorded state may contain it.
    """
    believers = read_believers(moves[turns_made]["state"])
    if KILL in turns_made:
        return believers.replace("A", "")
    return believers


def deletes_other_buyers_lock(moves: Moves, turns_made: str) -> bool:
    """Return whether the buyer who moved last deleted the other buyer's lock on the server.

    The other buyer owned the lock before this move and does not own it afterwards. It still
    believes that it has the lock, so it has not released the lock itself.
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


def describe_release(lock: LockState, buyer: str, *, deletes_other: bool) -> str:
    """Return the text for a buyer who releases its lock, and who may have lost the lock before.

    lock           the state of the lock before the release
    deletes_other  whether the release deletes the other buyer's lock
    """
    other = OTHER_BUYER[buyer]
    if deletes_other:
        return f"deletes the lock, which is {other}'s"
    if lock.owner == buyer:
        return "gives the lock back"
    if lock.owner == other:
        return f"finds its lock gone (it is {other}'s now), deletes nothing"
    return "finds its lock gone, deletes nothing"
