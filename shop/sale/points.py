"""Named points in a purchase, where a demo or a test records what was found or stops the thread.

arrives, begins, reserve, reserved, acquire, acquired, after_read, before_commit, after_commit,
release, released, unlocked_before_commit; of a consumer settling, settled

The locks of the articles have points of their own beside these (locks/classic/points.py). There is
no probe unless somebody installs one, and then a point costs one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

#: Called with the name of the point and its facts, in the thread that is there.
Probe = Callable[[str, Mapping[str, object]], None]

#: Whether a thread that comes to the point of this name may be stopped there.
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
    """This task is at the point `name`. Where the probe may stop it, a thread waits for it, and not
    the event loop."""
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
