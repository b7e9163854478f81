"""A test of a lock under random faults: killed processes, cut connections, lost replies.

Environment variables: LOCKS_CHAOS_SECONDS=120 makes the test longer. LOCKS_CHAOS_SEED=7 seeds the
random choice of the faults.
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
from .stress import find_violations, list_holds, read_history, start_contender
from .worker import send_signal

CHAOS_SECONDS = float(os.environ.get("LOCKS_CHAOS_SECONDS", "6"))
SEED = os.environ.get("LOCKS_CHAOS_SEED", "1")
TTL_SECONDS = 0.4
WORKER_COUNT = 5
#: The faults: kill or pause a process, cut all connections, lose a reply, cut the subscriptions, or
#: do nothing. "pause" is listed twice, so that it is chosen twice as often.
FAULTS = ["kill", "pause", "pause", "cut", "reply", "pubsub", "none"]


class Contenders:
    """The worker processes that contend for the lock. The test kills and pauses them."""

    def __init__(self, port: int, history: Path) -> None:
        self._start_worker = partial(
            start_contender,
            lock_kind="threads",
            port=port,
            ttl=TTL_SECONDS,
            seconds=10 * CHAOS_SECONDS,  # longer than the test, which ends the processes
            history=history,
        )
        self.workers = [self._start_worker() for _ in range(WORKER_COUNT)]
        self._pause_end_times: dict[BaseProcess, float] = {}

    def choose_victim(self, lock: RedisLock, rng: random.Random) -> BaseProcess:
        """Return the worker that the next fault hits, chosen at random.

        It is the worker of the holder, the worker of the first waiter, or any worker. If the lock
        has no holder or no waiter, it is any worker instead.
        """
        target = rng.choice(["holder", "first waiter", "any"])
        any_worker = rng.choice(self.workers)
        inspection = lock.inspect()
        token = ""
        if target == "holder" and inspection.owner is not None:
            token = inspection.owner
        elif target == "first waiter" and inspection.waiters:
            token = inspection.waiters[0]
        pid = token.partition("-")[0]  # a token begins with the id of its process
        for worker in self.workers:
            if str(worker.pid) == pid:
                return worker
        return any_worker

    def kill(self, victim: BaseProcess) -> None:
        """Kill the worker, and start another in its place."""
        victim.kill()
        victim.join(10)
        self.workers.remove(victim)
        self._pause_end_times.pop(victim, None)
        self.workers.append(self._start_worker())

    def pause(self, victim: BaseProcess, seconds: float) -> None:
        """Suspend the worker by SIGSTOP. The first resume() after `seconds` continues it."""
        send_signal(victim, signal.SIGSTOP)
        self._pause_end_times[victim] = time.monotonic() + seconds

    def resume(self, all_workers: bool = False) -> None:
        """Continue each suspended worker whose pause is over, or all suspended workers."""
        for victim, pause_end in list(self._pause_end_times.items()):
            if all_workers or pause_end <= time.monotonic():
                send_signal(victim, signal.SIGCONT)
                del self._pause_end_times[victim]


def test_random_faults_allow_no_second_holder(own_server: Server, tmp_path: Path) -> None:
    """Random faults hit the processes that contend for the lock, and their connections.

    No two leases are valid at the same time. Afterwards the lock is free and its queue is empty.
    """
    client = own_server.make_client()
    lock = RedisLock(client, "stress", ttl=TTL_SECONDS)
    proxy = LoopbackProxy(own_server.port)
    history = tmp_path / "history.jsonl"
    rng = random.Random(SEED)
    # Each fault occurs at least once. A pause of 0.125 s on average follows each fault, so there
    # are 8 faults per second.
    planned_faults = [*FAULTS, *rng.choices(FAULTS, k=int(8 * CHAOS_SECONDS))]
    contenders = Contenders(proxy.port, history)
    try:
        eventually(history.exists, within=30)
        for fault in rng.sample(planned_faults, len(planned_faults)):
            victim = contenders.choose_victim(lock, rng)
            if fault == "kill":
                contenders.kill(victim)
            elif fault == "pause":
                contenders.pause(victim, rng.uniform(0.05, 3 * TTL_SECONDS))
            elif fault == "cut":
                proxy.cut()
            elif fault == "reply":
                proxy.lose_reply(b"EVALSHA")
            elif fault == "pubsub":
                client.client_kill_filter(_type="pubsub")
            time.sleep(rng.uniform(0.05, 0.2))
            contenders.resume()
        contenders.resume(all_workers=True)
        for worker in contenders.workers:
            worker.terminate()
        for worker in contenders.workers:
            worker.join(30)
            # SIGTERM kills a process that has just started and has no handler yet.
            assert worker.exitcode in (0, -signal.SIGTERM)
    finally:
        contenders.resume(all_workers=True)
        for worker in contenders.workers:
            worker.kill()
            worker.join(10)
        proxy.stop()
    events = read_history(history)
    assert find_violations(events) == [], f"LOCKS_CHAOS_SEED={SEED}"
    # The lock was used in spite of the faults.
    assert len(list_holds(events)) > len(planned_faults) / 4
    keys_without_ttl = [key for key in client.scan_iter() if client.pttl(key) == -1]
    assert keys_without_ttl == []
    lock.acquire(2 * TTL_SECONDS).release()  # fails if dead waiters delay the acquisition

    def has_no_waiters_after_use() -> bool:
        lock.acquire(1).release()  # removes dead waiters from the queue
        return not lock.inspect().waiters

    eventually(has_no_waiters_after_use)
