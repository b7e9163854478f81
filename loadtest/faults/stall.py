"""stall: Redis is stopped past its clients' timeout, and then goes on."""

from __future__ import annotations

import os
import signal

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS
from loadtest.faults.trial import Trial


class Stall(Fault):
    """SIGSTOP of Valkey. A command whose client has given up stays in the socket's buffer and is
    carried out after SIGCONT: a lock that nobody knows of."""

    name = "stall"
    title = "Redis is stopped past its clients' timeout"
    pid = 0

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial, VICTIMS)

    def fire(self) -> None:
        self.pid = int(self.ask("INFO", "server")["process_id"])
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self) -> str:
        self.require_soon(self.lasts, "Redis still runs", 2.0)
        return "Redis is in state T until every victim has given up"

    def lasts(self) -> bool:
        return measure.states_of([self.pid])[self.pid] == psutil.STATUS_STOPPED

    def act(self, trial: Trial) -> None:
        trial.must_be_answered("victim", *trial.without_reply, node=VICTIMS)
        if not self.lasts():
            trial.miss("Redis ran again before the victim had given up")

    def heal(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)
