"""A lock's arguments, and what follows from them: common to RedisLock and AsyncRedisLock."""

from __future__ import annotations

import logging
import math
from typing import Any

from .acquisition import Acquisition
from .base_lease import BaseLease
from .clock import now
from .command import WireError
from .errors import LockBackendError
from .keeper import Keeping
from .lease import LossReason, Release
from .lock import check_name_and_ttl
from .metrics import Metrics, emit
from .protocol import FENCE_TTL, keys_of, milliseconds
from .renewals import Renewal, Renewals
from .waiters import Waiters

logger = logging.getLogger(__name__)


class Terms:
    """Raises ValueError for arguments that cannot work. See RedisLock for what they mean."""

    def __init__(
        self,
        name: str,
        *,
        ttl: float,
        key: str | bytes | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        fence_ttl: float = FENCE_TTL,
        metrics: Metrics | None = None,
    ) -> None:
        check_name_and_ttl(name, ttl)
        if max_hold is not None and not max_hold >= ttl:
            raise ValueError(f"max_hold is {max_hold!r}: give seconds, at least the ttl of {ttl}")
        if not fence_ttl >= ttl or fence_ttl == math.inf:
            raise ValueError(f"fence_ttl is {fence_ttl!r}: give seconds, at least the ttl of {ttl}")
        self.name = name
        self.ttl = ttl
        self.renew = renew
        self.max_hold = max_hold
        self.fence_ttl = fence_ttl
        self.metrics = metrics
        self._renewed_for = (math.inf if max_hold is None else max_hold) if renew else 0.0
        self._keys = keys_of(name, key.encode() if isinstance(key, str) else key)

    def _acquisition(
        self,
        waiters: Waiters,
        renewals: Renewals,
        token: str,
        *,
        wait: float | None,
        started: float,
    ) -> Acquisition:
        """What is to be done for a lease. Raises ValueError for a wait that makes no sense."""
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait is {wait!r}: give seconds, 0 to try once, None for no end")
        return Acquisition(
            waiters,
            renewals,
            self.name,
            self._keys,
            token,
            ttl=self.ttl,
            fence_ttl=self.fence_ttl,
            renewed_for=self._renewed_for,
            end=math.inf if wait is None else started + wait,
        )

    def _renewal(self, lease: BaseLease) -> Renewal:
        return Renewal(
            lease,
            keys=self._keys,
            ttl=self.ttl,
            fence_ttl=self.fence_ttl,
            stop=now() + self._renewed_for if self.renew else 0.0,
            metrics=self.metrics,
        )

    def _keeping(self, renewals: Renewals) -> Keeping:
        return Keeping(
            renewals,
            self._keys,
            ttl=self.ttl,
            fence_ttl=self.fence_ttl,
            metrics=self.metrics,
        )

    def _count_loss(self, reason: LossReason) -> None:
        emit(self.metrics, "lost", self.name, reason)

    def _release_args(self, token: str) -> tuple[str, int]:
        return token, milliseconds(self.fence_ttl)

    def _found(self, lease: BaseLease, reply: Any) -> Release:
        """What a release found. `reply` of release.lua, or the exception in its place."""
        outcome = Release.UNKNOWN
        if isinstance(reply, WireError):
            logger.warning(
                "%s: not released yet, tried again until its ttl ends it: %s", self.name, reply
            )
        elif reply == 1:
            outcome = Release.RELEASED
        elif lease.outcome is not Release.UNKNOWN:
            outcome = Release.EXPIRED  # else it may have been the release before that freed it
        emit(self.metrics, "held", self.name, lease.held_seconds, outcome)
        return outcome

    def _unknown(self, error: WireError) -> LockBackendError:
        text = f"the server was not reached or refused, nothing is known about the lock: {error}"
        return LockBackendError(text, name=self.name)
