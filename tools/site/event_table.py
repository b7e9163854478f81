"""A table of the effect of each event on each strategy, in its worst recorded schedule.

The strategies are those of tools.site.worlds: a world is a strategy with its recorded schedules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tools.site.narration import WORLD_BUTTONS
from tools.site.worlds import (
    ASKS_AGAIN,
    EVENTS,
    FAILOVER,
    NO_EVENT,
    RESTART,
    TIME_PASSES,
    WORLDS,
    Moves,
    find_event,
    is_stuck,
    list_whole_schedules,
    oversells,
    read_moves,
)

#: The events with a column: all but ASKS_AGAIN, which was recorded for one world only.
SHOWN_EVENTS = [event for event in EVENTS if event != ASKS_AGAIN]
#: The events that concern nothing but a lock in Redis.
LOCK_SERVER_EVENTS = (TIME_PASSES, RESTART, FAILOVER)
#: The outcomes of a schedule.
OVERSOLD = "oversold"
STUCK = "waits forever"
REFUSED = "the late buyer is refused"
EXACT = "exact"
#: Outcome, the worst first -> its CSS class.
CSS_CLASSES = {OVERSOLD: "bad", STUCK: "odd", REFUSED: "good", EXACT: "good"}


@dataclass(frozen=True, slots=True)
class EventCell:
    """The worst outcome of an event in the schedules of a world.

    outcome         one of CSS_CLASSES
    worst_count     the number of schedules that end with this outcome
    schedule_count  the number of all schedules with the event
    shortest        the shortest schedule with this outcome
    """

    outcome: str
    worst_count: int
    schedule_count: int
    shortest: str


def classify_schedule(moves: Moves, schedule: str, units: int) -> str:
    """Return the outcome of a whole schedule, one of CSS_CLASSES.

    units  the stock at the beginning
    """
    if oversells(moves, schedule, units):
        return OVERSOLD
    if is_stuck(moves, schedule):
        return STUCK
    for length in range(1, len(schedule) + 1):
        for event in moves[schedule[:length]]["did"]:
            if event[1:3] == ["ends", "lost"]:  # the shop has answered `lost`
                return REFUSED
    return EXACT


def find_cell(world_name: str, moves: Moves, event: str) -> EventCell | None:
    """Return the cell of a world, which is a strategy with its stock, and of an outside event.

    Returns None if no schedule of the world has the event.
    """
    units = WORLDS[world_name].units
    schedules = [
        schedule for schedule in list_whole_schedules(moves) if find_event(schedule) == event
    ]
    if not schedules:
        return None
    outcomes = {schedule: classify_schedule(moves, schedule, units) for schedule in schedules}
    worst = min(outcomes.values(), key=list(CSS_CLASSES).index)
    worst_schedules = [schedule for schedule in schedules if outcomes[schedule] == worst]
    shortest = min(worst_schedules, key=len)
    return EventCell(
        outcome=worst,
        worst_count=len(worst_schedules),
        schedule_count=len(schedules),
        shortest=shortest,
    )


def explain_absence(world_name: str, event: str) -> str:
    """Return why a world has no cell for an event."""
    if event in LOCK_SERVER_EVENTS and not WORLDS[world_name].has_server_lock:
        return "has no lock in Redis"
    return "not recorded"


def make_rows() -> list[tuple[list[str], list[EventCell | str]]]:
    """Return groups of worlds with the same outcomes, each with the cells of its first world.

    A world is a strategy with its stock. If an event was not recorded for a world, the cell is the
    reason as text. The world with the event ASKS_AGAIN is left out, because this event has no
    column.
    """
    cells_by_world = {
        name: [
            find_cell(name, moves, event) or explain_absence(name, event)
            for event in [NO_EVENT] + SHOWN_EVENTS
        ]
        for name, moves in read_moves().items()
        if ASKS_AGAIN not in WORLDS[name].events
    }
    groups: dict[Sequence[str], list[str]] = {}
    for name, cells in cells_by_world.items():
        pattern = tuple(cell.outcome if isinstance(cell, EventCell) else cell for cell in cells)
        groups.setdefault(pattern, []).append(name)
    return [(names, cells_by_world[names[0]]) for names in groups.values()]


def make_table() -> str:
    """Return the table of outside events as HTML: rows of worlds, and a column for each event.

    A cell links to the shortest schedule that has its outcome.
    """
    titles = ["No event"] + [WORLD_BUTTONS[event] for event in SHOWN_EVENTS]
    heads = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "\n".join(_make_row(names, cells) for names, cells in make_rows())
    return f"<thead><tr><td></td>{heads}</tr></thead>\n<tbody>{body}</tbody>"


def _make_row(names: Sequence[str], cells: Sequence[EventCell | str]) -> str:
    """Return a row as HTML. Its heading names the worlds, whose cells have the same outcomes."""
    links = " ".join(f'<a href="levels.html#{name}/">{name}</a>' for name in names)
    # The cells link to schedules of the first of these worlds.
    html_cells = "".join(_make_cell(names[0], cell) for cell in cells)
    return f'<tr><th scope="row">{links}</th>{html_cells}</tr>'


def _make_cell(name: str, cell: EventCell | str) -> str:
    """Return a cell as HTML: a link to a schedule of the world `name`.

    cell  if this is a text, the cell shows the text: the reason why there is no schedule
    """
    if isinstance(cell, str):
        return f'<td><span class="hint">{cell}</span></td>'
    return (
        f'<td><a class="{CSS_CLASSES[cell.outcome]}" href="levels.html#{name}/{cell.shortest}">'
        f"{cell.outcome}<small>{cell.worst_count} of {cell.schedule_count}</small></a></td>"
    )
