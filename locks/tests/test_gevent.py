"""gevent: the lock works in a patched process, also when it was imported before the patch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..testing.process import LOCKS, ROOT
from ..testing.server import Server

pytest.importorskip("gevent")


def test_greenlets_wait_renew_and_give_up_in_a_process_patched_after_the_import(
    server: Server,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"{LOCKS}.tests.gevented", str(server.port)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "fine\n", done.stderr


def test_importing_and_making_a_lock_makes_no_primitive_that_a_later_patch_would_miss() -> None:
    program = f"""
import threading, redis
client, made = redis.Redis(), []
for kind in ("Lock", "RLock", "Condition", "Event", "Thread"):
    setattr(threading, kind, lambda *_, kind=kind, **__: made.append(kind))
import {LOCKS} as locks
locks.RedisLock(client, "x", ttl=1)
print(made)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr
