"""What the parts of a stack take while something runs: memory, threads, processors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import psutil
import psycopg
import redis

from loadtest.stack.processes import family, seconds_of, seconds_of_machine
from loadtest.stack.stack import Stack

#: Seconds between two looks. A look at a process of thousands of threads takes some 10 ms.
INTERVAL = 0.2
NODES = "nodes"
MACHINE = "machine"
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One look.

    t        monotonic seconds
    memory   bytes of the nodes, proportional set size where the system has it
    threads  of the nodes
    cpu      part -> pid -> seconds of processor since the process began
    """

    t: float
    memory: int
    threads: int
    cpu: Mapping[str, Mapping[int, float]]


def parts(stack: Stack, *, buyers: int | None = None) -> dict[str, list[psutil.Process]]:
    """The processes of each part of a stack that runs on this machine.

    buyers  the pid of Locust; it may have workers of its own
    """
    masters = [node.process.pid for node in stack.nodes if node.process is not None]
    found = {NODES: [process for pid in masters for process in _family(pid)]}
    if not os.environ.get("DATABASE_URL"):
        found["PostgreSQL"] = _backends(stack.database_url)
    if stack.valkeys:
        found["Valkey"] = _listening(stack.valkeys[0].port)
    if buyers is not None:
        found["Locust"] = _family(buyers)
    return found


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return family(pid)
    return []


def _backends(url: str) -> list[psutil.Process]:
    """The processes of PostgreSQL that serve this database, as far as they have connected."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
    with psycopg.connect(url) as connection:
        rows = connection.execute(query, [connection.info.backend_pid]).fetchall()
    return [p for (pid,) in rows if psutil.pid_exists(pid) for p in [psutil.Process(pid)]]


def _listening(port: int) -> list[psutil.Process]:
    """The Valkey at this port: it says its pid itself."""
    with redis.Redis(port=port) as client:
        return _family(int(client.info("server")["process_id"]))


class Usage:
    """Looks at the parts of a stack every INTERVAL seconds, from a thread, until the block ends."""

    def __init__(self, watched: Mapping[str, Sequence[psutil.Process]]) -> None:
        self.watched = watched
        self.samples: list[Sample] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.samples.append(look(self.watched))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        self.samples.append(look(self.watched))

    def _watch(self) -> None:
        while not self._enough.wait(INTERVAL):
            self.samples.append(look(self.watched))

    @property
    def peak_mb(self) -> float:
        """The most memory that the nodes had, in MB."""
        return round(max(sample.memory for sample in self.samples) / MB, 1)

    @property
    def threads(self) -> int:
        """The most threads that the nodes had."""
        return max(sample.threads for sample in self.samples)

    def cpu(self, began: float, seconds: float) -> dict[str, float]:
        """Shares of one processor between two moments, in percent: of each part, and of the busiest
        process of it.

        began    monotonic seconds
        """
        return shares(self.samples, began, seconds)


def look(watched: Mapping[str, Sequence[psutil.Process]]) -> Sample:
    """One sample of the parts. A process that has ended counts as nothing."""
    memory = threads = 0
    cpu: dict[str, dict[int, float]] = {part: {} for part in watched}
    for part, processes in watched.items():
        for process in processes:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                cpu[part][process.pid] = seconds_of(process)
                if part == NODES:
                    threads += process.num_threads()
                    memory += _memory(process)
    cpu[MACHINE] = {0: seconds_of_machine()}
    return Sample(time.monotonic(), memory, threads, cpu)


def _memory(process: psutil.Process) -> int:
    """Bytes: proportional set size on Linux, elsewhere what is the process's alone."""
    found = process.memory_full_info()
    return int(getattr(found, "pss", 0) or found.uss)


def shares(samples: Sequence[Sample], began: float, seconds: float) -> dict[str, float]:
    """As Usage.cpu: what was used in between, read off between the samples where need be."""
    found = {}
    for part in samples[0].cpu:
        pids = {pid for sample in samples for pid in sample.cpu[part]}
        used = {
            pid: _at(_line(samples, part, pid), began + seconds)
            - _at(_line(samples, part, pid), began)
            for pid in pids
        }
        found[part] = _percent(sum(used.values()), seconds)
        if len(used) > 1:
            found[f"{part} (one)"] = _percent(max(used.values()), seconds)
    return found


def _percent(used: float, seconds: float) -> float:
    return round(100 * used / seconds, 1) if seconds else 0.0


def _line(samples: Iterable[Sample], part: str, pid: int) -> list[tuple[float, float]]:
    return [(sample.t, sample.cpu[part][pid]) for sample in samples if pid in sample.cpu[part]]


def _at(line: Sequence[tuple[float, float]], moment: float) -> float:
    """The seconds used by a moment, on the straight line between the samples around it."""
    if moment <= line[0][0]:
        return line[0][1]
    for (t, used), (later, more) in pairwise(line):
        if t <= moment <= later:
            return used + (more - used) * (moment - t) / (later - t)
    return line[-1][1]
