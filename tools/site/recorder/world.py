"""Two buyers, each in its own process, and one event of the world between two of their moves.

A schedule is a string of turns, such as `AAPBBBBGAA`: A and B move as in live.py, and stop once
more when they have the lock. The other letters are those of EVENTS and their consequences.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from django.conf import settings
from django.db import connections

from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import installed
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from tools.site.recorder.live import PRODUCT, Recorder, Trace, here, turns
from tools.site.recorder.lock_servers import LockServers
from tools.site.worlds import (
    ASKS_AGAIN,
    BUYERS,
    FAILOVER,
    GOES_ON,
    KILL,
    PAUSE,
    RESTART,
    TIME_PASSES,
    WAITS_ON,
    Moves,
    World,
    event_of,
)

#: Points of a purchase at which a buyer stops, besides its read and its commit.
STOPS = ("setnx:before_expire", "acquired")
#: A buyer without news for this long waits for the other.
BLOCKED_AFTER_SECONDS = 0.3
#: After a change of the locks' server a buyer who waits connects again, and may get the lock.
RECONNECTED_AFTER_SECONDS = 1.0
#: The ttl of the locks where it has to pass.
SHORT_TTL_SECONDS = 1.5
#: The ttl of the locks where it must not pass: no machine is that slow.
LONG_TTL_SECONDS = 60.0
#: The events for which the ttl passes.
TTL_PASSES_IN = (PAUSE, TIME_PASSES, KILL)
#: Time for a ttl to be over, and for a waiter to notice.
TTL_PASSES_SECONDS = SHORT_TTL_SECONDS + 0.2
#: A buyer that has not moved after this time waits forever: two ttls are over.
FOREVER_SECONDS = 2 * TTL_PASSES_SECONDS
#: Attempts to record a schedule on a machine that was busy for a moment.
ATTEMPTS = 3

fork = multiprocessing.get_context("fork")


class Differs(Exception):
    """A schedule went another way than it did before."""


class PipedTrace(Trace):
    """A trace whose events are sent to the recording process."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe = pipe

    def add(self, kind: str, *facts: object) -> None:
        self.pipe.send([kind] + list(facts))


class ProcessRecorder(Recorder):
    """A buyer's side of a recording, in the buyer's process."""

    def __init__(self, strategy: str, key: str | None, pipe: Connection) -> None:
        super().__init__(strategy)
        self.trace = PipedTrace(pipe)
        self._key = key
        self._pipe = pipe
        self._has_begun = False

    def buy(self) -> None:
        with installed(self._at_point):
            self._buy()

    def _attempt(self) -> Attempt:
        return Attempt(PRODUCT, here(), self.lock, key=self._key)

    def _move(self) -> None:
        if self._has_begun:
            self.trace.add("stops")
        self._pipe.recv()
        self._has_begun = True

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        if place == "setnx:before_expire":
            self.trace.add(place)
        if place == "acquired":
            self.trace.add("token", facts["token"])
        super()._at_point(place, facts)
        if place in STOPS:
            self._move()

    def _look(self) -> list[Any]:
        return []  # the recording process looks


def _buy_in_process(
    name: str, strategy: str, key: str | None, ttl: float, pipe: Connection
) -> None:
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_TOKEN_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = LONG_TTL_SECONDS
    buyer = threading.Thread(
        target=ProcessRecorder(strategy, key, pipe).buy, name=f"interleaved-{name}", daemon=True
    )
    buyer.start()
    buyer.join()


