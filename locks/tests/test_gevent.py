"""Tests that a lock works with gevent, even if the locks were imported before gevent patches."""

import sys

import pytest

from ..testing.server import Server
from .waiting import LOCKS_PACKAGE, run_program

pytest.importorskip("gevent")


def test_greenlets_work_when_gevent_patches_after_import(server: Server) -> None:
    """Run a program whose greenlets wait, renew and give up: gevent_program.py."""
    program = f"{LOCKS_PACKAGE}.tests.gevent_program"
    assert run_program(sys.executable, "-W", "ignore", "-m", program, server.port).endswith(
        "done\n"
    )


def test_new_lock_creates_no_threading_primitive() -> None:
    """The import of the locks and a new lock create no object of `threading`.

    If such an object existed before gevent patches `threading`, gevent could not replace it.
    """
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
