"""stall: Redis is stopped past its clients' timeout, and then goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial


class Stall(Fault):
    """SIGSTOP of Valkey. A command whose client has given up stays in the socket's buffer and is
    carried out after SIGCONT: a lock that nobody knows of."""

    name = "stall"
    title = "Redis is stopped past its clients' timeout"

    def __init__(self) -> None:
        super().__init__()
        self.pid = 0

    def enter(self, trial: Trial) -> None:
        first = trial.ask_once("early", VICTIMS)  # so that connections are open
        self.require(
            first == "sold", f"{trial.lock}: the first buyer was answered {first} before the fault"
        )

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.pid = testbed.pid_of(testbed.main)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require_soon(self._is_stopped, "Redis still runs", 2.0)
        return "Redis is in state T until every victim has given up"

    def _is_stopped(self) -> bool:
        return measure.states_of([self.pid])[self.pid] == psutil.STATUS_STOPPED

    def lasts(self, testbed: Testbed) -> bool:
        return self._is_stopped()

    def act(self, trial: Trial) -> None:
        outcome = trial.ask_once("victim", VICTIMS)
        if not self._is_stopped():
            trial.miss("Redis ran again before the victim had given up")
        elif outcome not in trial.without_reply:
            trial.wrong.append(f"the victim was answered {outcome} by a stopped Redis")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)
