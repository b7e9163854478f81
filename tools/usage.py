"""What the parts of a stack take while something runs: memory, threads, processors."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

from loadtest.stack.node import family

#: What processors do when they compute, as psutil calls it. A guest's time is in `user`.
COMPUTING = ("user", "nice", "system", "irq", "softirq")
#: Seconds between two looks. A look at a process of thousands of threads takes some 10 ms.
INTERVAL = 0.2
NODES, MACHINE = "nodes", "machine"
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One look."""

    t: float  # monotonic seconds
    memory: int  # bytes of the nodes, proportional set size where the system has it
    threads: int  # of the nodes
    cpu: Mapping[str, Mapping[int, float]]  # part -> pid -> seconds of processor since its start


class Usage:
    """Looks at the processes of each part, and at what descends from them, every INTERVAL seconds
    until the block ends."""

    def __init__(self, parts: Mapping[str, Sequence[int]]) -> None:
        self.parts = parts
        self.samples: list[Sample] = []
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.samples.append(look(self.parts))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        self.samples.append(look(self.parts))

    def _watch(self) -> None:
        while not self._enough.wait(INTERVAL):
            self.samples.append(look(self.parts))

    def cpu(self, began: float, seconds: float) -> dict[str, float]:
        """Shares of one processor, in percent, of each part and of the busiest process of it:
        between the looks around these seconds, divided by the seconds.

        began    monotonic seconds
        """
        before = [one for one in self.samples if one.t <= began][-1]
        after = next((one for one in self.samples if one.t >= began + seconds), self.samples[-1])
        found = {}
        for part, spent in after.cpu.items():
            used = [now - before.cpu[part].get(pid, 0.0) for pid, now in spent.items()]
            found[part] = round(100 * sum(used) / seconds, 1)
            found[f"{part} (one)"] = round(100 * max(used, default=0.0) / seconds, 1)
        return found


def look(parts: Mapping[str, Sequence[int]]) -> Sample:
    """One sample of the parts. A process that has ended counts as nothing."""
    memory = threads = 0
    cpu: dict[str, dict[int, float]] = {part: {} for part in parts}
    for part, pids in parts.items():
        for process in [one for pid in pids for one in family(pid)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                cpu[part][process.pid] = sum(process.cpu_times()[:2])  # without its children's
                if part == NODES:
                    threads += process.num_threads()
                    full = process.memory_full_info()
                    memory += int(getattr(full, "pss", 0) or full.uss)
    times = psutil.cpu_times()
    cpu[MACHINE] = {0: sum(getattr(times, name, 0.0) for name in COMPUTING)}
    return Sample(time.monotonic(), memory, threads, cpu)
