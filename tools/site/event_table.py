"""The table of outside events: the worst outcome of each event under each strategy.

An outside event is, for example, a pause of buyer A's process. A row is a world: a strategy with
its stock and its outside events, whose schedules are recorded (worlds.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tools.site.narration import EVENT_BUTTONS
from tools.site.worlds import (
    FAILOVER,
    FAULTS_BY_EVENT,
    NO_EVENT,
    RESTART,
    RETRY,
    TIME_PASSES,
    WORLDS,
    Moves,
    find_outside_event,
    is_stuck,
    list_beginnings,
    list_whole_schedules,
    oversells,
    read_events,
    read_moves,
)

#: The outside events that have a column: all but RETRY, which was recorded for one world only.
SHOWN_EVENTS = [event for event in FAULTS_BY_EVENT if event != RETRY]
#: The outside events that affect only strategies with a lock in Redis.
EVENTS_NEEDING_SERVER_LOCK = (TIME_PASSES, RESTART, FAILOVER)
#: The outcomes of a schedule, as the table shows them.
OVERSOLD = "oversold"
STUCK = "waits forever"
REFUSED = "the late buyer is refused"
EXACT = "exact"
#: Outcome, the worst first -> its CSS class.
CSS_CLASSES = {OVERSOLD: "bad", STUCK: "odd", REFUSED: "good", EXACT: "good"}


@dataclass(frozen=True, slots=True)
class EventCell:
    """The worst outcome of an outside event in the schedules of a world.

    outcome            the worst outcome, a key of CSS_CLASSES
    worst_count        the number of schedules with this outcome
    schedule_count     the number of all schedules with the event
    shortest_schedule  the shortest schedule with this outcome
    """

    outcome: str
    worst_count: int
    schedule_count: int
    shortest_schedule: str


def classify_schedule(moves: Moves, schedule: str, units: int) -> str:
    """Return the outcome of a whole schedule, a key of CSS_CLASSES.

    units  the stock at the beginning
    """
    if oversells(moves, schedule, units):
        return OVERSOLD
    if is_stuck(moves, schedule):
        return STUCK
    for beginning in list_beginnings(schedule):
        for event in read_events(moves[beginning]):
            # A purchase has the outcome `lost` if it notices that it has lost its lock.
            if event.kind == "ends" and event.details == ["lost"]:
                return REFUSED
    return EXACT


def find_cell(world_name: str, moves: Moves, event: str) -> EventCell | None:
    """Return the cell for a world and an outside event; None if no schedule has the event.

    A world is a strategy with its stock and its outside events.

    moves  the recorded moves of the world
    event  NO_EVENT stands for the schedules without an outside event
    """
    units = WORLDS[world_name].units
    schedules = [
        schedule
        for schedule in list_whole_schedules(moves)
        if find_outside_event(schedule) == event
    ]
    if not schedules:
        return None
    outcomes = {schedule: classify_schedule(moves, schedule, units) for schedule in schedules}
    worst = min(outcomes.values(), key=list(CSS_CLASSES).index)
    worst_schedules = [schedule for schedule in schedules if outcomes[schedule] == worst]
    return EventCell(
        outcome=worst,
        worst_count=len(worst_schedules),
        schedule_count=len(schedules),
        shortest_schedule=min(worst_schedules, key=len),
    )


def explain_absence(world_name: str, event: str) -> str:
    """Return the reason why a world has no recorded schedule with an outside event.

    A world is a strategy with its stock and its outside events.
    """
    if event in EVENTS_NEEDING_SERVER_LOCK and not WORLDS[world_name].has_server_lock:
        return "has no lock in Redis"
    return "not recorded"


def make_rows() -> list[tuple[list[str], list[EventCell | str]]]:
    """Return the rows of the table: the names of the worlds in a row, and the cells of the row.

    A world is a strategy with its stock and its outside events. Worlds with the same outcomes share
    a row. The cells of the row are those of its first world. If an event was not recorded for a
    world, the cell is the reason as text. The world with the event RETRY is left out, because this
    event has no column.
    """
    cells_by_world = {
        name: [
            find_cell(name, moves, event) or explain_absence(name, event)
            for event in [NO_EVENT] + SHOWN_EVENTS
        ]
        for name, moves in read_moves().items()
        if RETRY not in WORLDS[name].events
    }
    names_by_outcomes: dict[Sequence[str], list[str]] = {}
    for name, cells in cells_by_world.items():
        outcomes = tuple(cell.outcome if isinstance(cell, EventCell) else cell for cell in cells)
        names_by_outcomes.setdefault(outcomes, []).append(name)
    return [(names, cells_by_world[names[0]]) for names in names_by_outcomes.values()]


def make_table() -> str:
    """Return the table of outside events as HTML: rows of worlds, and a column for each event.

    A cell shows the worst outcome, and links to the shortest schedule with this outcome.
    """
    headings = ["No event"] + [EVENT_BUTTONS[event] for event in SHOWN_EVENTS]
    html_headings = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    html_rows = "\n".join(_render_row(names, cells) for names, cells in make_rows())
    return f"<thead><tr><td></td>{html_headings}</tr></thead>\n<tbody>{html_rows}</tbody>"


def _render_row(names: Sequence[str], cells: Sequence[EventCell | str]) -> str:
    """Return a row of the table as HTML. Its heading has a link to each of these worlds.

    names  worlds (strategies with their stock and outside events) that have the same outcomes
    cells  the cells of the first of these worlds
    """
    links = " ".join(f'<a href="levels.html#{name}/">{name}</a>' for name in names)
    html_cells = "".join(_render_cell(names[0], cell) for cell in cells)
    return f'<tr><th scope="row">{links}</th>{html_cells}</tr>'


def _render_cell(world_name: str, cell: EventCell | str) -> str:
    """Return a cell of the table as HTML. It links to the shortest schedule with its outcome.

    world_name  the world of this schedule: a strategy with its stock and its outside events
    cell        the worst outcome of the schedules. If it is a text, there is no schedule: the text
                is the reason, and is shown without a link
    """
    if isinstance(cell, str):
        return f'<td><span class="hint">{cell}</span></td>'
    address = f"levels.html#{world_name}/{cell.shortest_schedule}"
    return (
        f'<td><a class="{CSS_CLASSES[cell.outcome]}" href="{address}">'
        f"{cell.outcome}<small>{cell.worst_count} of {cell.schedule_count}</small></a></td>"
    )
