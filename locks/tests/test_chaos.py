"""Holders and waiters are killed and paused, connections cut, replies lost; and what still holds.

LOCKS_CHAOS_SECONDS=120 runs it longer, LOCKS_CHAOS_SEED=7 replays another plan of faults.
"""

import os
import random
import signal
import time
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from .. import RedisLock
from ..testing.server import LoopbackProxy, Server, eventually
from .stress import holds, overlaps, read, start
from .worker import send_signal

SECONDS = float(os.environ.get("LOCKS_CHAOS_SECONDS", "6"))
SEED = os.environ.get("LOCKS_CHAOS_SEED", "1")
TTL = 0.4
WORKERS = 5
FAULTS = ["kill", "pause", "pause", "cut", "reply", "pubsub", "none"]


class Crowd:
    """The processes that contend, and what befalls them."""

    def __init__(self, port: int, history: Path) -> None:
        self.start = partial(start, "threads", port, TTL, 10 * SECONDS, history)
        self.running = [self.start() for _ in range(WORKERS)]
        self.paused: dict[BaseProcess, float] = {}

    def pick(self, lock: RedisLock, chance: random.Random) -> BaseProcess:
        """The process of the holder, of the first waiter, or any: their tokens name it."""
        inspection = lock.inspect()
        whom = chance.choice(["holder", "head", "anybody"])
        tokens = [inspection.owner or ""] if whom == "holder" else inspection.waiters[:1]
        anybody = chance.choice(self.running)
        pids = [token.partition("-")[0] for token in tokens if whom != "anybody"]
        return next(
            (running_worker for running_worker in self.running if str(running_worker.pid) in pids),
            anybody,
        )

    def kill(self, victim: BaseProcess) -> None:
        victim.kill()
        victim.join(10)
        self.running.remove(victim)
        self.paused.pop(victim, None)
        self.running.append(self.start())

    def pause(self, victim: BaseProcess, seconds: float) -> None:
        send_signal(victim, signal.SIGSTOP)
        self.paused[victim] = time.monotonic() + seconds

    def resume(self, everybody: bool = False) -> None:
        for victim, until in list(self.paused.items()):
            if everybody or until <= time.monotonic():
                send_signal(victim, signal.SIGCONT)
                del self.paused[victim]


def test_random_faults_allow_no_second_holder(own_server: Server, tmp_path: Path) -> None:
    """Afterwards the lock is free, and the queue drains."""
    client = own_server.client()
    lock = RedisLock(client, "stress", ttl=TTL)
    proxy = LoopbackProxy(own_server.port)
    history = tmp_path / "history.jsonl"
    chance = random.Random(SEED)
    plan = [*FAULTS, *chance.choices(FAULTS, k=int(8 * SECONDS))]
    crowd = Crowd(proxy.port, history)
    try:
        eventually(history.exists, within=30)
        for fault in chance.sample(plan, len(plan)):
            victim = crowd.pick(lock, chance)
            if fault == "kill":
                crowd.kill(victim)
            elif fault == "pause":
                crowd.pause(victim, chance.uniform(0.05, 3 * TTL))
            elif fault == "cut":
                proxy.cut()
            elif fault == "reply":
                proxy.lose_reply(b"EVALSHA")
            elif fault == "pubsub":
                client.client_kill_filter(_type="pubsub")
            time.sleep(chance.uniform(0.05, 0.2))
            crowd.resume()
        crowd.resume(everybody=True)
        for worker in crowd.running:
            worker.terminate()
        for worker in crowd.running:
            worker.join(30)
            assert worker.exitcode in (0, -signal.SIGTERM)  # or it had just been started
    finally:
        crowd.resume(everybody=True)
        for worker in crowd.running:
            worker.kill()
            worker.join(10)
        proxy.stop()
    events = read(history)
    assert overlaps(events) == [], f"LOCKS_CHAOS_SEED={SEED}"
    assert len(holds(events)) > len(plan) / 4
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []
    lock.acquire(2 * TTL).release()  # no dead waiter is in the way
    # With each turn waiters that have been away for too long are dropped.
    eventually(lambda: lock.acquire(1).release() and not lock.inspect().waiters)
