"""Writes recorded/worlds.json: all schedules of two buyers, each with at most one outside event.

A world is a strategy with its database, its stock, and the outside events that may come between two
moves of a buyer: a pause, the end of a process, the end of a ttl, ... (worlds.py).

python -m tools.site.recorder.recorded_worlds
    record [WORLD ...]   play every schedule of these worlds, or of all, and record the moves
    compare [WORLD ...]  play them again, and name the worlds that differ from the recording
    sample [WORLD ...]   the same, with a few schedules of each event only
"""

import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import django
from django.db import connection

from loadtest.stack.stack import Stack
from servers.valkey import read_version
from tools.site.recorder.lock_servers import LockServers
from tools.site.worlds import (
    EVENTS,
    WORLDS,
    WORLDS_FILE,
    Moves,
    find_event,
    format_recording,
    list_whole_schedules,
    read_moves,
    read_worlds,
    sort_by_length,
)

#: How many worlds are played at the same time. Their buyers wait most of the time.
PARALLEL_WORLDS = 4
#: How many schedules of each world and event are played again as a sample.
SCHEDULES_IN_SAMPLE = 6
#: The query for the version of a database, by Django's name of its vendor.
VERSION_QUERIES = {"postgresql": "SHOW server_version", "mysql": "SELECT version()"}


@contextmanager
def shop_on_own_servers(database: str) -> Iterator[LockServers]:
    """Set Django up in this process on the servers of a new stack, and yield the locks' servers."""
    settings = {"SHOP_DB_POOL": "0", "SHOP_DEMO_PAUSES": ""}
    with (
        tempfile.NamedTemporaryFile() as log,
        tempfile.TemporaryDirectory() as folder,
        Stack(node_count=1, workers=1, threads=1, log=log, database=database) as stack,
    ):
        os.environ.update(stack.nodes[0].environment | settings)
        django.setup()
        from tools.site.recorder.world import warm_up

        warm_up()
        yield LockServers(stack.valkeys[0], Path(folder))


def record_world(name: str) -> dict[str, Any]:
    """Play all schedules of a world, and return their recording for WORLDS_FILE.

    A world is a strategy with its database, its stock, and its outside events. The recording has
    the `moves`, the date (`recorded`), the `machine`, and for each event the number of `schedules`
    and the `seconds` that they took. A process can call this only once.
    """
    world = WORLDS[name]
    moves: Moves = {}
    schedules = {}
    seconds = {}
    with shop_on_own_servers(world.database) as servers:
        from tools.site.recorder.world import play_all_schedules

        for event in world.events:
            started_at = time.monotonic()
            event_name = EVENTS.get(event, "no event")
            schedules[event_name] = play_all_schedules(world, event, servers, moves)
            seconds[event_name] = round(time.monotonic() - started_at)
            print(
                f"{name}, {event_name}: {schedules[event_name]} in {seconds[event_name]} s",
                file=sys.stderr,
                flush=True,
            )
        return {
            "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": describe_machine(),
            "schedules": schedules,
            "seconds": seconds,
            "moves": sort_by_length(moves),
        }


def choose_sample(moves: Moves) -> list[str]:
    """Return a few schedules of each event, spread evenly over all schedules of the event."""
    schedules_by_event: dict[str, list[str]] = {}
    for schedule in list_whole_schedules(moves):
        schedules_by_event.setdefault(find_event(schedule), []).append(schedule)
    chosen = []
    for schedules in schedules_by_event.values():
        for number in range(min(SCHEDULES_IN_SAMPLE, len(schedules))):
            index = number * len(schedules) // SCHEDULES_IN_SAMPLE
            chosen.append(schedules[index])
    return chosen


def replay_sample(name: str) -> list[str]:
    """Play some schedules of a world again, and return those that differ from the recording.

    A returned text is the name of the world, a space, and the schedule. A process can call this
    function only once, because the function sets Django up.
    """
    moves = read_moves()[name]
    with shop_on_own_servers(WORLDS[name].database) as servers:
        from tools.site.recorder.world import replay

        return [
            f"{name} {schedule}"
            for schedule in choose_sample(moves)
            if not replay(WORLDS[name], schedule, moves, servers)
        ]


def make_process_pool(worlds: Sequence[str]) -> ProcessPoolExecutor:
    """Return a pool that starts a new process for each world, because each sets Django up anew."""
    return ProcessPoolExecutor(
        min(PARALLEL_WORLDS, len(worlds)),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    )


def describe_machine() -> str:
    """Return as text the number of processors, and the versions of Python and the servers."""
    with connection.cursor() as cursor:
        cursor.execute(VERSION_QUERIES[connection.vendor])
        database = cursor.fetchone()[0]
    return (
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"{connection.display_name} {database}, {read_version()}"
    )


def save_recording(name: str, recording: dict[str, Any]) -> None:
    """Write the recording of a world into WORLDS_FILE, and keep those of the other worlds."""
    recordings = {}
    if WORLDS_FILE.exists():
        recordings = read_worlds()
    recordings[name] = recording
    in_order = {name: recordings[name] for name in WORLDS if name in recordings}
    WORLDS_FILE.write_text(format_recording(in_order))


def find_differing_worlds(recordings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the worlds whose moves in `recordings` differ from WORLDS_FILE."""
    recorded_moves = read_moves()
    return [
        name
        for name, recording in recordings.items()
        if recording["moves"] != recorded_moves.get(name)
    ]


def main(arguments: Sequence[str]) -> int:
    """Run a command, and return 0, 1 if a world differs, or 2 for a wrong command line."""
    command = arguments[0] if arguments else ""
    worlds = arguments[1:] or list(WORLDS)
    if command not in ("record", "compare", "sample"):
        print(__doc__, file=sys.stderr)
        return 2
    differing: list[str] = []
    with make_process_pool(worlds) as pool:
        if command == "sample":
            differing = list(chain.from_iterable(pool.map(replay_sample, worlds)))
        if command == "compare":
            differing = find_differing_worlds(
                dict(zip(worlds, pool.map(record_world, worlds), strict=True))
            )
        if command == "record":
            for name, recording in zip(worlds, pool.map(record_world, worlds), strict=True):
                save_recording(name, recording)
            return 0
    print(f"differing from the recording: {', '.join(differing) or 'none'}")
    if differing:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
