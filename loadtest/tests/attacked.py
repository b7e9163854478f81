"""A stack of one node whose buyers give up before a test does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from loadtest.stack.stack import SERVERS, Stack

#: Seconds that a node has to stop.
GRACE = 10.0


class AttackedStack(Stack):
    """One node, and how many seconds its buyers wait for a lock."""

    def __init__(self, *, lock_wait: float, workers: int, log: IO[bytes], server: str) -> None:
        super().__init__(nodes=1, workers=workers, threads=100, log=log, server=server)
        self.lock_wait = lock_wait

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {
            "SHOP_LOCK_WAIT": str(self.lock_wait),
            "WEB_GRACEFUL_TIMEOUT": f"{GRACE:g}",
        }


@contextmanager
def attacked_stack(
    *, lock_wait: float, workers: int, log: IO[bytes], server: str = SERVERS[0]
) -> Iterator[Stack]:
    """The stack, with a sale of what the crowds ask for. At the end it is killed: the node would
    answer first those in the crowd who hold the lock for seconds."""
    with AttackedStack(lock_wait=lock_wait, workers=workers, log=log, server=server) as stack:
        for product in ("apple", "queue"):
            stack.shop().restock(product=product, stock=1000)
        try:
            yield stack
        finally:
            stack.nodes[0].stop(0)
