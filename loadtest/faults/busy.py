"""busy: a script that does not end keeps Redis from answering anybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage, until
from loadtest.faults.trial import Scene

ENDLESS = "while true do end"
WRITES = "redis.call('set', KEYS[1], 1) while true do end"
#: Milliseconds after which Redis answers BUSY, and seconds that it stays so: less than a ttl.
THRESHOLD = "50"
BUSY = 0.4


class Busy(Fault):
    """First an endless script that has written: SCRIPT KILL says UNKILLABLE, and SHUTDOWN NOSAVE is
    the only way out. Then, with holders inside, one that SCRIPT KILL ends."""

    name = "busy"
    title = "an endless script; SCRIPT KILL, SHUTDOWN NOSAVE"

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[Scene] = []

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self._begin(stage, WRITES)
        for scene in scenes:
            self._refused(scene, "unkillable")
        try:
            stage.ask(stage.main, "SCRIPT", "KILL")
        except redis.ResponseError as error:
            self.unkillable = str(error)
        self.require("UNKILLABLE" in self.unkillable, f"SCRIPT KILL said {self.unkillable}")
        with suppress(redis.ConnectionError):  # it goes without an answer
            stage.ask(stage.main, "SHUTDOWN", "NOSAVE")
        self.script.join(5)
        stage.restart_empty()

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.over.clear()
        self._begin(stage, ENDLESS)

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        return f"BUSY; of the one that had written: {self.unkillable}"

    def meet(self, scene: Scene) -> None:
        """The victim is done while Redis is busy: its release is refused."""
        scene.victim_leaves()
        self._refused(scene, "rival-1")
        self.refused.append(scene)

    def part(self, scene: Scene) -> None:
        """All have been where they are going."""

    def meanwhile(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        time.sleep(BUSY)
        until(lambda: len(self.refused) == len(scenes), 10)  # all have asked a busy Redis
        stage.ask(stage.main, "SCRIPT", "KILL")
        self.script.join(5)
        self.over.set()

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.ask(stage.main, "CONFIG", "SET", "busy-reply-threshold", "5000")

    def _begin(self, stage: Stage, script: str) -> None:
        stage.ask(stage.main, "CONFIG", "SET", "busy-reply-threshold", THRESHOLD)

        def run() -> None:
            with suppress(redis.RedisError):  # it is killed, which is what we wait for
                stage.ask(stage.main, "EVAL", script, 1, "endless", timeout=30)

        self.script = threading.Thread(target=run, daemon=True)
        self.script.start()
        self.require_soon(lambda: _is_busy(stage), "Redis is not busy")

    def _refused(self, scene: Scene, name: str) -> None:
        told = scene.ask_once(name)
        if told != "unavailable":
            scene.broke(f"{name} was told {told} while Redis was busy, not unavailable")


def _is_busy(stage: Stage) -> bool:
    try:
        stage.ask(stage.main, "GET", "x", timeout=1)
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    except redis.RedisError:
        return False
    return False
