"""The levels of levels.html: puzzles in which a visitor looks for a schedule that reaches a goal.

A level offers the recorded schedules of one world, which is a strategy with its stock and its
outside events (worlds.py). A goal is, for example, an oversell.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tools.site.lock_state import deletes_other_buyers_lock
from tools.site.worlds import (
    NO_EVENT,
    RESUME,
    WORLDS,
    Moves,
    find_outside_event,
    is_stuck,
    list_beginnings,
    oversells,
    read_events,
    sort_by_length,
)

LEVELS_FILE = Path(__file__).with_name("levels.toml")


def _ends_with_outcome(moves: Moves, schedule: str, outcome: str) -> bool:
    """Return whether a purchase ends in the last turn of a schedule, with this outcome."""
    return any(event[1:] == ["ends", outcome] for event in moves[schedule]["did"])


def _was_kept_waiting(moves: Moves, schedule: str) -> bool:
    """Return whether B waited during a pause of A, and in the last turn was told `sold_out`.

    B waited during the pause if the last event of B before A resumes is `waits`.
    """
    turns_until_resume, resume, _ = schedule.partition(RESUME)
    is_sold_out_for_b = ["B", "ends", "sold_out"] in moves[schedule]["did"]
    if not resume or not is_sold_out_for_b:
        return False
    kinds_of_b = [
        event.kind
        for beginning in list_beginnings(turns_until_resume)
        for event in read_events(moves[beginning])
        if event.buyer == "B"
    ]
    return bool(kinds_of_b) and kinds_of_b[-1] == "waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level of levels.toml. The comment at the top of that file explains the fields."""

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
        """Return the moves of the schedules that are possible in this level.

        Such a schedule has no outside event, or has one that the level offers.

        moves  what happened in each turn of all schedules; see Moves in worlds.py
        """
        offered_events = [NO_EVENT] + self.events
        return {
            schedule: turn
            for schedule, turn in moves.items()
            if find_outside_event(schedule) in offered_events
        }

    def find_schedules_reaching(self, moves: Moves, goal: str) -> list[str]:
        """Return the schedules that reach a goal in their last turn, the shortest first.

        Schedules that continue after they have reached the goal are left out.

        goal  `self.goal`, or `self.impossible`, a goal that no schedule reaches
        """
        schedules_to_goal: list[str] = []
        for schedule in sort_by_length(self.select_offered_moves(moves)):
            has_reached_before = schedule.startswith(tuple(schedules_to_goal))
            if self._reaches(goal, moves, schedule) and not has_reached_before:
                schedules_to_goal.append(schedule)
        return schedules_to_goal

    def _reaches(self, goal: str, moves: Moves, schedule: str) -> bool:
        """Return whether the last turn of a schedule reaches a goal.

        goal  `goal` or `impossible` of a level in levels.toml
        """
        match goal:
            case "oversold":
                return oversells(moves, schedule, WORLDS[self.world].units)
            case "stuck":
                return is_stuck(moves, schedule)
            case "foreign-release":
                return deletes_other_buyers_lock(moves, schedule)
            case "lock-lost":  # the database stores a higher fence, so it refuses the purchase
                return _ends_with_outcome(moves, schedule, "lost")
            case "kept-waiting":
                return _was_kept_waiting(moves, schedule)
            case "replayed":
                return _ends_with_outcome(moves, schedule, "replayed")
        raise ValueError(
            f"levels.toml has the unknown goal {goal!r}; correct it, or add it to Level._reaches"
        )


def read_levels() -> list[Level]:
    """Return the levels in the order of levels.toml."""
    return [Level(**table) for table in tomllib.loads(LEVELS_FILE.read_text())["level"]]
