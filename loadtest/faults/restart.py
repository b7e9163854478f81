"""restart: Redis is killed and comes back without its data while a holder is inside."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage
from loadtest.faults.trial import Scene, still_held


class Restart(Fault):
    """SIGKILL of Valkey and a start with an empty memory, on the same port.

    Of Redlock's five servers 4 and 5 are cut off while its victim takes 1, 2 and 3; then 3 restarts
    empty and 4 and 5 come back: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def arm(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for way in stage.redlock[3:]:
            way.refuse()

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.before = self._run_ids(stage)
        self.held = still_held(scenes)
        stage.restart_empty()
        third = stage.valkeys[3]
        third.stop(signal.SIGKILL)
        stage.start_again(third)
        for way in stage.redlock[3:]:
            way.pass_on()

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        same = set(self.before) & set(self._run_ids(stage))
        self.require(not same, "it is the same Redis as before, or the same third one of Redlock's")
        left = [scene.lock for scene in scenes if scene.orphans()]
        self.require(not left, f"locks survived: {left}")
        return f"other run_ids, and no key of the {len(self.held)} locks held there before"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        for way in stage.redlock:
            way.pass_on()

    @staticmethod
    def _run_ids(stage: Stage) -> list[str]:
        """Of the main Redis and of Redlock's third server."""
        servers = (stage.main, stage.valkeys[3])
        return [str(stage.ask(server, "INFO", "server")["run_id"]) for server in servers]
