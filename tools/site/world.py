"""Two buyers in processes of their own, and one event of the world between two of their moves.

A schedule is a string of turns, such as `AAPBBBBGAA`: A and B move as in live.py, and stop once
more when they have the lock. The other letters are those of EVENTS and their consequences.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from django.conf import settings
from django.db import connections

from servers.valkey import Valkey, client_at
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import installed
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from tools.site.live import BUYERS, PRODUCT, Recorder, Trace, turns
from tools.site.worlds import (
    GOES_ON,
    KILL,
    PAUSE,
    RESTART,
    TIME_PASSES,
    WAITS_ON,
    Moves,
    event_of,
)

#: Points of a purchase at which a buyer stops, beside its read and its commit.
STOPS = ("setnx:before_expire", "acquired")
#: A buyer without news for this long waits for the other.
BLOCKED_AFTER_SECONDS = 0.3
#: The ttl of the locks where it has to pass.
SHORT_TTL_SECONDS = 1.5
#: The ttl of the locks where it must not pass: no machine is that slow.
LONG_TTL_SECONDS = 60.0
#: Time for a ttl to be over, and for a waiter to notice.
TTL_PASSES_SECONDS = SHORT_TTL_SECONDS + 0.2
#: A buyer who has not moved after this time waits forever: two ttls are over.
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
        self.pipe.send([kind, *facts])


class ProcessRecorder(Recorder):
    """A buyer's side of a recording, in the buyer's process."""

    def __init__(self, strategy: str, pipe: Connection) -> None:
        super().__init__(strategy)
        self.trace = PipedTrace(pipe)
        self._pipe = pipe
        self._has_begun = False

    def buy(self) -> None:
        with installed(self._at_point):
            self._buy()

    def _move(self) -> None:
        if self._has_begun:
            self.trace.add("stops")
        self._pipe.recv()
        self._has_begun = True

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        if place == "setnx:before_expire":
            self.trace.add(place)
        super()._at_point(place, facts)
        if place in STOPS:
            self._move()

    def _look(self) -> list[Any]:
        return []  # the recording process looks


def _buy_in_process(name: str, strategy: str, ttl: float, pipe: Connection) -> None:
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_TOKEN_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = LONG_TTL_SECONDS
    buyer = threading.Thread(
        target=ProcessRecorder(strategy, pipe).buy, name=f"interleaved-{name}", daemon=True
    )
    buyer.start()
    buyer.join()


class BuyerProcess:
    """A buyer's process, as the recording process sees it."""

    def __init__(self, name: str, strategy: str, ttl: float) -> None:
        self.name = name
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(
            target=_buy_in_process, args=(name, strategy, ttl, theirs), daemon=True
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

    def __init__(self, strategy: str, event: str, valkey: Valkey) -> None:
        self.event = event
        self.has_happened = not event
        self.is_stuck = False
        self.valkey = valkey
        self.trace = Trace()
        with client_at(valkey.port) as client:
            client.flushall()  # a lock without a ttl, whose holder was killed
        self.sale = restock(product=PRODUCT, amount=1, lock=strategy).pk
        connections.close_all()  # a process that is forked must not share them
        ttl = SHORT_TTL_SECONDS if event in (PAUSE, TIME_PASSES, KILL) else LONG_TTL_SECONDS
        self.buyers = {name: BuyerProcess(name, strategy, ttl) for name in BUYERS}

    def close(self) -> None:
        for buyer in self.buyers.values():
            buyer.end()

    def choices(self) -> list[str]:
        """Return the turns that are possible now."""
        if self.is_stuck:
            return []
        names = [n for n, buyer in self.buyers.items() if buyer.status in ("new", "stopped")]
        victim = self.buyers["A"]
        if victim.status == "paused":
            names.append(GOES_ON)
        if not self.has_happened and victim.status == "stopped":
            names.append(self.event)
        if not names and any(buyer.status == "moving" for buyer in self.buyers.values()):
            names.append(WAITS_ON)
        return names

    def play(self, turn: str) -> None:
        """Make one turn, and let everything come to rest that it sets off."""
        self.trace.events.append([turn, "begins"])
        if turn in self.buyers:
            self.buyers[turn].status = "moving"
            self.buyers[turn].pipe.send("go")
            self._settle(BLOCKED_AFTER_SECONDS)
            return
        acts: dict[str, Callable[[], None]] = {
            PAUSE: self._pause,
            GOES_ON: self._go_on,
            TIME_PASSES: lambda: self._settle(TTL_PASSES_SECONDS, whole=True),
            KILL: self._kill,
            RESTART: self._restart,
            WAITS_ON: self._wait_on,
        }
        self.has_happened |= turn == self.event
        acts[turn]()
        self.trace.events.append([turn, "stops", self._look()])

    def _pause(self) -> None:
        self.buyers["A"].signal(signal.SIGSTOP)
        self.buyers["A"].status = "paused"
        self._settle(TTL_PASSES_SECONDS, whole=True)

    def _go_on(self) -> None:
        self.buyers["A"].signal(signal.SIGCONT)
        self.buyers["A"].status = "stopped"
        self._settle(BLOCKED_AFTER_SECONDS)

    def _kill(self) -> None:
        self.buyers["A"].signal(signal.SIGKILL)
        self.buyers["A"].process.join()
        self.buyers["A"].status = "ended"
        self._settle(BLOCKED_AFTER_SECONDS)

    def _restart(self) -> None:
        """Restart the locks' server between two questions of those who wait.

        A waiter that asked while the server is down would be told so, or not, by luck.
        """
        waiting = [buyer for buyer in self.buyers.values() if buyer.status == "moving"]
        for buyer in waiting:
            buyer.signal(signal.SIGSTOP)
        self.valkey.stop(signal.SIGKILL)
        self.valkey.start()
        for buyer in waiting:
            buyer.signal(signal.SIGCONT)
        self._settle(2 * BLOCKED_AFTER_SECONDS)

    def _wait_on(self) -> None:
        """Wait for a buyer who waits while nobody else can move; past FOREVER_SECONDS forever."""
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

    def _add(self, buyer: BuyerProcess, event: list[Any]) -> None:
        kind, *facts = event
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
        self.trace.events.append([buyer.name, kind, *facts])

    def _look(self) -> list[Any]:
        """Return the stock left, the orders, and who believes to have the lock."""
        report = sale_report(self.sale)
        return [report.stock_left, report.orders, "".join(sorted(self.trace.holders))]


def warm_up() -> None:
    """Buy once, so that the processes forked later have asked what a process asks once."""
    restock(product=PRODUCT, amount=1, lock="none")
    check_out(Attempt(PRODUCT, "first", "none"))


def play(strategy: str, event: str, prefix: str, valkey: Valkey) -> tuple[str, Moves, list[str]]:
    """Play a schedule that begins with `prefix`; at every later turn take the first choice.

    Return the schedule, its moves, and the beginnings of the schedules not taken. Raises Differs if
    a turn of `prefix` is impossible.
    """
    schedule = Schedule(strategy, event, valkey)
    turns_made = ""
    not_taken: list[str] = []
    try:
        while choices := schedule.choices():
            turn = prefix[len(turns_made)] if len(turns_made) < len(prefix) else choices[0]
            if turn not in choices:
                raise Differs(f"{turn} is impossible after {turns_made}")
            if len(turns_made) >= len(prefix):
                not_taken += [turns_made + choice for choice in choices[1:]]
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


def explore(strategy: str, event: str, valkey: Valkey, known_moves: Moves) -> int:
    """Play every schedule of a strategy and an event once, add its moves to `known_moves`, and
    count them.

    Raises Differs where two schedules that begin alike differ in what they share, ATTEMPTS times.
    """
    beginnings = [""]
    count = 0
    while beginnings:
        beginning = beginnings.pop()
        for _ in range(ATTEMPTS):
            try:
                _, moves, not_taken = play(strategy, event, beginning, valkey)
                require_agreement(known_moves, moves)
                break
            except Differs as error:
                problem = error
                print(f"{strategy} {beginning}: {error}", file=sys.stderr, flush=True)
        else:
            raise problem
        known_moves.update(moves)
        beginnings += not_taken
        count += 1
    return count


def replay(strategy: str, schedule: str, recorded: Moves, valkey: Valkey) -> bool:
    """Return whether a whole schedule does what was recorded. Print where it differs."""
    try:
        played, moves, _ = play(strategy, event_of(schedule), schedule, valkey)
        require_agreement(recorded, moves)
    except Differs as error:
        print(f"{strategy} {schedule}: {error}", file=sys.stderr, flush=True)
        return False
    return played == schedule
