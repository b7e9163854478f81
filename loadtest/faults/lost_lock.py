"""Base of the faults in which Redis loses a held lock."""

from loadtest.faults.fault import Fault


class LostLockFault(Fault):
    """The lock is lost while its holder is inside, long before its ttl is over."""

    grace = 0.8
    ttl = 5.0
    takes_the_lock = True
