"""What a test that interleaves can end with."""

from __future__ import annotations


class InterleavingFailed(AssertionError):
    """The check failed after at least one interleaving; the message shows it as a timeline."""


class NothingToInterleave(ValueError):
    """A callable came by no point: it sent no statement and called none of the named functions."""


class Stuck(AssertionError):
    """No thread moves, and the database knows of nobody who waits."""
