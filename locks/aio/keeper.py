"""Extends, verifies and hands over the leases of an AsyncRedisLock, by awaiting each step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..keeper import Keeping, Steps
from .lease import AsyncLease

T = TypeVar("T")


class AsyncKeeper:
    """Does the steps of a Keeping.

    call  runs a script by its name for the lock, with these arguments; raises WireError
    """

    def __init__(self, call: Callable[..., Awaitable[Any]], keeping: Keeping) -> None:
        self._call = call
        self.keeping = keeping

    async def extend(self, lease: AsyncLease, seconds: float) -> None:
        await self.run(self.keeping.extend(lease, seconds))

    async def owned(self, lease: AsyncLease) -> bool:
        return await self.run(self.keeping.owned(lease))

    async def hand_over(self, lease: AsyncLease, within: float | None) -> str:
        return await self.run(self.keeping.hand_over(lease, within))

    async def run(self, steps: Steps[T]) -> T:
        """What the steps lead to. A cancellation is thrown into them, too."""
        try:
            script, args = next(steps)
            while True:
                try:
                    reply = await self._call(script, *args)
                except BaseException as error:
                    script, args = steps.throw(error)
                else:
                    script, args = steps.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