class PlayedBuyer:
    """A buyer's process, as the recording process sees it.

    key  the Idempotency-Key of its request, or None
    """

    def __init__(self, name: str, strategy: str, key: str | None, ttl: float) -> None:
        self.name = name
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(
            target=_buy_in_process, args=(name, strategy, key, ttl, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.status = "new"

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Schedule:
    """One schedule as it is played: the two processes, and the trace of their moves.

    A buyer's status is `new`, `stopped`, `moving` (also while it waits), `paused` or `ended`.
    """

    def __init__(self, world: World, event: str, servers: LockServers) -> None:
        self.event = event
        self.has_happened = not event
        self.is_stuck = False
        self.strategy = world.strategy
        self.servers = servers
        self.trace = Trace()
        self.buyers_by_token: dict[str, str] = {}
        servers.prepare(with_replica=event == FAILOVER)
        self.sale = restock(product=PRODUCT, amount=world.units, lock=world.strategy).pk
        self.ttl = SHORT_TTL_SECONDS if event in TTL_PASSES_IN else LONG_TTL_SECONDS
        self.buyers = {name: self._new_buyer(name) for name in BUYERS}

    def _new_buyer(self, name: str) -> PlayedBuyer:
        connections.close_all()  # a process that is forked must not share them
        key = None
        if self.event == ASKS_AGAIN:
            key = f"{self.sale}-{name}"
        return PlayedBuyer(name, self.strategy, key, self.ttl)

    def close(self) -> None:
        for buyer in self.buyers.values():
            buyer.end()
        self.servers.restore()

    def choices(self) -> list[str]:
        """Return the turns that are possible now."""
        if self.is_stuck:
            return []
        names = [n for n, buyer in self.buyers.items() if buyer.status in ("new", "stopped")]
        if self.buyers["A"].status == "paused":
            names.append(GOES_ON)
        if not self.has_happened and self._can_happen(self.event):
            names.append(self.event)
        if not names and any(buyer.status == "moving" for buyer in self.buyers.values()):
            names.append(WAITS_ON)
        return names

    def possible_events(self, events: Sequence[str]) -> list[str]:
        """Return which of these events could come next in a schedule that has had none."""
        if self.event:
            return []
        return [event for event in events if event and self._can_happen(event)]

    def _can_happen(self, event: str) -> bool:
        """Return whether A is where the event can meet it."""
        if event == ASKS_AGAIN:
            return any(fact[:3] == ["A", "ends", "sold"] for fact in self.trace.events)
        return self.buyers["A"].status == "stopped"

    def play(self, turn: str) -> None:
        """Make one turn, and let everything come to rest that it sets off."""
        self.trace.events.append([turn, "begins"])
        if turn in self.buyers:
            self.buyers[turn].status = "moving"
            self.buyers[turn].pipe.send("go")
            self._settle(BLOCKED_AFTER_SECONDS)
            return
        if turn == self.event:
            self.has_happened = True
        acts: dict[str, Callable[[], None]] = {
            PAUSE: self._pause,
            GOES_ON: self._go_on,
            TIME_PASSES: self._let_ttl_pass,
            KILL: self._kill,
            RESTART: partial(self._change_servers, self.servers.restart_empty),
            FAILOVER: partial(self._change_servers, self.servers.fail_over),
            ASKS_AGAIN: self._ask_again,
            WAITS_ON: self._wait_on,
        }
        act = acts[turn]
        act()
        self.trace.events.append([turn, "stops", self._look()])

    def _let_ttl_pass(self) -> None:
        self._settle(TTL_PASSES_SECONDS, whole=True)

    def _pause(self) -> None:
        self.buyers["A"].signal(signal.SIGSTOP)
        self.buyers["A"].status = "paused"
        self._let_ttl_pass()

    def _go_on(self) -> None:
        self.buyers["A"].signal(signal.SIGCONT)
        self.buyers["A"].status = "stopped"
        self._settle(BLOCKED_AFTER_SECONDS)

    def _kill(self) -> None:
        self.buyers["A"].signal(signal.SIGKILL)
        self.buyers["A"].process.join()
        self.buyers["A"].status = "ended"
        self._settle(BLOCKED_AFTER_SECONDS)

    def _change_servers(self, change: Callable[[], None]) -> None:
        """Change the locks' server between two questions of the buyers who wait.

        A waiter that asked while the server is down would be told so, or not, by luck.
        """
        waiting = [buyer for buyer in self.buyers.values() if buyer.status == "moving"]
        for buyer in waiting:
            buyer.signal(signal.SIGSTOP)
        change()
        for buyer in waiting:
            buyer.signal(signal.SIGCONT)
        self._settle(RECONNECTED_AFTER_SECONDS)

    def _ask_again(self) -> None:
        self.buyers["A"].end()
        self.buyers["A"] = self._new_buyer("A")

    def _wait_on(self) -> None:
        """Wait for buyers who wait; after FOREVER_SECONDS without a move they are stuck."""
        moving = [buyer.name for buyer in self.buyers.values() if buyer.status == "moving"]
        self._settle(FOREVER_SECONDS)
        if all(self.buyers[name].status == "moving" for name in moving):
            self.is_stuck = True
            for name in moving:
                self.trace.events.append([name, "forever"])

    def _settle(self, seconds: float, *, whole: bool = False) -> None:
        """Read what the moving buyers do until all have stopped, or are silent for `seconds`.

        whole  wait for all of `seconds` even if all have stopped, and for those who wait
               BLOCKED_AFTER_SECONDS after their last news
        """
        deadline = time.monotonic() + seconds
        while True:
            moving = [buyer for buyer in self.buyers.values() if buyer.status == "moving"]
            left = deadline - time.monotonic()
            if left <= 0 or not (moving or whole):
                return
            if not wait([buyer.pipe for buyer in moving], left):
                return
            for buyer in moving:
                while buyer.status == "moving" and buyer.pipe.poll():
                    self._add(buyer, buyer.pipe.recv())
            deadline = max(deadline, time.monotonic() + BLOCKED_AFTER_SECONDS)

    def _add(self, buyer: PlayedBuyer, event: list[Any]) -> None:
        kind = event[0]
        facts = event[1:]
        if kind == "token":
            self.buyers_by_token[str(facts[0])] = buyer.name
            return
        holders = self.trace.holders
        if kind == "acquired":
            holders.append(buyer.name)
        if kind in ("released", "unlocked_before_commit") and buyer.name in holders:
            holders.remove(buyer.name)
        if kind == "stops":
            buyer.status = "stopped"
            facts = [self._look()]
        if kind == "ends":
            buyer.status = "ended"
            facts[-1] = self._look()
        self.trace.events.append([buyer.name, kind] + facts)

    def _look(self) -> list[Any]:
        """Return a state as Moves describes it."""
        report = sale_report(self.sale)
        believers = "".join(sorted(self.trace.holders))
        owner = self.servers.owner(self.buyers_by_token)
        return [report.stock_left, report.orders, believers, owner]


def warm_up() -> None:
    """Buy once, so that the processes forked later have asked what a process asks once."""
    restock(product=PRODUCT, amount=1, lock="none")
    check_out(Attempt(PRODUCT, "first", "none"))


def play(
    world: World, event: str, prefix: str, servers: LockServers
) -> tuple[str, Moves, list[str]]:
    """Play a schedule that begins with `prefix`; at every later turn take the first choice.

    Return the schedule, its moves, and the beginnings of the schedules not taken. Raises Differs if
    a turn of `prefix` is impossible.
    """
    schedule = Schedule(world, event, servers)
    turns_made = ""
    not_taken: list[str] = []
    try:
        while choices := schedule.choices():
            if len(turns_made) < len(prefix):
                turn = prefix[len(turns_made)]
            else:
                turn = choices[0]
                not_taken += [turns_made + choice for choice in choices[1:]]
            if turn not in choices:
                raise Differs(f"{turn} is impossible after {turns_made}")
            schedule.play(turn)
            turns_made += turn
    finally:
        schedule.close()
    return turns_made, turns(schedule.trace.events), not_taken


def require_agreement(known_moves: Moves, moves: Moves) -> None:
    """Raise Differs if a turn of these moves is known and did something else."""
    for key in moves:
        if known_moves.get(key, moves[key]) != moves[key]:
            raise Differs(f"{key} was {known_moves[key]}, is {moves[key]}")


def explore(world: World, event: str, servers: LockServers, known_moves: Moves) -> int:
    """Play every schedule of a world and an event once, add its moves to `known_moves`, and
    count them.

    Raises Differs where two schedules that begin alike differ in what they share, ATTEMPTS times.
    """
    beginnings = [""]
    count = 0
    while beginnings:
        beginning = beginnings.pop()
        for _ in range(ATTEMPTS):
            try:
                _, moves, not_taken = play(world, event, beginning, servers)
                require_agreement(known_moves, moves)
                break
            except Differs as error:
                problem = error
                print(f"{world.strategy} {beginning}: {error}", file=sys.stderr, flush=True)
        else:
            raise problem
        known_moves.update(moves)
        beginnings += not_taken
        count += 1
    return count


def replay(world: World, schedule: str, recorded: Moves, servers: LockServers) -> bool:
    """Return whether a whole schedule does what was recorded. Print where it differs."""
    try:
        played, moves, _ = play(world, event_of(schedule), schedule, servers)
        require_agreement(recorded, moves)
    except Differs as error:
        print(f"{world.strategy} {schedule}: {error}", file=sys.stderr, flush=True)
        return False
    return played == schedule
