"""Base of the faults in which Redis loses a held lock."""

from loadtest.faults.fault import Fault


class LostLockFault(Fault):
    """Redis loses a lock while its holder is buying, long before the ttl is over."""

    rival_timeout_seconds = 0.8  # less than a ttl: a rival gets the lost lock at once
    ttl = 5.0
    takes_the_lock = True
