"""manage.py settle ends at SIGTERM, whatever it does at that moment."""

from __future__ import annotations

import subprocess
import sys

from django.conf import settings

#: SIGTERM comes while stop.wait() has the lock of its event.
PROGRAM = """
import os, signal, time
import django
django.setup()
from django.core.management import call_command
from shop.reserve.consumer import Settler

def run(self):
    with self.stop._cond:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    assert self.stop.wait(10)

Settler.run = run
call_command("settle")
"""


def test_sigterm_ends_it_also_while_it_waits_for_the_next_batch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=settings.BASE_DIR,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
