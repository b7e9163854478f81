"""Named points in a purchase, where a demo or a test records what was found or stops the thread.

    arrives, begins, acquire, acquired, after_read, before_commit, after_commit, release, released
    unlocked_before_commit          the lock is free, the transaction is not committed
    reserve, reserved               a unit is asked for, and is held, in Redis
    settling, settled               orders of promises are written; and committed

In the locks of the articles:

    setnx:before_expire             SETNX has the lock, EXPIRE has not been sent
    setnx-timestamp:before_takeover an expired time was read, nothing was done about it yet
    token-get-del:before_del        GET found our token, DEL has not been sent
    watchdog:before_renew           the renewing thread is about to renew
    reentrant:before_subscribe      the lock was found taken, the channel is not subscribed to yet
    redlock:before_validity         the votes are in, the time they took has not been looked at
    zookeeper:before_watch          the predecessor is known, it is not watched yet

There is no probe unless somebody installs one, and then a point costs one comparison.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from locks import one_file
    from locks.lease import BaseLease

#: Called with the name of the point and its facts, in the thread that is there.
Probe = Callable[[str, Mapping[str, object]], None]

#: Whether a thread that reaches the point of this name may be stopped there.
Stops = Callable[[str], bool]

_probe: Probe | None = None
_stops: Stops = lambda name: True  # noqa: E731


def install(probe: Probe | None, stops: Stops = _stops) -> None:
    """Call `probe` at every point of this process from now on; None: no longer. Where `stops` says
    no, the probe must return at once: an event loop may be what calls it."""
    global _probe, _stops
    _probe, _stops = probe, stops


def point(name: str, **facts: object) -> None:
    """This thread is at the point `name` and has found these facts."""
    if _probe is not None:
        _probe(name, facts)


async def apoint(name: str, **facts: object) -> None:
    """This task is at the point `name`. Where the probe may stop it, a thread does the waiting."""
    if _probe is not None and _stops(name):
        await asyncio.to_thread(_probe, name, facts)
    else:
        point(name, **facts)


@contextmanager
def installed(probe: Probe) -> Iterator[None]:
    """Call `probe` at every point inside the block."""
    before = _probe, _stops
    install(probe)
    try:
        yield
    finally:
        install(*before)


# --- around a lock --------------------------------------------------------------------------------


#: A lease, of whatever lock. A purchase that takes none loads no lock.
Held: TypeAlias = "BaseLease | one_file.Lease"


@contextmanager
def seen(hold: AbstractContextManager[Held]) -> Iterator[Held]:
    """Enter `hold`, which takes a lock: points before and after that, and around its release."""
    point("acquire")
    lease = None
    try:
        with hold as lease, inside(lease):
            yield lease
    finally:
        if lease is not None:  # released also after a purchase that sold nothing
            point("released", **of_released(lease))


@contextmanager
def inside(lease: Held) -> Iterator[None]:
    """This thread holds the lock in the block, and it is released next."""
    point(
        "acquired",
        lock_name=lease.name,
        token=lease.token,
        fence=lease.fence,
        waited_ms=round(lease.waited_seconds * 1000, 3),
    )
    try:
        yield
    finally:
        point("release", token=lease.token)


def of_released(lease: Held) -> dict[str, object]:
    """The facts of the point `released`."""
    return {
        "token": lease.token,
        "outcome": lease.outcome,
        "held_ms": round(lease.held_seconds * 1000, 3),
    }
