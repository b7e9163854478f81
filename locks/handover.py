"""The operations on a lease besides its release: extend, verify, hand over, adopt.

    web     lease = lock.acquire(5)
    web     text = lease.hand_over(within=60)     the last renewal by web
    worker  lease = lock.adopt(text)              a new token; renewed by worker

The server replaces the token when the lease is adopted, in one step. So a lease is adopted only
once, even if a queue delivers a task twice. And a renewal or release of the first process that
arrives late does not touch the lease of the second process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from .clock import now
from .errors import LockBackendError, LockLost, LossReason, Release
from .lease import BaseLease
from .sans_io.acquisition import Grant
from .sans_io.options import Options
from .sans_io.protocol import (
    ADD,
    ANY_HOLDER,
    LEAST,
    SET,
    Call,
    Inspection,
    WireError,
    build_renew_args,
    compute_drift,
)
from .sans_io.renewals import Renewals

T = TypeVar("T")
#: A generator of commands. `LeaseCommands.run` runs each command and sends its reply or a WireError
#: into the generator.
Steps: TypeAlias = Generator[Call, Any, T]


class LeaseCommands:
    """The commands for the leases of one lock, and the evaluation of their replies. No I/O.

    Args:
        lock: The lock: a RedisLock or an AsyncRedisLock.
        renewals: The renewals of its leases.
        run: Runs steps and returns their result or, for asyncio, an awaitable of their result.
    """

    def __init__(
        self, lock: Options[Any], renewals: Renewals, run: Callable[[Steps[Any]], Any]
    ) -> None:
        self.run = run
        self._lock = lock
        self._renewals = renewals

    def extend(self, lease: BaseLease, seconds: float, mode: bytes = LEAST) -> Steps[None]:
        """Return the steps of Lease.extend() or, with `mode` SET, the first ones of hand_over()."""
        try:
            reply = yield from self.prolong(lease, lease.token, seconds, mode)
        except WireError as error:
            text = f"the lease was not extended: {error}"
            raise LockBackendError(text, name=lease.name) from error.__cause__
        if reply != 1:
            if self._renewals.remove((self._lock.keys[0], lease.token)):
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)
            raise LockLost(name=lease.name)

    def prolong(
        self, lease: BaseLease | None, token: str | bytes, seconds: float, mode: bytes
    ) -> Steps[int]:
        """Return the steps that run renew.lua for a token, and move the deadline of its lease.

        Args:
            lease: The lease of the token, if this process holds it.
            token: The token.
            seconds: Seconds from now on (LEAST, SET), or seconds to add (ADD).
            mode: LEAST, ADD or SET.

        Returns:
            The steps. Their result is the reply of renew.lua.

        Raises:
            WireError: The server did not answer, or refused the command.
            ValueError: `seconds` is not a positive, finite number.
        """
        if not 0 < seconds < float("inf"):
            raise ValueError(
                f"{seconds!r} cannot prolong a lease: give a positive number of seconds"
            )
        start = now()
        if lease is not None and mode == ADD:
            start = lease.deadline
        deadline = start + seconds - compute_drift(seconds)
        if lease is not None and mode == SET:
            # Before the command is sent, which may shorten the lease at any moment after that.
            self._renewals.shorten((self._lock.keys[0], lease.token), seconds)
            lease.move_deadline_back(deadline)
        args = build_renew_args(token, seconds, self._lock.fence_ttl, mode)
        reply = int((yield self._lock.build_call("renew", *args)))
        if lease is not None and reply == 1:
            lease.move_deadline_forward(deadline)
        return reply

    def owned(self, lease: BaseLease) -> Steps[bool]:
        """Return the steps of Lease.owned()."""
        try:
            reply = yield self._lock.build_call("inspect")
        except WireError as error:
            text = f"whether the lock is still ours is not known: {error}"
            raise LockBackendError(text, name=lease.name) from error.__cause__
        return Inspection.parse(reply).owner == lease.token

    def hand_over(self, lease: BaseLease, within: float | None) -> Steps[str]:
        """Return the steps of Lease.hand_over()."""
        lease_id = self._lock.keys[0], lease.token
        yield from self.extend(lease, self._lock.ttl if within is None else within, SET)
        self._renewals.remove(lease_id)
        lease.mark_handed_over()
        self._lock.call_metrics_hook("held", lease.held_seconds, Release.HANDED_OVER)
        return json.dumps({"name": lease.name, "token": lease.token, "fence": lease.fence})

    def adopt(self, text: str, token: str, *, unique: bool) -> Steps[Grant]:
        """Return the steps that replace the token of a handed-over lease: see RedisLock.adopt().

        Args:
            text: The text of the lease that was handed over.
            token: The new token.
            unique: True if the token is used for this acquisition only. Otherwise the token is
                not released after a lost reply.

        Returns:
            The steps. Their result is the fence and the deadline. They raise the exceptions of
            RedisLock.adopt().
        """
        if not token:
            raise ValueError("a token must not be empty; omit it for a unique one")
        if token == ANY_HOLDER.decode():
            raise ValueError(f"{token!r} cannot be a token: its release would release any holder")
        old_token, fence = self._parse_handover(text)
        sent_at = now()
        ttl = self._lock.ttl
        try:
            args = build_renew_args(old_token, ttl, self._lock.fence_ttl, SET, heir=token)
            reply = yield self._lock.build_call("renew", *args)
        except BaseException as error:
            # The server may have given us the lock. Release it now, rather than wait for its ttl.
            if unique:
                self._renewals.abandon(token, self._lock)
            if isinstance(error, WireError):
                raise self._lock._make_backend_error(error) from error.__cause__
            raise
        if reply != 1:
            raise LockLost("the lease was adopted before, or has ended", name=self._lock.name)
        return fence, sent_at + ttl - compute_drift(ttl)

    def _parse_handover(self, text: str) -> tuple[str, int | None]:
        """Return the token and the fence of another process's lease.

        Raises ValueError unless hand_over() can have returned the text for a lock of this name.
        """
        try:
            handover = json.loads(text)
            name, token, fence = handover["name"], handover["token"], handover["fence"]
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{text!r:.200} is not what lease.hand_over() returned") from error
        if name != self._lock.name:
            raise ValueError(
                f"the lock {self._lock.name!r} cannot adopt a lease of {name!r}: "
                f"adopt it with a lock of that name and key"
            )
        return token, fence
