"""A pytest plugin that finds races: it runs calls in every interleaving, or n calls at once.

It needs Django. PostgreSQL, MySQL and MariaDB report which call waits for another one's lock. With
another database, and for locks outside of the database, a call that reaches no step for 0.2 s
counts as waiting. The code under test is not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .run import InterleavingFailed, NotAllTried, NothingToInterleave, Run, Step, Stuck

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
    "Stuck",
    "interleave",
    "rush",
    "step",
]

#: The submodule of each name. It is imported on first use, because pytest loads the plugin in every
#: project, even if Django is not configured.
_SUBMODULES = {
    "interleave": "interleaving",
    "step": "probes",
    "Outcome": "together",
    "rush": "together",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its submodule when the name is first used."""
    if name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_SUBMODULES[name]}", __name__), name)
