"""Named points in the locks, where a demo or a test can stop a thread to force an interleaving.

setnx:before_expire             SETNX has the lock, EXPIRE has not been sent
setnx-timestamp:before_takeover an expired time was read, nothing was done about it yet
token-get-del:before_del        GET found our token, DEL has not been sent
watchdog:before_renew           the renewing thread is about to renew
reentrant:before_subscribe      the lock was found taken, the channel is not subscribed to yet
redlock:before_validity         the votes are in, the time they took has not been looked at
zookeeper:before_watch          the predecessor is known, it is not watched yet

The shop has points of its own beside these (shop/sale/purchase.py).

The hook is called with the point's name in the thread that is there. There is none unless
somebody installs one, and then a point costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Hook = Callable[[str], None]

_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call `hook` at every point of this process from now on; None: no longer."""
    global _hook
    _hook = hook


def point(name: str) -> None:
    """Tell the hook, if there is one, that this thread is at the point `name`."""
    if _hook is not None:
        _hook(name)


@contextmanager
def installed(hook: Hook) -> Iterator[None]:
    """Call `hook` at every point inside the block."""
    before = _hook
    install(hook)
    try:
        yield
    finally:
        install(before)
