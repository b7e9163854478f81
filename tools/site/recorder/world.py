"""Two buyers, each in its own process, and one event of the world between two of their moves.

A schedule is a string of turns, such as `AAPBBBBGAA`: A and B move as in live.py, and stop once
more when they have the lock. The other letters are those of EVENTS and their consequences.
"""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from multiprocessing.connection import wait
from typing import Any, TypeVar

from django.db import connections

from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from tools.site.recorder.live import (
    EXPECTED_STOP_TIMEOUT_SECONDS,
    PRODUCT,
    Trace,
    turns,
)
from tools.site.recorder.lock_servers import LockServers
from tools.site.recorder.played_buyer import LONG_TTL_SECONDS, Differs, PlayedBuyer
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
    stops_in,
)

#: A buyer without news for this long waits for the other.
BLOCKED_AFTER_SECONDS = 0.3
#: After a change of the locks' server a buyer who waits connects again, and may get the lock.
RECONNECTED_AFTER_SECONDS = 1.0
#: The ttls of the locks where it has to pass. Where a schedule takes longer than a ttl lasts, the
#: ttl passes in turns that are not meant for it, and the schedule is played with the next one.
SHORT_TTLS_SECONDS = (1.5, 3.0, 6.0)
#: The share of a ttl that a schedule may take between a lock's acquisition and the end of a turn.
USABLE_SHARE_OF_TTL = 0.8
#: The events for which the ttl passes.
TTL_PASSES_IN = (PAUSE, TIME_PASSES, KILL)
#: Time for a waiter to notice that a ttl is over.
TTL_NOTICED_AFTER_SECONDS = 0.2
#: Attempts to record a schedule on a machine that was busy for a moment.
ATTEMPTS = 3

Result = TypeVar("Result")


class TtlTooShort(Exception):
    """The machine was so slow that a ttl may have passed in a turn that is not meant for it."""


