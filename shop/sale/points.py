"""Points: named places in the code of a purchase, at which a demo or a test can stop the thread.

When a thread reaches the point `reserved`, it sends the Django signal `point_reached`, with the
name of the point as the sender: `point_reached.send("reserved")`. A demo or a test installs one
receiver, the probe. It can record the purchase, or stop the thread. In production the signal has no
receiver, and sending it costs one comparison.

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
    redlock:before_validity         the servers have replied, the ttl left has not been computed
    zookeeper:before_watch          the predecessor is known, but not watched yet

The two buyers of shop/schedules also have the points begin, at_commit and refused.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from django.dispatch import Signal

#: A function that is called at every point, in the thread that has reached the point. Its arguments
#: are the name of the point, and what the thread reports there. For a task see reach_point_async().
Probe = Callable[[str, Mapping[str, object]], None]

#: Returns whether the probe may block the calling thread at a point. The argument is the point's
#: name.
MayBlock = Callable[[str], bool]

#: Sent by a thread at a point of a purchase: `point_reached.send("after_read", amount=3)`. The
#: keyword arguments are what the thread reports there.
point_reached = Signal()


def _may_block_anywhere(name: str) -> bool:
    """Return True: by default the probe may block at every point of a purchase."""
    return True


_probe: Probe | None = None
_may_block: MayBlock = _may_block_anywhere


def _call_probe(sender: str, *, signal: Signal, **fields: object) -> None:
    """Call the installed probe. This is the receiver of `point_reached`."""
    if _probe is not None:
        _probe(sender, fields)  # the sender of the signal is the name of the point


def install_probe(probe: Probe | None, may_block: MayBlock = _may_block_anywhere) -> None:
    """Call `probe` at every point of a purchase in this process from now on.

    A point is a named place in the code, such as `after_read`.

    probe      a function that takes the point's name and the fields that the thread reports;
               None for no probe
    may_block  returns whether the probe may block at the point with this name. At other points it
               may be called in an event loop, so there it must return at once
    """
    global _probe, _may_block
    _probe = probe
    _may_block = may_block
    if probe is None:
        point_reached.disconnect(_call_probe)
    else:
        point_reached.connect(_call_probe)


async def reach_point_async(name: str, **fields: object) -> None:
    """Send `point_reached` from a task that has reached the point `name` of a purchase.

    If the probe, the receiver of the signal, may block at this point, it is called in a thread, so
    that it does not block the event loop.

    fields  what the task reports at this point
    """
    if _probe is not None and _may_block(name):
        await asyncio.to_thread(partial(point_reached.send, name, **fields))
    else:
        point_reached.send(name, **fields)


@contextmanager
def use_probe(probe: Probe) -> Iterator[None]:
    """Call `probe` at every point of a purchase that is reached during the block."""
    previous_probe = _probe
    previous_may_block = _may_block
    install_probe(probe)
    try:
        yield
    finally:
        install_probe(previous_probe, previous_may_block)
