"""Writes recorded/worlds.json: the schedules of two processes with one event of the world.

python -m tools.site.recorded_worlds record [STRATEGY ...]   play every schedule of these, or of all
python -m tools.site.recorded_worlds compare [STRATEGY ...]  play them again; name who differs
python -m tools.site.recorded_worlds sample [STRATEGY ...]   the same of a few of each event
"""

import fcntl
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import django
from django.db import connection

from loadtest.stack.stack import Stack
from servers.embedded import VAR
from servers.valkey import Valkey, version
from tools.site.worlds import (
    EVENTS,
    STRATEGIES,
    WORLDS,
    Moves,
    by_length,
    event_of,
    kept,
    whole_schedules,
)

#: The file that a command locks while it writes WORLDS.
LOCKED = VAR / "worlds.lock"
#: Schedules of each strategy and event that are played again as a sample.
SAMPLE = 6


@contextmanager
def shop_on_own_servers() -> Iterator[Valkey]:
    """Set up Django in this process on the servers of a new stack; yield the locks' server."""
    own = {"SHOP_DB_POOL": "0", "SHOP_DEMO_PAUSES": ""}
    with (
        tempfile.NamedTemporaryFile() as log,
        Stack(count=1, workers=1, threads=1, log=log) as stack,
    ):
        os.environ.update(stack.nodes[0].environment | own)
        django.setup()
        from tools.site.world import warm_up

        warm_up()
        yield stack.valkeys[0]


def record(strategies: Sequence[str]) -> Iterator[tuple[str, Moves]]:
    """Yield each strategy with the moves of all its schedules."""
    with shop_on_own_servers() as valkey:
        from tools.site.world import explore

        for strategy in strategies:
            moves: Moves = {}
            for event in STRATEGIES[strategy]:
                started = time.monotonic()
                count = explore(strategy, event, valkey, moves)
                seconds = time.monotonic() - started
                name = EVENTS.get(event, "no event")
                print(f"{strategy}, {name}: {count} in {seconds:.0f} s", file=sys.stderr)
            yield strategy, by_length(moves)


def sample(moves: Moves) -> list[str]:
    """Return SAMPLE schedules of each event, spread over all of them."""
    schedules_by_event: dict[str, list[str]] = {}
    for schedule in whole_schedules(moves):
        schedules_by_event.setdefault(event_of(schedule), []).append(schedule)
    return [
        schedules[number * len(schedules) // SAMPLE]
        for schedules in schedules_by_event.values()
        for number in range(min(SAMPLE, len(schedules)))
    ]


def replay_samples(strategies: Sequence[str]) -> list[str]:
    """Play a sample of each of these strategies again.

    Return the schedules, with the strategy before each, that do not do what was recorded.
    """
    recorded = kept()
    with shop_on_own_servers() as valkey:
        from tools.site.world import replay

        return [
            f"{strategy} {schedule}"
            for strategy in strategies
            for schedule in sample(recorded[strategy])
            if not replay(strategy, schedule, recorded[strategy], valkey)
        ]


def machine() -> str:
    """Return the machine and the versions of its servers."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        postgres = cursor.fetchone()[0]
    return (
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"PostgreSQL {postgres}, {version()}"
    )


def keep(strategy: str, moves: Moves) -> None:
    """Write the moves of a strategy among the others, while the servers run."""
    with LOCKED.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)  # several commands may record at a time
        strategies = (kept() if WORLDS.exists() else {}) | {strategy: moves}
        data = {
            "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": machine(),
            "moves": {name: strategies[name] for name in STRATEGIES if name in strategies},
        }
        text = json.dumps(data, separators=(",", ":")).replace('},"', '},\n"')
        WORLDS.write_text(text + "\n")


def main(arguments: Sequence[str]) -> int:
    command, *names = arguments or [""]
    strategies = names or list(STRATEGIES)
    if command == "record":
        for strategy, moves in record(strategies):
            keep(strategy, moves)
        return 0
    if command == "compare":
        recorded = kept()
        differing = [name for name, moves in record(strategies) if recorded.get(name) != moves]
        print(f"otherwise than recorded: {', '.join(differing) or 'none'}")
        return 1 if differing else 0
    if command == "sample":
        differing = replay_samples(strategies)
        print(f"otherwise than recorded: {', '.join(differing) or 'none'}")
        return 1 if differing else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
