"""redis-py's Lock on top of RedisLock: change one argument to get its queue and its wake-ups.

    client.lock("report", timeout=30, lock_class=locks.compat.Lock)
    CACHES = {"default": {"OPTIONS": {"REDIS_CLIENT_CLASS": "locks.compat.Redis"}, ...}}

The key is redis-py's, so old and new locks of one name exclude each other during a rollout.
FROM_REDIS_PY.md lists the steps and the differences.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Any, Literal

try:
    from redis import Redis as Client
except ImportError:  # only valkey-py is installed
    from valkey import Valkey as Client  # type: ignore[assignment]

from .errors import LockBackendError, LockLost, LockTimeout, Release
from .lease import Lease
from .redis_lock import RedisLock
from .sans_io.protocol import ADD, ANY_HOLDER, DEFAULT_FENCE_TTL_SECONDS, SET, WireError

logger = logging.getLogger(__name__)

Token = bytes | str


def _find_exceptions(client_or_connection: type) -> Any:
    """Return the exceptions module of the library, redis-py or valkey-py, that has this class."""
    for base in client_or_connection.__mro__:
        package = base.__module__.partition(".")[0]
        module = sys.modules.get(f"{package}.exceptions")
        if hasattr(module, "NoScriptError"):
            return module
    raise TypeError(f"{client_or_connection!r} is not a class of redis-py or valkey-py")


@contextmanager
def _raising_client_errors() -> Iterator[None]:
    """Raise the client library's exception in place of a WireError of the block."""
    try:
        yield
    except WireError as error:
        raise error.__cause__ or error from None


class _Local(threading.local):
    """The token and the lease of a thread; None before it acquires and after it releases."""

    token: bytes | None = None
    lease: Lease | None = None


