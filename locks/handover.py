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
    """The commands for the leases of one lock, and the evaluation of the replies.

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
        """Yield the command that moves the end of a lease: see Lease.extend().

        hand_over() uses it with the mode SET, which may also shorten the lease.
        """
        try:
            reply = yield from self.prolong(lease, lease.token, seconds, mode)
        except WireError as error:
            text = f"the lease was not extended: {error}"
            raise LockBackendError(text, name=lease.name) from error.__cause__
        if reply != 1:
            if self._renewals.remove((self._lock.keys[0], lease.token)):
                # -1: the lock is free. 0: another token has it.
                lease.mark_lost(LossReason.GONE if reply == -1 else LossReason.TAKEN)
            raise LockLost(name=lease.name)

    def prolong(
        self, lease: BaseLease | None, token: str | bytes, seconds: float, mode: bytes
    ) -> Steps[int]:
        """Yield the command that runs renew.lua for a token, and move the deadline of its lease.

        Args:
            lease: The lease of the token. None: this process does not hold it.
            token: The token.
            seconds: A number of seconds; `mode` says what it means.
            mode: LEAST: the lease lasts at least `seconds` from now on. ADD: it lasts that much
                longer than before. SET: it lasts exactly `seconds` from now on.

        Returns:
            The reply of renew.lua: 1 if the token had the lock, 0 if another token has it, -1 if
            the lock is free.

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
            # Do this first, because the command may shorten the lease as soon as it is sent.
            self._renewals.shorten((self._lock.keys[0], lease.token), seconds)
            lease.move_deadline_back(deadline)
        args = build_renew_args(token, seconds, self._lock.fence_ttl, mode)
        reply = int((yield self._lock.build_call("renew", *args)))
        if lease is not None and reply == 1:
            lease.move_deadline_forward(deadline)
        return reply

    def owned(self, lease: BaseLease) -> Steps[bool]:
        """Yield the command that reads the holder; return whether it is the lease's token."""
        try:
            reply = yield self._lock.build_call("inspect")
        except WireError as error:
            text = f"it is not known whether the lock is still ours: {error}"
            raise LockBackendError(text, name=lease.name) from error.__cause__
        return Inspection.parse(reply).owner == lease.token

    def hand_over(self, lease: BaseLease, within: float | None) -> Steps[str]:
        """Yield the command that prepares a lease for adopt(): see Lease.hand_over().

        Returns:
            The text from which another process can adopt the lease.
        """
        lease_id = self._lock.keys[0], lease.token
        yield from self.extend(lease, self._lock.ttl if within is None else within, SET)
        self._renewals.remove(lease_id)
        lease.mark_handed_over()
        self._lock.call_metrics_hook("held", lease.held_seconds, Release.HANDED_OVER)
        return json.dumps({"name": lease.name, "token": lease.token, "fence": lease.fence})

    def adopt(self, text: str, token: str, *, unique: bool) -> Steps[Grant]:
        """Yield the command that replaces the token of a lease that another process handed over.

        Args:
            text: The text that hand_over() returned.
            token: The new token.
            unique: True if the token is used for this acquisition only. If it is False, the token
                is not released after a lost reply, because another holder may use it.

        Returns:
            The fence and the deadline of the lease.

        Raises:
            Exception: One of the exceptions of RedisLock.adopt().
        """
        if not token:
            raise ValueError("a token must not be empty; omit it for a unique one")
        if token == ANY_HOLDER.decode():
            raise ValueError(
                f"{token!r} cannot be a token: releasing it would release the lock of any holder"
            )
        old_token, fence = self._parse_handover(text)
        sent_at = now()
        ttl = self._lock.ttl
        try:
            args = build_renew_args(old_token, ttl, self._lock.fence_ttl, SET, heir=token)
            reply = yield self._lock.build_call("renew", *args)
        except BaseException as error:
            # The server may have replaced the token. Then nothing else would release the lock.
            if unique:
                self._renewals.abandon(token, self._lock)
            if isinstance(error, WireError):
                raise self._lock._make_backend_error(error) from error.__cause__
            raise
        if reply != 1:
            raise LockLost("the lease was adopted before, or has ended", name=self._lock.name)
        return fence, sent_at + ttl - compute_drift(ttl)

    def _parse_handover(self, text: str) -> tuple[str, int | None]:
        """Return the token and the fence from the text that hand_over() returned.

        Raises ValueError if the text is something else, or belongs to a lock of another name.
        """
        try:
            handover = json.loads(text)
            name, token, fence = handover["name"], handover["token"], handover["fence"]
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{text!r:.200} is not a text of lease.hand_over()") from error
        if name != self._lock.name:
            raise ValueError(
                f"the lock {self._lock.name!r} cannot adopt a lease of {name!r}: "
                f"adopt it with a lock of that name and key"
            )
        return token, fence
