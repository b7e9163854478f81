"""The promises of the lock, tested with each kind of lock."""
