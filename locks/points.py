"""Named places where a test or a fault may step in: `point("after_read")`.

Nothing happens there unless a hook is installed. A hook is called with the point's name, in the
thread that reached it, and may wait, raise or kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Hook = Callable[[str], None]

_hook: Hook | None = None


def point(name: str) -> None:
    """Call the installed hook, if there is one."""
    if _hook is not None:
        _hook(name)


def install(hook: Hook | None) -> None:
    """Call `hook` at every point from now on; None for no hook."""
    global _hook
    _hook = hook


@contextmanager
def installed(hook: Hook) -> Iterator[None]:
    """Have `hook` called at every point inside the block."""
    before = _hook
    install(hook)
    try:
        yield
    finally:
        install(before)
