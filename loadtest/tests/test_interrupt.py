"""Ctrl-C before a rush ends Locust, no matter what it executes when the signal arrives."""

import subprocess
import sys

from loadtest.judge.verdict import EXIT_CODES

#: A program like Locust before its rush. {send_sigint} is one of the statements below, each of
#: which sends the program SIGINT, as Ctrl-C does.
PROGRAM = """
import os
import signal
import time

from gevent import monkey

monkey.patch_all()

from loadtest.rush.locust import interrupt

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if a shell used `&`
interrupt.install()


class SendsSigintAtItsEnd:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))  # Python calls the signal handler here, between two bytecodes


{send_sigint}
time.sleep(20)
"""
# Where the signal handler runs: in the main greenlet, in a finalizer, or in another greenlet.
IN_MAIN = "os.kill(os.getpid(), signal.SIGINT)"
IN_FINALIZER = "SendsSigintAtItsEnd()"
IN_GREENLET = "import gevent; gevent.spawn(os.kill, os.getpid(), signal.SIGINT)"


def test_interrupt_ends_locust_from_anywhere() -> None:
    """The signal handler runs in the main greenlet, in a finalizer or in another greenlet."""
    for send_sigint in (IN_MAIN, IN_FINALIZER, IN_GREENLET):
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(send_sigint=send_sigint)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert process.stderr == "UNKNOWN: interrupted before there was a rush\n", send_sigint
        assert process.returncode == EXIT_CODES["unknown"], send_sigint
