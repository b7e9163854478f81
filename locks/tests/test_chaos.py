"""Random faults: processes are killed and paused, connections cut and replies lost.

LOCKS_CHAOS_SECONDS=120 runs the test longer, LOCKS_CHAOS_SEED=7 chooses another plan of faults.
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
from .stress import find_overlaps, list_holds, read_history, start
from .worker import send_signal

CHAOS_SECONDS = float(os.environ.get("LOCKS_CHAOS_SECONDS", "6"))
SEED = os.environ.get("LOCKS_CHAOS_SEED", "1")
TTL_SECONDS = 0.4
WORKER_COUNT = 5
FAULTS = ["kill", "pause", "pause", "cut", "reply", "pubsub", "none"]


class Crowd:
    """The contending processes, and the faults that befall them."""

    def __init__(self, port: int, history: Path) -> None:
        self.start = partial(start, "threads", port, TTL_SECONDS, 10 * CHAOS_SECONDS, history)
        self.running = [self.start() for _ in range(WORKER_COUNT)]
        self.paused: dict[BaseProcess, float] = {}

    def pick(self, lock: RedisLock, chance: random.Random) -> BaseProcess:
        """Return the process of the holder or first waiter, which its token names, or any other."""
        inspection = lock.inspect()
        target = chance.choice(["holder", "head", "any"])
        tokens = [inspection.owner or ""] if target == "holder" else inspection.waiters[:1]
        any_worker = chance.choice(self.running)
        pids = [token.partition("-")[0] for token in tokens if target != "any"]
        return next(
            (running_worker for running_worker in self.running if str(running_worker.pid) in pids),
            any_worker,
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

    def resume(self, all_workers: bool = False) -> None:
        for victim, until in list(self.paused.items()):
            if all_workers or until <= time.monotonic():
                send_signal(victim, signal.SIGCONT)
                del self.paused[victim]


def test_random_faults_allow_no_second_holder(own_server: Server, tmp_path: Path) -> None:
    """Afterwards the lock is free, and the queue drains."""
    client = own_server.client()
    lock = RedisLock(client, "stress", ttl=TTL_SECONDS)
    proxy = LoopbackProxy(own_server.port)
    history = tmp_path / "history.jsonl"
    chance = random.Random(SEED)
    plan = [*FAULTS, *chance.choices(FAULTS, k=int(8 * CHAOS_SECONDS))]
    crowd = Crowd(proxy.port, history)
    try:
        eventually(history.exists, within=30)
        for fault in chance.sample(plan, len(plan)):
            victim = crowd.pick(lock, chance)
            if fault == "kill":
                crowd.kill(victim)
            elif fault == "pause":
                crowd.pause(victim, chance.uniform(0.05, 3 * TTL_SECONDS))
            elif fault == "cut":
                proxy.cut()
            elif fault == "reply":
                proxy.lose_reply(b"EVALSHA")
            elif fault == "pubsub":
                client.client_kill_filter(_type="pubsub")
            time.sleep(chance.uniform(0.05, 0.2))
            crowd.resume()
        crowd.resume(all_workers=True)
        for worker in crowd.running:
            worker.terminate()
        for worker in crowd.running:
            worker.join(30)
            assert worker.exitcode in (0, -signal.SIGTERM)  # it may have just been started
    finally:
        crowd.resume(all_workers=True)
        for worker in crowd.running:
            worker.kill()
            worker.join(10)
        proxy.stop()
    events = read_history(history)
    assert find_overlaps(events) == [], f"LOCKS_CHAOS_SEED={SEED}"
    assert len(list_holds(events)) > len(plan) / 4
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []
    lock.acquire(2 * TTL_SECONDS).release()  # no dead waiter delays it
    # Each acquisition drops waiters that have been silent for too long.
    eventually(lambda: lock.acquire(1).release() and not lock.inspect().waiters)