@dataclass(eq=False, repr=False)
class Lock:
    """A lock with the methods, arguments and exceptions of redis.lock.Lock.

    Attributes:
        redis: A redis.Redis or RedisCluster. With a client of valkey-py the exceptions are
            valkey-py's.
        timeout: Seconds after which the lock ends. None: it is renewed while this process lives.
        sleep: Seconds. The lock does not poll; but a `blocking_timeout` shorter than this means one
            try, as in redis-py.
        ttl: Seconds that a lock without a timeout survives its process. An attribute of the class.
    """

    ttl = 10.0

    redis: Any
    name: Token
    timeout: float | None = None
    sleep: float = 0.1
    blocking: bool = True
    blocking_timeout: float | None = None
    thread_local: bool = True
    raise_on_release_error: bool = True

    def __post_init__(self) -> None:
        self.thread_local = bool(self.thread_local)
        self.local: Any = _Local() if self.thread_local else SimpleNamespace(token=None, lease=None)
        client = self.redis
        timeout = self.timeout
        pool = getattr(client, "connection_pool", None)  # a cluster's client has none
        library_class = type(client) if pool is None else pool.connection_class
        self._exceptions = _find_exceptions(library_class)
        key = self._encode(self.name)
        name = key.decode(errors="backslashreplace")
        ttl = timeout or self.ttl
        self._lock = RedisLock(
            client,
            name,
            key=key,
            ttl=ttl,
            renew=not timeout,  # as in redis-py, a lock with a timeout ends after that time
            fence_ttl=max(ttl, DEFAULT_FENCE_TTL_SECONDS),
        )

    @property
    def lease(self) -> Lease | None:
        """The lease that this thread acquired with this object, or None.

        With `thread_local=False` it is the lease that any thread acquired last.
        """
        lease: Lease | None = self.local.lease
        return lease

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: Token | None = None,
    ) -> bool:
        """Acquire the lock. Arguments except `token` default to the attributes of the lock.

        If the server does not answer, or refuses the command, the client's exception is raised.

        Args:
            sleep: Seconds. If `blocking_timeout` is shorter, the lock is tried only once.
            blocking: Whether to wait at all.
            blocking_timeout: Seconds to wait at most.
            token: Used instead of a random token.

        Returns:
            Whether the lock was acquired.

        Raises:
            ValueError: `token` is empty, `*` or not UTF-8.
            LockNotOwnedError: The lock ended before it got the caller's `token`.
        """
        poll_seconds = self.sleep if sleep is None else sleep
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        should_wait = self.blocking if blocking is None else blocking
        # redis-py does not wait either if the wait would end before its second try.
        if not should_wait or (wait is not None and wait < poll_seconds):
            wait = 0.0
        chosen_token = None if token is None else self._encode(token)
        if chosen_token in (b"", ANY_HOLDER):
            raise ValueError(f"{token!r} cannot be a token; give a text that no other holder uses")
        try:
            lease = self._lock.acquire(wait)
            if chosen_token is not None:
                lease = self._replace_token(lease, chosen_token)
        except LockTimeout:
            return False
        except LockLost as error:
            raise self._make_error(
                "LockNotOwnedError", "Not acquired: the lock ended at once."
            ) from error
        except LockBackendError as error:
            raise (error.__cause__ or error) from error
        self.local.token = lease.token.encode()
        self.local.lease = lease
        # A lock with a timeout may be meant to expire, for example as a cooldown. So the watchdog
        # forgets it. A lock without a timeout must last even if this object is dropped: another
        # process may release it by its token. So the watchdog keeps the lease. This step comes
        # last, so that an interrupt of acquire() drops the lease, and the lock ends with its ttl.
        renewal = self._lock._watchdog.remove((self._lock.keys[0], lease.token))
        if renewal is not None and not self.timeout:
            renewal.kept_lease = lease
            self._lock._watchdog.add(renewal)
        return True

    def locked(self) -> bool:
        """Return whether the lock has a holder."""
        return self._read_owner() is not None

    def owned(self) -> bool:
        """Return whether this thread's token has the lock."""
        token = self._get_token()
        return token is not None and self._read_owner() == token

    def release(self) -> None:
        """Release the lock if it is held under this thread's token.

        Another object may have acquired the lock under that token.

        If the server does not answer, the client's exception is raised and the token is kept, so
        that release() can be called again.

        Raises:
            LockError: This thread has no token.
            LockNotOwnedError: The lock is free, or has another token.
        """
        token = self._get_token()
        if token is None:
            raise self._make_error("LockError", "Nothing to release: acquire the lock first.")
        token_text = token.decode(errors="backslashreplace")
        stored_token = self.local.token
        stored_lease = self.local.lease
        try:
            # Before the release: right after the release, another thread may store a token here.
            self.local.token = self.local.lease = None
            renewal = self._lock._watchdog.remove((self._lock.keys[0], token_text))
            with _raising_client_errors():
                was_ours = self._lock._call(self._lock.build_release(token)) == 1
        except BaseException:
            if self.local.token is None:
                self.local.token = stored_token
                self.local.lease = stored_lease
            raise
        # Another thread or object of this process may have acquired the lease. Then only the
        # renewal refers to the lease: the watchdog has found the renewal by the token.
        lease = stored_lease if renewal is None else renewal.kept_lease
        if lease is not None and lease.token == token_text:
            lease.outcome = Release.RELEASED if was_ours else Release.EXPIRED
        if not was_ours:
            raise self._make_error("LockNotOwnedError", "Not released: the lock had ended before.")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Prolong the lock.

        Args:
            additional_time: Seconds.
            replace_ttl: Whether the seconds replace the remaining time instead of adding to it.

        Returns:
            True, as redis-py's Lock does.

        Raises:
            ValueError: `additional_time` is not a positive, finite number.
            LockError: This thread has no token, or the lock has no timeout.
            LockNotOwnedError: The lock is free, or has another token.
        """
        return self._prolong("extend", additional_time, SET if replace_ttl else ADD)

    def reacquire(self) -> Literal[True]:
        """Make the lock end `timeout` seconds from now.

        Returns:
            True, as redis-py's Lock does.

        Raises:
            LockError: This thread has no token, or the lock has no timeout.
            LockNotOwnedError: The lock is free, or has another token.
        """
        return self._prolong("reacquire", self.timeout, SET)

    def __enter__(self) -> Lock:
        if self.acquire():
            return self
        raise self._make_error("LockError", "Not acquired within the wait; try again later.")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock. Unlike in redis-py, the block's own exception is never replaced."""
        try:
            self.release()
        except Exception as release_error:
            is_lock_error = isinstance(release_error, self._exceptions.LockError)
            if error is not None:
                error.add_note(f"{self.name!r}: the release also failed: {release_error}")
            elif self.raise_on_release_error or not is_lock_error:
                raise
            logger.warning("%r: not released when leaving the block: %s", self.name, release_error)

    def _replace_token(self, lease: Lease, token: bytes) -> Lease:
        """Replace the unique token of a lease by the token that the caller chose.

        The lock is acquired with a unique token, because two callers may choose the same token, and
        the queue could not tell them apart.
        """
        try:
            return self._lock.adopt(lease.hand_over(), token=token.decode())
        except BaseException:
            self._lock._watchdog.abandon(lease.token, self._lock)
            raise

    def _prolong(self, action: str, seconds: float | None, mode: bytes) -> Literal[True]:
        """Move the end of the lock, for extend() and reacquire().

        Args:
            action: The name of the calling method, for the errors.
            seconds: Seconds to add (mode ADD), or from now on (mode SET). None: the lock has no
                timeout.
            mode: ADD or SET.
        """
        token = self._get_token()
        lease = self.lease
        if token is None:
            raise self._make_error("LockError", f"Nothing to {action}: acquire the lock first.")
        if not self.timeout or seconds is None:
            raise self._make_error("LockError", f"Nothing to {action}: the lock has no timeout.")
        if lease is not None and lease.token.encode() != token:
            lease = None  # the user has set local.token to the token of another lease
        commands = self._lock._make_lease_commands()
        with _raising_client_errors():
            reply = commands.run(commands.prolong(lease, token, seconds, mode))
        if reply != 1:
            raise self._make_error(
                "LockNotOwnedError", f"Not able to {action}: the lock has ended."
            )
        return True

    def _get_token(self) -> bytes | None:
        """Return this thread's token as bytes, or None. The user may have set it as a str."""
        return None if self.local.token is None else self._encode(self.local.token)

    def _read_owner(self) -> bytes | None:
        """Return the token of the holder, or None if the lock is free."""
        owner: bytes | None
        with _raising_client_errors():
            owner, *_ = self._lock._call(self._lock.build_call("inspect"))
        return owner

    def _make_error(self, class_name: str, text: str) -> Exception:
        """Return an exception of redis-py or valkey-py, with the lock's name as `lock_name`."""
        error: Exception = getattr(self._exceptions, class_name)(text)
        # Older versions do not accept the name in the constructor.
        error.lock_name = self.name  # type: ignore[attr-defined]
        return error

    def _encode(self, text: Token) -> bytes:
        """Return a name or a token as bytes, in the client's encoding."""
        encoded: bytes = self.redis.get_encoder().encode(text)
        return encoded


class Redis(Client):
    """A client whose lock() returns locks of this module. For django-redis: `cache.lock()`."""

    def lock(
        self,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        lock_class: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Return a lock as redis.Redis.lock() does: one of this module if lock_class is None."""
        lock_type = lock_class or Lock
        return lock_type(self, name, timeout, sleep, blocking, blocking_timeout, *args, **kwargs)
