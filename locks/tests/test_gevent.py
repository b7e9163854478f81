"""The lock works in a process that gevent patches, even after the import of the locks."""

import sys

import pytest

from ..testing.server import Server
from .waiting import LOCKS_PACKAGE, run_program

pytest.importorskip("gevent")


def test_greenlets_work_when_gevent_patches_after_import(server: Server) -> None:
    """The greenlets wait, renew and give up."""
    program = f"{LOCKS_PACKAGE}.tests.gevent_program"
    assert run_program(sys.executable, "-W", "ignore", "-m", program, server.port).endswith(
        "done\n"
    )


def test_new_lock_creates_no_threading_primitive() -> None:
    """gevent could not patch a primitive that exists already."""
    program = f"""
import threading, redis
client = redis.Redis()
created = []
for name in ("Lock", "RLock", "Condition", "Event", "Thread"):
    setattr(threading, name, lambda *_, name=name, **__: created.append(name))
import {LOCKS_PACKAGE} as locks
locks.RedisLock(client, "x", ttl=1)
print(created)
"""
    assert run_program(sys.executable, "-c", program) == "[]\n"
