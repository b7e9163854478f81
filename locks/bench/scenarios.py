"""What is measured. Every figure comes with the others of its round, taken seconds apart."""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Sequence
from typing import Any

import redis

from ..testing.process import Process
from . import counting
from .contenders import UNCONTENDED
from .relay import channel

PROCESSES = 4
Span = Sequence[float]
_numbers = itertools.count()


def free_name() -> str:
    """A name that no run before used."""
    return f"bench:{next(_numbers)}"


class Violation(Exception):
    """Two held the lock at once."""


def uncontended(client: redis.Redis, lock: str, seconds: float) -> dict[str, float]:
    """Acquire and release with nobody else there, in one thread."""
    hold, name = UNCONTENDED[lock], free_name()
    with hold(client, name, 10):
        pass
    sent, pairs, started = counting.sent, 0, time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        with hold(client, name, 10):
            pairs += 1
    return {"pairs_per_s": pairs / took, "sent_per_pair": (counting.sent - sent) / pairs}


def drain(
    workers: Sequence[Process], lock: str, waiters: int, hold: float, settle: float = 0.5
) -> dict[str, float]:
    """`waiters` queue behind a gate, one every 2 ms; from its opening until the last released."""
    name, gate = free_name(), workers[-1]
    gate.ask("hold", lock=lock, name=name, ttl=30)
    base = time.monotonic() + 0.1
    for number, worker in enumerate(workers[:PROCESSES]):
        arrivals = [base + 0.002 * n for n in range(number, waiters, PROCESSES)]
        worker.send("drain", lock=lock, name=name, ttl=30, hold=hold, arrivals=arrivals)
    time.sleep(base + 0.002 * waiters + settle - time.monotonic())
    opened = gate.ask("release")
    return _drained([worker.answer() for worker in workers[:PROCESSES]], opened, waiters, hold)


def relay(
    client: redis.Redis, workers: Sequence[Process], waiters: int, hold: float
) -> dict[str, float]:
    """The same without a lock: the floor, which no lock that wakes threads by messages undercuts.

    See relay.py.
    """
    name, options = free_name(), {"processes": PROCESSES, "waiters": waiters, "hold": hold}
    for number, worker in enumerate(workers[:PROCESSES]):
        worker.ask("relay", name=name, process=number, **options)
    opened = time.monotonic()
    client.publish(channel(name, 0, PROCESSES), 0)
    answers = [worker.ask("relayed") for worker in workers[:PROCESSES]]
    return _drained(answers, opened, waiters, hold)


def _drained(
    answers: Sequence[dict[str, Any]], opened: float, waiters: int, hold: float
) -> dict[str, float]:
    spans = _spans(answers)
    took = max(released for _, _, released in spans) - opened
    return {
        "seconds": took,
        "efficiency": waiters * hold / took,
        "hand_over_us": (took - sum(r - a for _, a, r in spans)) / waiters * 1e6,
        "sent_per_acquisition": sum(answer["sent"] for answer in answers) / waiters,
        "overtakes_max": max(_overtakes(spans)),
    }


def churn(
    workers: Sequence[Process], lock: str, threads: int, hold: float, seconds: float
) -> dict[str, float]:
    """`threads` take the lock again as soon as they released it."""
    name, start = free_name(), time.monotonic() + 0.2
    for worker in workers[:PROCESSES]:
        worker.send(
            "churn",
            lock=lock,
            name=name,
            ttl=10,
            hold=hold,
            threads=threads // PROCESSES,
            start=start,
            end=start + seconds,
        )
    answers = [worker.answer() for worker in workers[:PROCESSES]]
    spans = _spans(answers)
    per_thread = [len(thread) for answer in answers for thread in answer["spans"]]
    waits = sorted(acquired - arrived for arrived, acquired, _ in spans)
    return {
        "acquisitions_per_s": len(spans) / (max(r for _, _, r in spans) - start),
        "longest_wait_ms": waits[-1] * 1000,
        "median_wait_ms": waits[len(waits) // 2] * 1000,
        "overtakes_max": max(_overtakes(spans)),
        "fewest_by_a_thread": min(per_thread),
        "most_by_a_thread": max(per_thread),
        "sent_per_acquisition": sum(answer["sent"] for answer in answers) / len(spans),
    }


def killed_holder(start: Any, lock: str, ttl: int) -> dict[str, float]:
    """SIGKILL of the holder while one waits: how much later than its ttl the waiter has it."""
    name, holder, waiter = free_name(), start(), start()
    held = holder.ask("hold", lock=lock, name=name, ttl=ttl)
    waiter.send("hold", lock=lock, name=name, ttl=ttl)
    time.sleep(0.3)
    holder.kill()
    got = waiter.answer()
    waiter.kill()
    return {"late_ms": (got - held - ttl) * 1000}


def killed_waiter(start: Any, lock: str, ttl: int) -> dict[str, float]:
    """SIGKILL of the first waiter, then a normal release: how long until the second has it."""
    name, holder, first, second = free_name(), start(), start(), start()
    holder.ask("hold", lock=lock, name=name, ttl=ttl)
    for waiter in (first, second):
        waiter.send("hold", lock=lock, name=name, ttl=ttl)
        time.sleep(0.3)
    first.kill()
    time.sleep(0.1)
    opened = holder.ask("release")
    got = second.answer()
    for process in (holder, second):
        process.kill()
    return {"delay_ms": (got - opened) * 1000}


def _spans(answers: Sequence[dict[str, Any]]) -> list[Span]:
    """All holds in the order of their acquisition. Raises Violation if two overlap."""
    spans = [span for answer in answers for thread in answer["spans"] for span in thread]
    spans.sort(key=lambda span: span[1])
    for (_, _, released), (_, acquired, _) in itertools.pairwise(spans):
        if acquired < released:
            raise Violation(f"held from {acquired} although held until {released}")
    return spans


def _overtakes(spans: Sequence[Span]) -> list[int]:
    """For each hold, how many that arrived later had the lock before it.

    An arrival is when the thread asked; two that ask within the same moment may reach the server
    in either order.
    """
    earlier: list[float] = []
    counts = []
    for arrived, _, _ in spans:
        place = bisect.bisect(earlier, arrived)
        counts.append(len(earlier) - place)
        earlier.insert(place, arrived)
    return counts
