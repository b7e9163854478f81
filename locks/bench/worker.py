"""One of the processes whose threads contend. One JSON object per line in, one answer per line.

drain     each thread takes the lock once, arriving at its own moment
churn     each thread takes it again and again until `end`
hold      take the lock and keep it
release   give it back
relay     threads that wake each other in turn, without a lock: see relay.py
relayed   their spans, when all have had their turn
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

import redis
import redis.asyncio

from . import counting
from .contenders import AWAITED, BLOCKING, WAITING
from .relay import Relay

#: arrived, acquired, released: seconds of the monotonic clock, which all processes share
Span = tuple[float, float, float]


class Worker:
    def __init__(self, port: int) -> None:
        self.port = port
        self.client = redis.Redis(port=port, max_connections=500)
        self.stack = ExitStack()

    def drain(
        self, lock: str, name: str, ttl: int, hold: float, arrivals: list[float]
    ) -> dict[str, Any]:
        if lock in AWAITED:
            return asyncio.run(self._drain(lock, name, ttl, hold, arrivals))

        def once(arrival: float) -> list[Span]:
            time.sleep(max(0.0, arrival - time.monotonic()))
            return [self._take(lock, name, ttl, hold)]

        return self._in_threads([(once, arrival) for arrival in arrivals])

    def churn(
        self, lock: str, name: str, ttl: int, hold: float, threads: int, start: float, end: float
    ) -> dict[str, Any]:
        def loop(_: float) -> list[Span]:
            time.sleep(max(0.0, start - time.monotonic()))
            spans = []
            while time.monotonic() < end:
                spans.append(self._take(lock, name, ttl, hold))
            return spans

        return self._in_threads([(loop, start)] * threads)

    def hold(self, lock: str, name: str, ttl: int) -> float:
        self.stack.enter_context(WAITING[BLOCKING.get(lock, lock)](self.client, name, ttl))
        return time.monotonic()

    def release(self) -> float:
        started = time.monotonic()
        self.stack.close()
        return started

    def relay(self, **options: Any) -> None:
        self._relay = Relay(self.port, **options)

    def relayed(self) -> dict[str, Any]:
        return self._relay.finish()

    async def _drain(
        self, lock: str, name: str, ttl: int, hold: float, arrivals: list[float]
    ) -> dict[str, Any]:
        client = redis.asyncio.Redis(port=self.port, max_connections=500)
        before = counting.sent

        async def once(arrival: float) -> list[Span]:
            await asyncio.sleep(max(0.0, arrival - time.monotonic()))
            arrived = time.monotonic()
            async with AWAITED[lock](client, name, ttl):
                acquired = time.monotonic()
                if hold:
                    await asyncio.sleep(hold)
                released = time.monotonic()
            return [(arrived, acquired, released)]

        spans = await asyncio.gather(*(once(arrival) for arrival in arrivals))
        await client.aclose()
        return {"spans": spans, "sent": counting.sent - before}

    def _take(self, lock: str, name: str, ttl: int, hold: float) -> Span:
        arrived = time.monotonic()
        with WAITING[lock](self.client, name, ttl):
            acquired = time.monotonic()
            if hold:
                time.sleep(hold)
            released = time.monotonic()
        return arrived, acquired, released

    def _in_threads(self, jobs: list[Any]) -> dict[str, Any]:
        spans: list[list[Span]] = []
        before = counting.sent
        threads = [
            threading.Thread(target=lambda job=job: spans.append(job[0](job[1]))) for job in jobs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"spans": spans, "sent": counting.sent - before}


def main(port: int) -> None:
    threading.stack_size(256 * 1024)
    counting.install()
    worker = Worker(port)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(getattr(worker, command.pop("do"))(**command)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
