"""The levels of levels.html: puzzles in which a visitor looks for a schedule that reaches a goal.

The schedules are recorded ones of a world (worlds.py). A goal is, for example, an oversell.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tools.site.lock_state import deletes_others_lock
from tools.site.worlds import (
    GOES_ON,
    NO_EVENT,
    WORLDS,
    Moves,
    find_event,
    is_stuck,
    oversells,
    sort_by_length,
)

LEVELS_FILE = Path(__file__).with_name("levels.toml")


def _ends_with_outcome(moves: Moves, schedule: str, outcome: str) -> bool:
    """Return whether a purchase ends with this outcome in the last move of a schedule."""
    return any(event[1:] == ["ends", outcome] for event in moves[schedule]["did"])


def _was_kept_waiting(moves: Moves, schedule: str) -> bool:
    """Return whether B waited until A's pause ended, and then found the unit sold.

    The purchase of B ends as `sold_out` in the last move.
    """
    until_pause_ends, goes_on, _ = schedule.partition(GOES_ON)
    if not goes_on or ["B", "ends", "sold_out"] not in moves[schedule]["did"]:
        return False
    kinds_of_b = [
        event[1]
        for length in range(1, len(until_pause_ends) + 1)
        for event in moves[schedule[:length]]["did"]
        if event[0] == "B"
    ]
    return bool(kinds_of_b) and kinds_of_b[-1] == "waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level. The comment at the top of levels.toml explains the fields."""

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
    code: str = ""
    marks: list[str] = field(default_factory=list)
    impossible: str = ""
    wrong: str = ""

    def select_offered_moves(self, moves: Moves) -> Moves:
        """Return the moves whose schedule has no outside event, or one that the level offers."""
        events = [NO_EVENT] + self.events
        return {
            schedule: turn for schedule, turn in moves.items() if find_event(schedule) in events
        }

    def find_schedules_reaching(self, moves: Moves, goal: str) -> list[str]:
        """Return the schedules that end with the move that reaches a goal, the shortest first.

        goal  `self.goal`, or `self.impossible`, which no schedule reaches
        """
        reaching: list[str] = []
        for schedule in sort_by_length(self.select_offered_moves(moves)):
            has_reached_before = schedule.startswith(tuple(reaching))
            if self._reaches(goal, moves, schedule) and not has_reached_before:
                reaching.append(schedule)
        return reaching

    def _reaches(self, goal: str, moves: Moves, schedule: str) -> bool:
        """Return whether the last move of a schedule reaches a goal of levels.toml."""
        match goal:
            case "oversold":
                return oversells(moves, schedule, WORLDS[self.world].units)
            case "stuck":
                return is_stuck(moves, schedule)
            case "foreign-release":
                return deletes_others_lock(moves, schedule)
            case "lock-lost":  # a purchase ends as `lost`: the database has a higher fence
                return _ends_with_outcome(moves, schedule, "lost")
            case "kept-waiting":
                return _was_kept_waiting(moves, schedule)
            case "replayed":
                return _ends_with_outcome(moves, schedule, "replayed")
        raise ValueError(f"levels.toml has the goal {goal!r}, which Level._reaches does not know")


def read_levels() -> list[Level]:
    """Return the levels in the order of levels.toml."""
    return [Level(**table) for table in tomllib.loads(LEVELS_FILE.read_text())["level"]]
