"""The levels of levels.html: what to reach, in which recorded world, and by which moves."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.site.narration import deletes_others_lock
from tools.site.worlds import WORLDS, Moves, event_of, is_stuck, oversells

LEVELS_FILE = Path(__file__).with_name("levels.toml")


def _has_ended(moves: Moves, key: str, outcome: str) -> bool:
    return any(event[1:] == ["ends", outcome] for event in moves[key]["did"])


#: Whether the last move of a schedule reaches a goal, by its name in levels.toml.
GOALS: dict[str, Callable[[Moves, str, int], bool]] = {
    "oversold": oversells,
    "stuck": lambda moves, key, _: is_stuck(moves, key),
    "foreign-release": lambda moves, key, _: deletes_others_lock(moves, key),
    "refused": lambda moves, key, _: _has_ended(moves, key, "lost"),
    "replayed": lambda moves, key, _: _has_ended(moves, key, "replayed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level; levels.toml explains the fields."""

    slug: str
    title: str
    task: str
    world: str
    events: list[str]
    goal: str
    hint: str
    why: str
    lesson: int
    fault: str = ""
    document: str = ""
    impossible: str = ""
    wrong: str = ""

    def offered(self, moves: Moves) -> Moves:
        """Return the moves of its world without the events that it does not offer."""
        return {key: turn for key, turn in moves.items() if event_of(key) in ("", *self.events)}

    def reached_by(self, moves: Moves, goal: str) -> list[str]:
        """Return the moves that reach a goal, the shortest first, without what may follow them."""
        reaches = GOALS[goal]
        units = WORLDS[self.world].units
        reaching: list[str] = []
        for key in sorted(self.offered(moves), key=lambda key: (len(key), key)):
            if reaches(moves, key, units) and not any(map(key.startswith, reaching)):
                reaching.append(key)
        return reaching


def levels() -> list[Level]:
    """Return the levels in order."""
    return [Level(**table) for table in tomllib.loads(LEVELS_FILE.read_text())["level"]]
