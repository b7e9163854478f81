"""crash: the holder's machine is gone in one moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial

import psutil

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, Stage, until
from loadtest.faults.trial import Scene

#: Where a contender has read a time that is past, and has not acted on it yet.
TAKEOVER = "setnx-timestamp:before_takeover"


def _runs(pid: int) -> bool:
    """Whether there is such a process; one whose end nobody has asked for yet runs no more."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Crash(Fault):
    """SIGKILL of every process of node A. Of gunicorn's master alone it would be no crash: the
    worker would end its request and release its lock."""

    name = "crash"
    title = "SIGKILL of the holder's node"
    returns = False
    recovery = True

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []

    def enter(self, scene: Scene) -> None:
        scene.victim_enters()
        scene.rivals_wait(stop=f"{TAKEOVER},after_read" if scene.strategy["takes_over"] else "")

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.pids = stage.pids(VICTIMS)
        process = stage.nodes[VICTIMS].process
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require_soon(lambda: not any(map(_runs, self.pids)), "a process is left")
        for scene in scenes:
            scene.victim_was_cut_off()
        return f"pids {self.pids} are gone, the victims' connections were cut"

    def act(self, scene: Scene) -> None:
        """The rivals wait, or buy. Two that may both find the dead holder's time past, do."""
        if not scene.strategy["takes_over"]:
            until(lambda: any(rival.sold_at for rival in scene.rivals), self.grace)
            return
        both = until(lambda: all(scene.stands(r, TAKEOVER) for r in scene.rivals), self.grace)
        self.require(both, f"{scene.lock}: the rivals do not find the lock expired")
        for rival in scene.rivals:
            scene.stage.let_go(rival.attempt, TAKEOVER)
            until(partial(scene.stands, rival, "after_read"), 0.3)
        scene.rivals_leave()

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.restart(VICTIMS)
