"""The promises of the lock, tested through each of its doors."""
