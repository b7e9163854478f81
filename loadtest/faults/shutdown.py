"""shutdown: the node is asked to end while a holder is inside."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import TTL, VICTIMS, Stage, until
from loadtest.faults.trial import Scene
from loadtest.stack.client import Shop

#: Seconds that the node is given to end, once everybody has left it.
ENDS = 10.0


class Shutdown(Fault):
    """SIGTERM with a graceful timeout longer than the section: everybody on node A is answered."""

    name = "shutdown"
    title = "SIGTERM, and time enough to finish"
    grace = 0.3
    ttl = 5.0  # only the answers matter here, not how long a lock stays

    def __init__(self) -> None:
        super().__init__()
        self.code: int | None = None

    def enter(self, scene: Scene) -> None:
        scene.victim_enters()
        guest = scene.guest = scene.buyer("guest", stop="arrives")  # in flight behind the victim
        stage = scene.stage
        stage.let_go(guest.attempt, "arrives")
        scene.send(guest, VICTIMS)
        self.require_soon(lambda: scene.stands(guest), f"{scene.lock}: the guest is not in flight")

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        process = stage.nodes[VICTIMS].process
        assert process is not None
        self.process = process
        process.send_signal(signal.SIGTERM)

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        shop = Shop(stage.nodes[VICTIMS].url, timeout=0.2)
        self.require_soon(lambda: not shop.is_open(), "node A takes new buyers still")
        self.require(self.process.poll() is None, "node A has ended already")
        return "node A answers nobody new, and has not ended"

    def part(self, scene: Scene) -> None:
        super().part(scene)
        assert scene.victim is not None
        if not scene.victim.join(10) or scene.victim.first != "sold":
            scene.broke(f"the victim was told {scene.victim.first or 'nothing'}, not sold")
        if scene.guest is None or not scene.guest.join(10) or scene.guest.first == "unknown":
            scene.broke("who was in flight behind the victim had no answer")

    def meanwhile(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        until(lambda: self.process.poll() is not None, ENDS + self.grace)

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.restart(VICTIMS)


class ShutdownShort(Shutdown):
    """The same with a graceful timeout shorter than the section: it ends like a crash."""

    name = "shutdown@short"
    title = "SIGTERM, and too little time"
    ttl = TTL
    returns = False
    recovery = True

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.restart(VICTIMS, WEB_GRACEFUL_TIMEOUT="1")

    def enter(self, scene: Scene) -> None:
        scene.victim_enters()
        scene.rivals_wait(1)  # two would show what `crash` shows

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        self.require_soon(lambda: self.process.poll() is not None, "node A runs on")
        ended = time.monotonic()
        for scene in scenes:
            scene.fired_at = ended  # no lock may outlive the node by more than its ttl
            scene.victim_was_cut_off()
        return f"node A ended with code {self.process.returncode}, its victims unanswered"

    def act(self, scene: Scene) -> None:
        """Rivals buy, or wait, as in the drain."""

    def meanwhile(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        """It has ended."""
