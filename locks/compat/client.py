"""A client whose locks are those of this package."""

from __future__ import annotations

from typing import Any

try:
    from redis import Redis as Client
except ImportError:  # where valkey-py alone is installed
    from valkey import Valkey as Client  # type: ignore[assignment]

from .lock import Lock


class Redis(Client):
    """A client whose lock() makes the locks of this module. For django-redis: `cache.lock()`."""

    def lock(
        self,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        lock_class: Any = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> Any:
        """A lock; see redis.Redis.lock()."""
        # Older redis-py's Lock does not know it.
        rest = {} if raise_on_release_error else {"raise_on_release_error": False}
        return (lock_class or Lock)(
            self,
            name,
            timeout=timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
            **rest,
        )
