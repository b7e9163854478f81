"""Find the race in your own code: every interleaving of two callables, and n callables at once.

Needs Django. PostgreSQL is asked who waits for whom; with another database a thread that does not
move for a while counts as waiting. Nothing in the code under test is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .run import InterleavingFailed, NotAllTried, NothingToInterleave, Run, Step

if TYPE_CHECKING:
    from .interleaving import interleave
    from .probes import step
    from .together import Outcome, rush

__all__ = [
    "InterleavingFailed",
    "NotAllTried",
    "NothingToInterleave",
    "Outcome",
    "Run",
    "Step",
    "interleave",
    "rush",
    "step",
]

#: Imported when first used: pytest loads the plugin in every project, with Django or without.
_HOMES = {"interleave": "interleaving", "step": "probes", "Outcome": "together", "rush": "together"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
