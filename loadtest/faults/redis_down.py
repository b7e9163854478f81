"""redis-down: Redis is gone for a while."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage
from loadtest.faults.trial import Scene


class RedisDown(Fault):
    """SIGKILL of Valkey; later it starts empty. Meanwhile nothing may be sold that needs it."""

    name = "redis-down"
    title = "Redis is down, later back and empty"

    def enter(self, scene: Scene) -> None:
        first = scene.ask_once("early")
        self.require(first == "sold", f"{scene.lock}: {first} before anything happened")

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.main.stop(signal.SIGKILL)

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        try:
            stage.ask(stage.main, "PING")
        except redis.ConnectionError as error:
            return f"PING: {error}"
        self.require(False, "Redis answers")
        raise AssertionError

    def act(self, scene: Scene) -> None:
        wanted = "sold" if scene.strategy["backend"] == "postgresql" else "unavailable"
        for number in (1, 2, 3):
            told = scene.ask_once(f"rival-{number}")
            if told != wanted:
                scene.broke(f"rival-{number} was told {told} while Redis was down, not {wanted}")

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.start_again(stage.main)
