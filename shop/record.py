"""What happens inside a purchase, told to whoever records it: nobody, unless a demo does.

Beside a point (locks/points.py), where a thread can be stopped, this says what was found there.
"""

from __future__ import annotations

from collections.abc import Callable

#: Called with the name of the event and its facts, in the thread of the purchase.
Recorder = Callable[[str, dict[str, object]], None]

_recorder: Recorder | None = None


def install(recorder: Recorder | None) -> None:
    """Tell `recorder` from now on; None: nobody any more."""
    global _recorder
    _recorder = recorder


def tell(event: str, **facts: object) -> None:
    """arrives, reserves, acquire, acquired, after_read, before_commit, after_commit, release,
    released."""
    if _recorder is not None:
        _recorder(event, facts)