class Schedule:
    """One schedule as it is played: the two processes, and the trace of their moves.

    A buyer's status is `new`, `stopped`, `running` (also while it waits), `paused` or `ended`.

    short_ttl       the ttl of the locks if the event is one of TTL_PASSES_IN, in seconds
    recorded_moves  what each turn did before, if that is known
    """

    def __init__(
        self,
        world: World,
        event: str,
        servers: LockServers,
        *,
        short_ttl: float,
        recorded_moves: Moves,
    ) -> None:
        self.event = event
        self.turns_made = ""
        self.short_ttl = short_ttl
        self.recorded_moves = recorded_moves
        self.has_happened = not event
        self.is_stuck = False
        self.strategy = world.strategy
        self.servers = servers
        self.trace = Trace()
        self.buyers_by_token: dict[str, str] = {}
        self.acquired_at: dict[str, float] = {}
        servers.prepare(with_replica=event == FAILOVER)
        self.sale = restock(product=PRODUCT, amount=world.units, lock=world.strategy).pk
        self.ttl = short_ttl if event in TTL_PASSES_IN else LONG_TTL_SECONDS
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
        if not names and any(buyer.status == "running" for buyer in self.buyers.values()):
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
        """Make one turn, and let everything come to rest that it sets off.

        Raises TtlTooShort if a ttl may have passed that is not meant to pass in this turn.
        """
        self.turns_made += turn
        self.trace.events.append([turn, "begins"])
        if turn in self.buyers:
            self.buyers[turn].status = "running"
            self.buyers[turn].pipe.send("go")
            self._read_moves_until_quiet(BLOCKED_AFTER_SECONDS)
        else:
            self._let_happen(turn)
        self._require_valid_locks()

    def _let_happen(self, turn: str) -> None:
        """Make a turn of the world."""
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
        self.trace.events.append([turn, "stops", self._observe_state()])

    def _require_valid_locks(self) -> None:
        """Raise TtlTooShort if a lock was acquired so long ago that its ttl may be over."""
        for name, acquired_at in self.acquired_at.items():
            age = time.monotonic() - acquired_at
            if name in self.trace.holders and age > USABLE_SHARE_OF_TTL * self.ttl:
                raise TtlTooShort(f"{self.turns_made}: {name}'s lock is {age:.1f} s old")

    def _let_ttl_pass(self) -> None:
        self._read_moves_until_quiet(self.ttl + TTL_NOTICED_AFTER_SECONDS, whole=True)
        self.acquired_at.pop("A", None)

    def _pause(self) -> None:
        self.buyers["A"].signal(signal.SIGSTOP)
        self.buyers["A"].status = "paused"
        self._let_ttl_pass()

    def _go_on(self) -> None:
        self.buyers["A"].signal(signal.SIGCONT)
        self.buyers["A"].status = "stopped"
        self._read_moves_until_quiet(BLOCKED_AFTER_SECONDS)

    def _kill(self) -> None:
        self.buyers["A"].signal(signal.SIGKILL)
        self.buyers["A"].process.join()
        self.buyers["A"].status = "ended"
        self._read_moves_until_quiet(BLOCKED_AFTER_SECONDS)

    def _change_servers(self, change: Callable[[], None]) -> None:
        """Change the locks' server between two questions of the buyers who wait.

        A waiter whose question meets a server that is down is refused as `unavailable`.
        """
        waiting = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
        for buyer in waiting:
            buyer.stop_polling()
        change()
        for buyer in waiting:
            buyer.resume_polling()
        self._read_moves_until_quiet(RECONNECTED_AFTER_SECONDS)

    def _ask_again(self) -> None:
        self.buyers["A"].end()
        self.buyers["A"] = self._new_buyer("A")

    def _wait_on(self) -> None:
        """Wait for buyers who wait; those who have not moved after two ttls are stuck."""
        running = [buyer.name for buyer in self.buyers.values() if buyer.status == "running"]
        self.acquired_at.pop("A", None)
        self._read_moves_until_quiet(2 * (self.short_ttl + TTL_NOTICED_AFTER_SECONDS))
        if all(self.buyers[name].status == "running" for name in running):
            self.is_stuck = True
            for name in running:
                self.trace.events.append([name, "forever"])

    def _read_moves_until_quiet(self, seconds: float, *, whole: bool = False) -> None:
        """Read what the running buyers do until all have stopped, or are silent for `seconds`.

        A buyer that stopped in this turn when it was recorded may be silent for longer, up to
        EXPECTED_STOP_TIMEOUT_SECONDS.

        whole  wait for all of `seconds` even if all have stopped, and for those who wait
               BLOCKED_AFTER_SECONDS after their last news
        """
        deadline = time.monotonic() + seconds
        expected_stop_deadline = time.monotonic() + EXPECTED_STOP_TIMEOUT_SECONDS
        while True:
            running = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
            left = deadline - time.monotonic()
            if any(stops_in(self.recorded_moves, self.turns_made, buyer.name) for buyer in running):
                left = expected_stop_deadline - time.monotonic()
            if left <= 0 or not (running or whole):
                return
            if not wait([buyer.pipe for buyer in running], left):
                return
            for buyer in running:
                while buyer.status == "running" and buyer.pipe.poll():
                    self._add(buyer, buyer.pipe.recv())
            deadline = max(deadline, time.monotonic() + BLOCKED_AFTER_SECONDS)

    def _add(self, buyer: PlayedBuyer, event: list[Any]) -> None:
        kind = event[0]
        facts = event[1:]
        if kind == "token":
            token, acquired_at = facts
            self.buyers_by_token[str(token)] = buyer.name
            self.acquired_at[buyer.name] = acquired_at
            return
        holders = self.trace.holders
        if kind == "acquired":
            holders.append(buyer.name)
        if kind in ("released", "unlocked_before_commit") and buyer.name in holders:
            holders.remove(buyer.name)
        if kind == "stops":
            buyer.status = "stopped"
            facts = [self._observe_state()]
        if kind == "ends":
            buyer.status = "ended"
            facts[-1] = self._observe_state()
        self.trace.events.append([buyer.name, kind] + facts)

    def _observe_state(self) -> list[Any]:
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
    world: World,
    event: str,
    prefix: str,
    servers: LockServers,
    *,
    recorded_moves: Moves | None = None,
) -> tuple[str, Moves, list[str]]:
    """Play a schedule that begins with `prefix`; at every later turn take the first choice.

    Return the schedule, its moves, and the beginnings of the schedules not taken. Raises Differs if
    a turn of `prefix` is impossible, and TtlTooShort if even the longest ttl was too short.
    """

    def play_once(short_ttl: float) -> tuple[str, Moves, list[str]]:
        schedule = Schedule(
            world, event, servers, short_ttl=short_ttl, recorded_moves=recorded_moves or {}
        )
        not_taken: list[str] = []
        with closing(schedule):
            while choices := schedule.choices():
                turns_made = schedule.turns_made
                if len(turns_made) < len(prefix):
                    turn = prefix[len(turns_made)]
                else:
                    turn = choices[0]
                    not_taken += [turns_made + choice for choice in choices[1:]]
                if turn not in choices:
                    raise Differs(f"{turn} is impossible after {turns_made}")
                schedule.play(turn)
        return schedule.turns_made, turns(schedule.trace.events), not_taken

    return with_long_enough_ttl(play_once)


def with_long_enough_ttl(play_once: Callable[[float], Result]) -> Result:
    """Call `play_once` with each of SHORT_TTLS_SECONDS until it does not raise TtlTooShort.

    Return what it returns. Raises TtlTooShort if even the longest ttl was too short.
    """
    *shorter_ttls, longest_ttl = SHORT_TTLS_SECONDS
    for ttl in shorter_ttls:
        try:
            return play_once(ttl)
        except TtlTooShort as error:
            print(f"a ttl of {ttl} s is too short: {error}", file=sys.stderr, flush=True)
    return play_once(longest_ttl)


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
        played, moves, _ = play(
            world, event_of(schedule), schedule, servers, recorded_moves=recorded
        )
        require_agreement(recorded, moves)
    except Differs as error:
        print(f"{world.strategy} {schedule}: {error}", file=sys.stderr, flush=True)
        return False
    return played == schedule
