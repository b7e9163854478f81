"""RedisLock and its peers, measured in one run: `python -m locks.bench`."""
