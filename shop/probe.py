"""Named points in a purchase, where a demo or a test records what was found or stops the thread.

arrives, begins, reserve, reserved, acquire, acquired, after_read, before_commit, after_commit,
release, released, unlocked_before_commit; of a consumer settling, settled

The locks of the articles have points of their own beside these (locks/classic/points.py). There is
no probe unless somebody installs one, and then a point costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

#: Called with the name of the point and its facts, in the thread that is there.
Probe = Callable[[str, Mapping[str, object]], None]

_probe: Probe | None = None


def install(probe: Probe | None) -> None:
    """Call `probe` at every point of this process from now on; None: no longer."""
    global _probe
    _probe = probe


def point(name: str, **facts: object) -> None:
    """This thread is at the point `name` and has found these facts."""
    if _probe is not None:
        _probe(name, facts)


@contextmanager
def installed(probe: Probe) -> Iterator[None]:
    """Call `probe` at every point inside the block."""
    before = _probe
    install(probe)
    try:
        yield
    finally:
        install(before)
