"""The configuration of a node: open files, and connections that fit into them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest
from django.conf import settings

SHOW = """
import json, resource
from shop import gunicorn_conf as conf
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], conf.worker_connections]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 8192, 8192, 7792),  # a usual shell
        (256, 256, 256, 101),  # more than threads, or none could be kept
    ],
)
def test_open_files_are_raised_to_the_hard_limit_and_connections_fit_in(
    soft: int, hard: int, raised: int, connections: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=settings.BASE_DIR,
        env={"WEB_THREADS": "100"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [raised, connections]


BEGIN = """
import gc, json, sys
from shop import gunicorn_conf as conf
conf.on_starting(None)
shops = [name for name in ("shop.settings", "shop.models", "shop.views") if name in sys.modules]
conf.post_fork(None, None)
print(json.dumps([
    [name for name in conf.LIBRARIES if name not in sys.modules], shops,
    gc.isenabled(), gc.get_freeze_count() > 10_000,
]))
conf.loaded()
print(json.dumps(gc.isenabled()))
"""


def test_the_libraries_are_imported_before_the_workers_are_forked_and_the_shop_is_not() -> None:
    """Else SIGHUP would bring none of its new code. Garbage is collected once all is loaded."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN],
        cwd=settings.BASE_DIR,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    first, last = map(json.loads, done.stdout.splitlines())
    assert first == [[], [], False, True]
    assert last is True
