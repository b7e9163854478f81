"""The errors that `interleave` raises."""


class InterleavingFailed(AssertionError):
    """The check failed after at least one interleaving; the message shows it as a timeline."""


class NothingToInterleave(ValueError):
    """A callable reached no step: it sent no statement and called none of the named functions."""


class Stuck(AssertionError):
    """No thread moves, and none waits for a lock of the database."""


class NotAllTried(UserWarning):
    """The time was over before all orders were tried: what is left may hide a race."""
