"""Everything at once for a long time: python -m locks.bench.stress --door asyncio --seconds 600

Three processes contend for one lock while subscriptions and connections are cut, scripts forgotten
and, in a cluster, the lock's slot moved to and fro. Then the history is judged: no two leases are
good at once, no fence falls, the counter behind the fence is exact, nobody waits for longer than
the ttl and one second while nobody holds the lock, and nothing is left behind.

Prints the findings as JSON. The exit code is 1 if anything is wrong.
"""

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import redis

from .. import RedisLock
from ..cluster.slots import slot_of
from ..protocol import keys_of
from ..testing.cluster import Cluster
from ..testing.process import LOCKS, ROOT
from ..testing.server import Server

DOORS = ["threads", "asyncio", "cluster", "cluster-asyncio"]
PROCESSES = 3
#: Seconds.
TTL = 3.0


def holds(events: Iterable[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Each fence with its first and its last good moment, in the order of the first ones."""
    spans: dict[int, tuple[float, float]] = {}
    for event in events:
        if "fence" in event:
            fence, at = int(event["fence"]), event["at"]
            first, last = spans.get(fence, (at, at))
            spans[fence] = min(first, at), max(last, at)
    return sorted(((fence, *span) for fence, span in spans.items()), key=itemgetter(1, 2))


def overlaps(events: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong with a history: two leases good at once, and fences that fall."""
    found = []
    for (fence, _, last), (later, first, _) in itertools.pairwise(holds(events)):
        if first <= last:
            found.append(f"{fence} was good until {last}, {later} from {first}")
        if later <= fence:
            found.append(f"the fence fell from {fence} to {later}")
    return found


def judge(events: list[dict[str, Any]], ttl: float) -> dict[str, Any]:
    """What the history shows. The values under "wrong" should be empty."""
    order, wrong = holds(events), overlaps(events)
    gap = max((new[1] - old[2] for old, new in itertools.pairwise(order)), default=0.0)
    if gap > ttl + 1:
        wrong.append(f"nobody had the lock for {gap:.2f} s although many waited")
    left = [event["left"] for event in events if "left" in event]
    wrong += [f"left behind: {each}" for each in left if any(each.values())]
    if len(left) != PROCESSES:
        wrong.append(f"{PROCESSES - len(left)} processes did not end by themselves")
    return {
        "holds": len(order),
        "counted": sum(event.get("counted", 0) for event in events),
        "longest_gap_s": round(gap, 3),
        "wrong": wrong,
    }


def disturb(nodes: list[Server], cluster: Cluster | None, until: float) -> int:
    """Faults until that second, about one each second. Returns how many."""
    chance, done, slot = random.Random(1), 0, slot_of(keys_of("stress")[0])
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.5, 1.5))
        fault = chance.choice(["pubsub", "normal", "scripts", *(["move"] if cluster else [])])
        if fault == "move" and cluster is not None:
            here = cluster.owner(slot)
            cluster.move(slot, chance.choice([node for node in nodes if node is not here]))
        for node in nodes:
            with suppress(redis.RedisError):
                if fault == "scripts":
                    node.client().script_flush()
                elif fault != "move":
                    node.client().client_kill_filter(_type=fault, skipme=True)
        done += 1
    return done


def run(door: str, seconds: float) -> dict[str, Any]:
    """One stress, from start to judgement."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster() if "cluster" in door else None
        nodes = cluster.nodes if cluster else [Server()]
        counter, history = Server(), Path(folder) / "history.jsonl"
        program = [sys.executable, "-m", f"{LOCKS}.bench.stress_worker", door]
        arguments = [nodes[0].port, counter.port, TTL, seconds, history]
        workers = [
            subprocess.Popen([*program, *map(str, arguments)], cwd=ROOT) for _ in range(PROCESSES)
        ]
        try:
            faults = disturb(nodes, cluster, time.monotonic() + seconds)
            for worker in workers:
                worker.wait(2 * TTL + 90)
            found = judge(list(map(json.loads, history.read_text().splitlines())), TTL)
            value = int(counter.client().hget("counter", "value") or 0)
            if value != found["counted"]:
                found["wrong"].append(f"the counter is {value} after {found['counted']} writes")
            client: Any = nodes[0].client()
            if cluster:
                client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)
            state = RedisLock(client, "stress", ttl=TTL).inspect()
            if state.owner or state.waiters:
                found["wrong"].append(f"the server still has {state}")
            client.close()
            return {"door": door, "seconds": seconds, "faults": faults, **found}
        finally:
            for worker in workers:
                worker.kill()
                worker.wait(10)
            for server in [*nodes, counter]:
                server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m locks.bench.stress", description=__doc__)
    parser.add_argument("--door", choices=DOORS, action="append", help="all unless given")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each door")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and stop the servers on the way
    wrong = False
    for door in options.door or DOORS:
        found = run(door, options.seconds)
        print(json.dumps(found), flush=True)
        wrong = wrong or bool(found["wrong"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
