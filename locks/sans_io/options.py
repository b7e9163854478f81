"""The arguments of RedisLock and AsyncRedisLock, and the commands that follow from them."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..errors import LockBackendError, LockTimeout, LossReason, Metrics, Release
from ..lease import BaseLease
from .protocol import (
    DEFAULT_FENCE_TTL_SECONDS,
    Arg,
    Call,
    WireError,
    derive_keys,
    load_script,
    to_milliseconds,
)

logger = logging.getLogger(__name__)

LeaseT = TypeVar("LeaseT", bound=BaseLease)


def check_name_and_ttl(name: str, ttl: float) -> None:
    """Check the name and the ttl of a lock.

    Args:
        name: The name of a lock.
        ttl: Its ttl in seconds.

    Raises:
        TypeError: The name is not a string.
        ValueError: The name is empty, or the ttl is infinite, NaN or less than 0.001 seconds.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {name!r}")
    if not name:
        raise ValueError(
            "name must not be empty: use that of the protected thing, such as 'product:42'"
        )
    if not (math.isfinite(ttl) and ttl >= 0.001):  # a server counts in milliseconds
        raise ValueError(f"ttl must be finite and at least 0.001 seconds, not {ttl!r}")


class Options(Generic[LeaseT]):
    """The arguments of RedisLock and AsyncRedisLock, which RedisLock describes.

    Attributes:
        keys: The four keys in Redis that hand_over.lua lists.
        renewed_for: Seconds for which a lease is renewed, or inf; 0 if it is not renewed.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        ttl: float,
        key: str | bytes | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        fence_ttl: float = DEFAULT_FENCE_TTL_SECONDS,
        on_lost: Callable[[LeaseT, LossReason], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        check_name_and_ttl(name, ttl)
        if max_hold is not None and not max_hold >= ttl:
            raise ValueError(f"max_hold must be at least the ttl, {ttl} s, not {max_hold!r}")
        if not fence_ttl >= ttl or fence_ttl == math.inf:
            raise ValueError(
                f"fence_ttl must be finite and at least the ttl, {ttl} s, not {fence_ttl!r}"
            )
        self.client = client
        self.name = name
        self.ttl = ttl
        self.renew = renew
        self.max_hold = max_hold
        self.fence_ttl = fence_ttl
        self.on_lost = on_lost
        self.metrics = metrics
        self.renewed_for = 0.0
        if renew:
            self.renewed_for = math.inf if max_hold is None else max_hold
        self.keys = derive_keys(name, key.encode() if isinstance(key, str) else key)
        if self._reports_losses:
            # Import the module now, not at the first loss: an import in a forked child can hang.
            from .. import hooks  # noqa: F401
        self._bind_client(client)

    def _bind_client(self, client: Any) -> None:
        """Get the shared resources of the client. Raises TypeError for a client of another kind."""
        raise NotImplementedError

    def call_metrics_hook(self, hook_name: str, *arguments: Any) -> None:
        """Call a hook of `metrics`, unless that is None, and log an exception that it raises.

        Args:
            hook_name: The name of a method of Metrics.
            *arguments: Its arguments after the lock's name.
        """
        if self.metrics is None:
            return
        try:
            getattr(self.metrics, hook_name)(self.name, *arguments)
        except Exception:
            logger.exception("the hook %s failed", hook_name)

    @property
    def _reports_losses(self) -> bool:
        """True if a loss is reported to on_lost or to the metrics."""
        return self.on_lost is not None or self.metrics is not None

    def _report_loss(self, lease: LeaseT, reason: LossReason) -> None:
        """Report the loss of a lease to the metrics and to on_lost."""
        self.call_metrics_hook("lost", reason)
        if self.on_lost is not None:
            self.on_lost(lease, reason)

    def build_call(self, script_name: str, *args: Arg) -> Call:
        """Return the call of a script in lua/ with the lock's keys and these arguments."""
        return load_script(script_name), self.keys, args

    def build_release(self, token: str | bytes) -> Call:
        """Return the call that releases the lock if the token has it, else leaves the queue."""
        return self.build_call("release", token, to_milliseconds(self.fence_ttl))

    def _evaluate_release(self, lease: BaseLease, reply: Any) -> Release:
        """Return the outcome of a release. Report it to the metrics, and log a missing reply.

        Args:
            lease: The lease that was released.
            reply: The reply of release.lua, or the exception in its place.
        """
        outcome = Release.UNKNOWN
        if isinstance(reply, Exception):
            remedy = "the lock ends with its ttl"
            if lease.unique:
                remedy = "the release is repeated, and the lock ends with its ttl at the latest"
            logger.warning("%s: not released yet, %s: %s", self.name, remedy, reply)
        elif reply == 1:
            outcome = Release.RELEASED
        elif lease.outcome is not Release.UNKNOWN:
            # After UNKNOWN the outcome stays UNKNOWN: the previous release may have succeeded.
            outcome = Release.EXPIRED
        self.call_metrics_hook("held", lease.held_seconds, outcome)
        return outcome

    def _make_backend_error(self, error: WireError) -> LockBackendError:
        """Return the public error for a command that failed."""
        text = "the server was not reached or refused the command, so the lock's state is not known"
        return LockBackendError(f"{text}: {error}", name=self.name)

    def _make_timeout_error(self, wait: float | None) -> LockTimeout:
        """Return the public error for a wait that ended, and log it."""
        logger.debug("%s: not free within %s s", self.name, wait)
        return LockTimeout(name=self.name)


def is_cluster(client: Any, *, awaited: bool) -> bool:
    """Return whether the client is a client of a cluster.

    Args:
        client: The object that the user passed as the client of a lock.
        awaited: True for a lock of asyncio, which needs a client whose commands are awaited. False
            for a lock of threads, which needs a client whose commands block.

    Raises:
        TypeError: `client` is not a client of redis-py or valkey-py, or it is a client for asyncio
            in a lock for threads, or a client for threads in a lock for asyncio.
    """
    connection_class = getattr(getattr(client, "connection_pool", None), "connection_class", None)
    is_cluster_client = connection_class is None and hasattr(client, "nodes_manager")
    if is_cluster_client:
        is_awaited = hasattr(client, "__await__")
    else:
        is_awaited = inspect.iscoroutinefunction(getattr(connection_class, "connect", None))
    is_client = is_cluster_client or connection_class is not None
    if not is_client or is_awaited is not awaited:
        lock = "AsyncRedisLock" if awaited else "RedisLock"
        module = "redis.asyncio" if awaited else "redis"
        raise TypeError(
            f"client is {type(client).__module__}.{type(client).__name__}: {lock} needs a "
            f"{module}.Redis or a {module}.RedisCluster; AsyncRedisLock is for redis.asyncio"
        )
    return is_cluster_client
