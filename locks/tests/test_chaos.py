"""Holders and waiters are killed and paused, connections cut, replies lost; and what still holds.

LOCKS_CHAOS_SECONDS=120 runs it longer, LOCKS_CHAOS_SEED=7 replays another plan of faults.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from .. import RedisLock
from ..bench.stress import holds, overlaps
from ..testing.process import LOCKS, ROOT
from ..testing.server import Proxy, Server, eventually

SECONDS = float(os.environ.get("LOCKS_CHAOS_SECONDS", "6"))
SEED = os.environ.get("LOCKS_CHAOS_SEED", "1")
TTL = 0.4
WORKERS = 5
FAULTS = ["kill", "pause", "pause", "cut", "reply", "pubsub", "none"]


class Crowd:
    """The processes that contend, and what befalls them."""

    def __init__(self, port: int, counter: int, history: Path) -> None:
        self.arguments = ["threads", port, counter, TTL, 10 * SECONDS, history]
        self.running: list[subprocess.Popen[bytes]] = []
        self.paused: dict[subprocess.Popen[bytes], float] = {}
        for _ in range(WORKERS):
            self.start()

    def start(self) -> None:
        program = [sys.executable, "-m", f"{LOCKS}.bench.stress_worker", *map(str, self.arguments)]
        self.running.append(subprocess.Popen(program, cwd=ROOT))

    def pick(self, lock: RedisLock, chance: random.Random) -> subprocess.Popen[bytes]:
        """The process of the holder, of the first waiter, or any: their tokens name it."""
        seen = lock.inspect()
        whom = chance.choice(["holder", "head", "anybody"])
        tokens = [seen.owner or ""] if whom == "holder" else seen.waiters[:1]
        anybody = chance.choice(self.running)
        pids = [token.partition("-")[0] for token in tokens if whom != "anybody"]
        return next((each for each in self.running if str(each.pid) in pids), anybody)

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        victim.wait(10)
        self.running.remove(victim)
        self.paused.pop(victim, None)
        self.start()

    def pause(self, victim: subprocess.Popen[bytes], seconds: float) -> None:
        victim.send_signal(signal.SIGSTOP)
        self.paused[victim] = time.monotonic() + seconds

    def resume(self, everybody: bool = False) -> None:
        for victim, until in list(self.paused.items()):
            if everybody or until <= time.monotonic():
                victim.send_signal(signal.SIGCONT)
                del self.paused[victim]


def test_whatever_happens_no_two_hold_the_lock_and_the_queue_drains(
    own_server: Server, tmp_path: Path
) -> None:
    client = own_server.client()
    lock = RedisLock(client, "stress", ttl=TTL)
    proxy = Proxy(own_server.port)
    history = tmp_path / "history.jsonl"
    chance = random.Random(SEED)
    plan = [*FAULTS, *chance.choices(FAULTS, k=int(8 * SECONDS))]
    crowd = Crowd(proxy.port, own_server.port, history)
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
            assert worker.wait(30) in (0, -signal.SIGTERM)  # the latter: it had just been started
    finally:
        crowd.resume(everybody=True)
        for worker in crowd.running:
            worker.kill()
            worker.wait(10)
        proxy.stop()
    events = [json.loads(line) for line in history.read_text().splitlines()]
    assert overlaps(events) == [], f"LOCKS_CHAOS_SEED={SEED}"
    assert len(holds(events)) > len(plan) / 4
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == [b"counter"]
    with lock.hold(wait=2 * TTL):  # nobody that died or gave up is in the way
        pass
    eventually(partial(_queue_is_empty, lock))


def _queue_is_empty(lock: RedisLock) -> bool:
    """After one more turn, in which waiters that have been away for too long are dropped."""
    with lock.hold(wait=1):
        pass
    return lock.inspect().waiters == ()
