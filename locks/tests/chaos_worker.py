"""Takes a lock again and again, and writes down each moment at which its lease was good.

    python -m locks.tests.chaos_worker <port> <ttl> <seed> <history file> <stop file>

It ends once the stop file exists. The history has one JSON object per line: the fence, and the
monotonic second just before a check that passed. A line is written before anything else happens,
so that a killed holder's are there.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from pathlib import Path

import redis

from .. import LockError, RedisLock

THREADS = 2


def work(port: int, ttl: float, seed: str, history: int, stop: Path) -> None:
    chance = random.Random(seed)
    lock = RedisLock(redis.Redis(port=port, socket_timeout=1), "chaos", ttl=ttl)
    while not stop.exists():
        try:
            lease = lock.acquire(chance.choice([0.0, 0.05, 0.5, 3.0]))
        except LockError:
            time.sleep(0.01)
            continue
        leave = time.monotonic() + chance.choice([0.0] * 3 + [0.005] * 3 + [0.02] * 3 + [2 * ttl])
        try:
            while True:
                at = time.monotonic()
                lease.check()
                os.write(history, b"%b\n" % json.dumps({"fence": lease.fence, "at": at}).encode())
                if at >= leave:
                    break
                time.sleep(0.005)
            lease.release()
        except LockError:
            continue


def main(port: int, ttl: float, seed: str, path: str, stop: str) -> None:
    logging.disable(logging.WARNING)  # there is a lot to warn about
    history = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    threads = [
        threading.Thread(target=work, args=(port, ttl, f"{seed}-{n}", history, Path(stop)))
        for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
