"""A process of its own that holds locks until it is asked to release them, killed or paused.

    python -m locks.tests.classic.holder PORT PORTS ZOOKEEPER_PORT TTL KIND...

Takes each kind's lock of the name `held:<kind>` and writes their tokens as one JSON line; at a
line on its input it releases them all and writes what each release found, and which leases were
known to be lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...lease import Lease
from .kinds import KINDS, Backends


class Holder:
    """The same, seen from the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.tokens: dict[str, str] = self._answer()

    def release(self) -> dict[str, dict[str, Any]]:
        assert self.process.stdin is not None
        self.process.stdin.write("release\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def holder(backends: Backends, kinds: list[str], *, ttl: float) -> Iterator[Holder]:
    """A process that holds the locks of these kinds."""
    ports = ",".join(map(str, backends.ports))
    arguments = [str(backends.port), ports, str(backends.zookeeper_port), str(ttl), *kinds]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield Holder(process)
        finally:
            process.kill()


def main(port: str, ports: str, zookeeper_port: str, ttl: str, *kinds: str) -> None:
    redlock_ports = [int(p) for p in ports.split(",") if p]
    backends = Backends(int(port), redlock_ports, int(zookeeper_port))
    leases: dict[str, Lease] = {
        kind: KINDS[kind](backends, f"held:{kind}", float(ttl)).acquire(5) for kind in kinds
    }
    print(json.dumps({kind: lease.token for kind, lease in leases.items()}), flush=True)
    sys.stdin.readline()
    if "zookeeper" in leases:
        deadline = time.monotonic() + 5
        while leases["zookeeper"].loss is None and time.monotonic() < deadline:
            time.sleep(0.01)  # the news comes in a thread of kazoo's
    found = {
        kind: {
            "lost": lease.loss is not None,
            "trusted": lease.remaining() > 0,
            "release": lease.release().value,
        }
        for kind, lease in leases.items()
    }
    print(json.dumps(found), flush=True)
    backends.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
