"""Writes recorded/worlds.json: all schedules of two buyers, each with at most one outside event.

A world is a strategy with its database, its stock, and its outside events (worlds.py). An outside
event comes between two moves of buyer A. Examples are a pause of A's process, its end, and the
expiry of a ttl.

python -m tools.site.recorder.recorded_worlds
    record [WORLD ...]   play every schedule of these worlds, or of all, and record the moves
    compare [WORLD ...]  play every schedule again without recording it, and print the worlds whose
                         moves differ from the recording
    sample [WORLD ...]   play a few schedules of each outside event again, and print the schedules
                         whose moves differ from the recording
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
    FAULTS_BY_EVENT,
    WORLDS,
    WORLDS_FILE,
    Moves,
    find_outside_event,
    format_recording,
    list_whole_schedules,
    read_moves,
    read_worlds,
    sort_by_length,
)

#: How many worlds are played at the same time. Their buyers wait most of the time.
PARALLEL_WORLDS = 4
#: How many schedules of each outside event of a world are played again as a sample.
SCHEDULES_IN_SAMPLE = 6
#: The query for the version of a database, by Django's name of its vendor.
VERSION_QUERIES = {"postgresql": "SHOW server_version", "mysql": "SELECT version()"}


@contextmanager
def shop_on_own_servers(database: str) -> Iterator[LockServers]:
    """Start the servers of a new stack, set Django up on them, and warm the shop up.

    Yields the locks' server and its replica.
    """
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
    these keys:

    recorded   the date
    machine    the machine and the versions
    schedules  outside event -> the number of schedules
    seconds    outside event -> the time that its schedules took
    moves      what happened in each turn; see Moves in worlds.py

    A process can call this function only once, because the function sets Django up.
    """
    world = WORLDS[name]
    moves: Moves = {}
    schedule_counts = {}
    seconds = {}
    with shop_on_own_servers(world.database) as servers:
        from tools.site.recorder.world import play_all_schedules

        for event in world.events:
            started_at = time.monotonic()
            event_name = FAULTS_BY_EVENT.get(event, "no event")
            count = play_all_schedules(world, event, servers, moves)
            schedule_counts[event_name] = count
            seconds[event_name] = round(time.monotonic() - started_at)
            print(
                f"{name}, {event_name}: {count} schedules in {seconds[event_name]} s",
                file=sys.stderr,
                flush=True,
            )
        return {
            "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": describe_machine(),
            "schedules": schedule_counts,
            "seconds": seconds,
            "moves": sort_by_length(moves),
        }


def choose_sample(moves: Moves) -> list[str]:
    """Return at most SCHEDULES_IN_SAMPLE schedules for each outside event.

    They are spread evenly over the schedules with this event. Schedules without an outside event
    are sampled, too.
    """
    schedules_by_event: dict[str, list[str]] = {}
    for schedule in list_whole_schedules(moves):
        schedules_by_event.setdefault(find_outside_event(schedule), []).append(schedule)
    sample = []
    for schedules in schedules_by_event.values():
        for number in range(min(SCHEDULES_IN_SAMPLE, len(schedules))):
            index = number * len(schedules) // SCHEDULES_IN_SAMPLE
            sample.append(schedules[index])
    return sample


def replay_sample(name: str) -> list[str]:
    """Play a sample of a world's schedules again, and return those that differ from the recording.

    Each is returned as text: the name of the world, a space, and the schedule. A process can call
    this function only once, because the function sets Django up.
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
    """Return a pool that starts a new process for each world.

    A world is a strategy with its database, its stock, and its outside events. Playing a world sets
    Django up, which is possible only once in a process.
    """
    return ProcessPoolExecutor(
        min(PARALLEL_WORLDS, len(worlds)),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    )


def describe_machine() -> str:
    """Return the number of processors, and the versions of Python and the servers, as text."""
    with connection.cursor() as cursor:
        cursor.execute(VERSION_QUERIES[connection.vendor])
        database = cursor.fetchone()[0]
    return (
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"{connection.display_name} {database}, {read_version()}"
    )


def save_recording(name: str, recording: dict[str, Any]) -> None:
    """Replace the recording of a world in WORLDS_FILE, in the order of WORLDS.

    A world is a strategy with its database, its stock, and its outside events.
    """
    recordings = {}
    if WORLDS_FILE.exists():
        recordings = read_worlds()
    recordings[name] = recording
    in_order = {name: recordings[name] for name in WORLDS if name in recordings}
    WORLDS_FILE.write_text(format_recording(in_order))


def find_differing_worlds(recordings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the worlds whose moves in `recordings` differ from those in WORLDS_FILE.

    A world is a strategy with its stock and its outside events.

    recordings  the name of a world -> its new recording
    """
    recorded_moves = read_moves()
    return [
        name
        for name, recording in recordings.items()
        if recording["moves"] != recorded_moves.get(name)
    ]


def main(arguments: Sequence[str]) -> int:
    """Run a command (see the module's docstring) and return the exit code.

    The exit code is 1 if moves differ from the recording, 2 for a wrong command line, and 0
    otherwise.
    """
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
