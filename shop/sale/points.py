"""Named points in a purchase, at which a demo or a test can record facts or stop the thread.

A point is a place in the code of a purchase. When a thread reaches the point `reserved`, it calls
`point.send("reserved")`. That is a Django signal, and costs one comparison if it has no receiver. A
demo or a test installs one receiver, the probe; a shop in production installs none.

A purchase under a lock reaches these points, in this order:

    arrives, begins, acquire, acquired, after_read, before_commit, after_commit, release, released

Some strategies, and the settlement of promises (shop/reserve/settle.py), have further points:

    unlocked_before_commit          the lock is released, the transaction is not committed yet
    reserve, reserved               before and after a unit is reserved in Redis
    settling, settled               before and after the orders of a batch of promises are committed

In the locks of the articles:

    setnx:before_expire             SETNX has acquired the lock, EXPIRE has not been sent
    setnx-timestamp:before_takeover an expired time was read, the lock is not taken over yet
    token-get-del:before_del        GET found our token, DEL has not been sent
    watchdog:before_renew           the watchdog's thread is about to renew
    reentrant:before_subscribe      another owner has the lock, the channel is not subscribed to yet
    redlock:before_validity         the votes have arrived, their time has not been checked
    zookeeper:before_watch          the predecessor is known, but not watched yet

The two buyers of shop/schedules also report the points begin, at_commit and refused.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from django.dispatch import Signal

#: Called with the name of the point and its facts, in the thread that reached it. For a task see
#: reach_point_async().
Probe = Callable[[str, Mapping[str, object]], None]

#: Returns whether the probe may stop a thread at a point. The argument is the point's name.
MayStop = Callable[[str], bool]

#: The signal by which a thread reports that it is at a point: `point.send("after_read", amount=3)`.
point = Signal()


def _may_stop_anywhere(name: str) -> bool:
    return True


_probe: Probe | None = None
_may_stop: MayStop = _may_stop_anywhere


def _call_probe(sender: str, *, signal: Signal, **facts: object) -> None:
    if _probe is not None:
        _probe(sender, facts)  # the sender of the signal is the name of the point


def install_probe(probe: Probe | None, may_stop: MayStop = _may_stop_anywhere) -> None:
    """Call `probe` at every point of this process from now on; None removes it.

    At points for which `may_stop` returns False, the probe may be called in an event loop, so it
    must not wait there.
    """
    global _probe, _may_stop
    _probe = probe
    _may_stop = may_stop
    if probe is None:
        point.disconnect(_call_probe)
    else:
        point.connect(_call_probe)


async def reach_point_async(name: str, **facts: object) -> None:
    """Report that this task is at the point `name`.

    A receiver (the probe) that may wait at this point is called in a thread, so that the event loop
    goes on.
    """
    if _probe is not None and _may_stop(name):
        await asyncio.to_thread(partial(point.send, name, **facts))
    else:
        point.send(name, **facts)


@contextmanager
def use_probe(probe: Probe) -> Iterator[None]:
    """Call `probe` at every point inside the block."""
    previous_probe = _probe
    previous_may_stop = _may_stop
    install_probe(probe)
    try:
        yield
    finally:
        install_probe(previous_probe, previous_may_stop)
