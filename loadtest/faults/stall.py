"""stall: Redis stands still for longer than its clients wait, and then goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Stage
from loadtest.faults.trial import Scene


class Stall(Fault):
    """SIGSTOP of Valkey. What a client asked for and gave up stands in the socket's buffer and is
    carried out after SIGCONT: a lock that nobody knows to have."""

    name = "stall"
    title = "Redis stands still past its clients' timeout"

    def __init__(self) -> None:
        super().__init__()
        self.pid = 0

    def enter(self, scene: Scene) -> None:
        first = scene.ask_once("early", VICTIMS)  # so that connections are open
        self.require(first == "sold", f"{scene.lock}: {first} before anything happened")

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.pid = stage.pid_of(stage.main)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require_soon(
            lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, "Redis runs on"
        )
        return f"Redis (pid {self.pid}) is in state T until every victim has given up"

    def act(self, scene: Scene) -> None:
        told = scene.ask_once("victim", VICTIMS)
        if told != "unavailable":
            scene.broke(f"the victim was told {told} while Redis stood still")

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)
