"""A benchmark that compares RedisLock with other locks on Redis: `python -m locks.bench`."""
