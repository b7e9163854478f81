"""Two buyers, each in its own process, and one outside event between two of their moves.

An outside event is, for example, a restart of the locks' server, or a pause of a buyer's process.
A world is a strategy with its database, its stock, and the events that may come (worlds.py).

A schedule is a string of turns, such as `AAPBBBBGAA`. In a turn `A` or `B` this buyer makes its
next move: it reads, it writes, or it commits (live.py), and stops. If the strategy has a lock, the
buyer stops once more when it has acquired the lock. The other letters are outside events and their
consequences; worlds.py lists them.
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
    collect_moves,
)
from tools.site.recorder.lock_servers import LockServers
from tools.site.recorder.played_buyer import LONG_TTL_SECONDS, MovesDiffer, PlayedBuyer
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
    find_event,
    has_ended_move,
)

#: A buyer that has sent no event for this long counts as waiting for the other buyer.
BLOCKED_AFTER_SECONDS = 0.3
#: How long to wait after a change of the locks' server: a waiting buyer connects again, and may get
#: the lock.
RECONNECTED_AFTER_SECONDS = 1.0
#: The ttls to try in schedules in which a ttl has to pass. On a slow machine the first of them may
#: pass in a turn in which it must not. Then the schedule is played again with the next, longer one.
SHORT_TTLS_SECONDS = (1.5, 3.0, 6.0)
#: The share of a ttl that a schedule may take between a lock's acquisition and the end of a turn.
USABLE_SHARE_OF_TTL = 0.8
#: The events after which the ttl of A's lock passes. After KILL it passes while B waits, after the
#: others at once.
TTL_PASSES_IN = (PAUSE, TIME_PASSES, KILL)
#: Time for a waiter to notice that a ttl is over.
TTL_NOTICED_AFTER_SECONDS = 0.2
#: Attempts to record a schedule on a machine that was busy for a moment.
MAX_ATTEMPTS = 3

Played = TypeVar("Played")


class TtlTooShort(Exception):
    """The machine was so slow that a ttl may have passed in a turn in which it must not."""


class PlayedSchedule:
    """A schedule that is being played: the two processes, and the trace of their moves.

    A buyer's status is `new`, `stopped` (between two moves), `running` (in a move, in which it may
    wait for the lock or for a row), `paused` or `ended`.

    event              the outside event of the schedule; empty if it has none
    short_ttl          the ttl of the locks, in seconds, if the event is one of TTL_PASSES_IN
    ttl                the ttl of the locks, in seconds: short_ttl or LONG_TTL_SECONDS
    recorded_moves     the moves of each turn in the existing recording; empty without a recording
    has_happened       whether the event has happened; True if the schedule has none
    is_stuck           whether a buyer waits forever
    buyers_by_token    the buyer of each token that a lock has granted
    acquired_at        the monotonic time at which each buyer acquired its lock; a turn that lets
                       the ttl pass removes the time
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
        self.sale_id = restock(product=PRODUCT, amount=world.units, lock=world.strategy).pk
        self.ttl = short_ttl if event in TTL_PASSES_IN else LONG_TTL_SECONDS
        self.buyers = {name: self._start_buyer(name) for name in BUYERS}

    def _start_buyer(self, name: str) -> PlayedBuyer:
        """Start the process of a buyer who has not moved yet."""
        connections.close_all()  # the forked process must not share connections with this one
        key = None
        if self.event == ASKS_AGAIN:
            key = f"{self.sale_id}-{name}"
        return PlayedBuyer(name, self.strategy, key, self.ttl)

    def close(self) -> None:
        """End both buyers, and restore the locks' server."""
        for buyer in self.buyers.values():
            buyer.end()
        self.servers.restore()

    def list_choices(self) -> list[str]:
        """Return the turns that are possible now."""
        if self.is_stuck:
            return []
        turns = [name for name, buyer in self.buyers.items() if buyer.status in ("new", "stopped")]
        if self.buyers["A"].status == "paused":
            turns.append(GOES_ON)
        if not self.has_happened and self._can_happen(self.event):
            turns.append(self.event)
        if not turns and any(buyer.status == "running" for buyer in self.buyers.values()):
            turns.append(WAITS_ON)
        return turns

    def list_possible_events(self, events: Sequence[str]) -> list[str]:
        """Return which of these events can come next.

        A schedule has at most one event, so the list is empty if this schedule has one.
        """
        if self.event:
            return []
        return [event for event in events if event and self._can_happen(event)]

    def _can_happen(self, event: str) -> bool:
        """Return whether the event can happen now.

        ASKS_AGAIN can happen when A has an order, and the other events between two moves of A.
        """
        if event == ASKS_AGAIN:
            return ["A", "ends", "sold"] in [recorded[:3] for recorded in self.trace.events]
        return self.buyers["A"].status == "stopped"

    def play(self, turn: str) -> None:
        """Make one turn, and wait until no buyer moves any more.

        Raises TtlTooShort if the ttl may have passed in a turn in which it must not, and
        MovesDiffer if a buyer does not wait for the lock as expected.
        """
        self.turns_made += turn
        self.trace.events.append([turn, "begins"])
        if turn in self.buyers:
            self.buyers[turn].status = "running"
            self.buyers[turn].pipe.send("go")
            self._read_events_until_quiet(BLOCKED_AFTER_SECONDS)
        else:
            self._let_happen(turn)
        self._require_valid_locks()

    def _let_happen(self, turn: str) -> None:
        """Cause the outside event of this turn, or the consequence of one, such as GOES_ON."""
        if turn == self.event:
            self.has_happened = True
        actions: dict[str, Callable[[], None]] = {
            PAUSE: self._pause,
            GOES_ON: self._go_on,
            TIME_PASSES: self._let_ttl_pass,
            KILL: self._kill,
            RESTART: partial(self._change_servers, self.servers.restart_empty),
            FAILOVER: partial(self._change_servers, self.servers.fail_over),
            ASKS_AGAIN: self._ask_again,
            WAITS_ON: self._wait_on,
        }
        actions[turn]()
        self.trace.events.append([turn, "stops", self._observe_state()])

    def _require_valid_locks(self) -> None:
        """Raise TtlTooShort if the ttl of a lock that a buyer holds may be over."""
        for name, acquired_at in self.acquired_at.items():
            age = time.monotonic() - acquired_at
            if name in self.trace.holders and age > USABLE_SHARE_OF_TTL * self.ttl:
                raise TtlTooShort(f"{self.turns_made}: {name}'s lock is {age:.1f} s old")

    def _let_ttl_pass(self) -> None:
        """Wait until the ttl of A's lock is over. B, if it waits for the lock, may move then."""
        self._read_events_until_quiet(self.ttl + TTL_NOTICED_AFTER_SECONDS, full_time=True)
        self.acquired_at.pop("A", None)  # from now on the ttl of A's lock may be over

    def _pause(self) -> None:
        """Stop A's process, and wait until the ttl of its lock is over."""
        self.buyers["A"].send_signal(signal.SIGSTOP)
        self.buyers["A"].status = "paused"
        self._let_ttl_pass()

    def _go_on(self) -> None:
        """Continue A's process, which waits for its next turn."""
        self.buyers["A"].send_signal(signal.SIGCONT)
        self.buyers["A"].status = "stopped"
        self._read_events_until_quiet(BLOCKED_AFTER_SECONDS)

    def _kill(self) -> None:
        """Kill A's process, and read the events of B, which may move now."""
        self.buyers["A"].send_signal(signal.SIGKILL)
        self.buyers["A"].process.join()
        self.buyers["A"].status = "ended"
        self._read_events_until_quiet(BLOCKED_AFTER_SECONDS)

    def _change_servers(self, change: Callable[[], None]) -> None:
        """Change the locks' server while the waiting buyers are held back.

        Otherwise a buyer would send a request while no server answers, and its purchase would end
        as `unavailable`. Raises MovesDiffer if a running buyer does not wait for the lock.
        """
        waiting = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
        for buyer in waiting:
            # On a slow machine, a running buyer may not have asked for the lock yet.
            if not buyer.polls_for_lock and not self.servers.wait_for_queued_waiter():
                raise MovesDiffer("a buyer does not wait in the lock's queue")
            buyer.hold_back()
        change()
        for buyer in waiting:
            buyer.resume()
        self._read_events_until_quiet(RECONNECTED_AFTER_SECONDS)

    def _ask_again(self) -> None:
        """Replace A's process by a new one, which will buy with the same Idempotency-Key."""
        self.buyers["A"].end()
        self.buyers["A"] = self._start_buyer("A")

    def _wait_on(self) -> None:
        """Let the waiting buyers wait for two short ttls.

        In this time any lock with a ttl becomes free. If none of the buyers has moved then, they
        wait forever, and the schedule is stuck.
        """
        waiters = [buyer.name for buyer in self.buyers.values() if buyer.status == "running"]
        self.acquired_at.pop("A", None)  # from now on the ttl of A's lock may be over
        self._read_events_until_quiet(2 * (self.short_ttl + TTL_NOTICED_AFTER_SECONDS))
        if all(self.buyers[name].status == "running" for name in waiters):
            self.is_stuck = True
            for name in waiters:
                self.trace.events.append([name, "forever"])

    def _read_events_until_quiet(self, seconds: float, *, full_time: bool = False) -> None:
        """Read the events of the running buyers until all have stopped, or none moves any more.

        Buyers that are still running count as waiting when `seconds` are over and none of them has
        sent an event for BLOCKED_AFTER_SECONDS. If one of them stops in this turn in the existing
        recording, they get more time, up to EXPECTED_STOP_TIMEOUT_SECONDS.

        full_time  whether to wait for all of `seconds` even if all buyers have stopped
        """
        deadline = time.monotonic() + seconds
        expected_stop_deadline = time.monotonic() + EXPECTED_STOP_TIMEOUT_SECONDS
        while True:
            running = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
            seconds_left = deadline - time.monotonic()
            if any(
                has_ended_move(self.recorded_moves, self.turns_made, buyer.name)
                for buyer in running
            ):
                seconds_left = expected_stop_deadline - time.monotonic()
            if seconds_left <= 0 or not (running or full_time):
                return
            if not wait([buyer.pipe for buyer in running], seconds_left):
                return
            for buyer in running:
                while buyer.status == "running" and buyer.pipe.poll():
                    self._add_event(buyer, buyer.pipe.recv())
            deadline = max(deadline, time.monotonic() + BLOCKED_AFTER_SECONDS)

    def _add_event(self, buyer: PlayedBuyer, event: list[Any]) -> None:
        """Add an event to the trace, and update the status of the buyer who sent it.

        The buyer's process does not know the state after its move, so the state is added here.
        """
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
            facts[-1] = self._observe_state()  # in place of the empty state that the buyer sent
        self.trace.events.append([buyer.name, kind] + facts)

    def _observe_state(self) -> list[Any]:
        """Return the current state, as Moves in worlds.py describes it."""
        report = sale_report(self.sale_id)
        believers = "".join(sorted(self.trace.holders))
        owner = self.servers.find_owner(self.buyers_by_token)
        return [report.stock_left, report.orders, believers, owner]


def warm_up() -> None:
    """Buy once. The buyers' processes, which are forked later, inherit the filled caches."""
    restock(product=PRODUCT, amount=1, lock="none")
    check_out(Attempt(PRODUCT, "first", "none"))


def play_with_prefix(
    world: World,
    event: str,
    prefix: str,
    servers: LockServers,
    *,
    recorded_moves: Moves | None = None,
) -> tuple[str, Moves, list[str]]:
    """Play the turns of `prefix`. Then play the first possible turn until no turn is possible.

    Returns the schedule, its moves, and the prefixes of other schedules: each ends with a turn that
    was possible after `prefix` and was not played. Raises MovesDiffer if a turn of `prefix` is
    impossible, and TtlTooShort if even the longest ttl was too short.
    """

    def play_once(short_ttl: float) -> tuple[str, Moves, list[str]]:
        schedule = PlayedSchedule(
            world, event, servers, short_ttl=short_ttl, recorded_moves=recorded_moves or {}
        )
        other_prefixes: list[str] = []
        with closing(schedule):
            while choices := schedule.list_choices():
                turns_made = schedule.turns_made
                if len(turns_made) < len(prefix):
                    turn = prefix[len(turns_made)]
                else:
                    turn = choices[0]
                    other_prefixes += [turns_made + choice for choice in choices[1:]]
                if turn not in choices:
                    raise MovesDiffer(f"{turn} is impossible after {turns_made}")
                schedule.play(turn)
        return schedule.turns_made, collect_moves(schedule.trace.events), other_prefixes

    return play_with_long_enough_ttl(play_once)


def play_with_long_enough_ttl(play_once: Callable[[float], Played]) -> Played:
    """Call `play_once` with each of SHORT_TTLS_SECONDS until it does not raise TtlTooShort.

    Returns what `play_once` returns. Raises TtlTooShort if even the longest ttl was too short.
    """
    *shorter_ttls, longest_ttl = SHORT_TTLS_SECONDS
    for ttl in shorter_ttls:
        try:
            return play_once(ttl)
        except TtlTooShort as error:
            print(f"a ttl of {ttl} s is too short: {error}", file=sys.stderr, flush=True)
    return play_once(longest_ttl)


def require_agreement(known_moves: Moves, moves: Moves) -> None:
    """Raise MovesDiffer if a turn of `moves` had another effect in `known_moves`.

    Turns that `known_moves` does not have are ignored.
    """
    for turns_made, move in moves.items():
        if turns_made in known_moves and known_moves[turns_made] != move:
            raise MovesDiffer(f"{turns_made} was {known_moves[turns_made]}, is {move}")


def play_all_schedules(world: World, event: str, servers: LockServers, known_moves: Moves) -> int:
    """Play every schedule of a world with one event, and return the number of schedules.

    The moves are added to `known_moves`. The moves after the same first turns must be the same in
    every schedule. A schedule whose moves differ is played again. Raises MovesDiffer if they still
    differ in the last of MAX_ATTEMPTS attempts.
    """
    prefixes = [""]
    count = 0
    while prefixes:
        prefix = prefixes.pop()
        for _ in range(MAX_ATTEMPTS):
            try:
                _, moves, other_prefixes = play_with_prefix(world, event, prefix, servers)
                require_agreement(known_moves, moves)
                break
            except MovesDiffer as error:
                problem = error
                print(f"{world.strategy} {prefix}: {error}", file=sys.stderr, flush=True)
        else:
            raise problem
        known_moves.update(moves)
        prefixes += other_prefixes
        count += 1
    return count


def replay(world: World, schedule: str, recorded: Moves, servers: LockServers) -> bool:
    """Play a whole schedule again, and return whether its moves are those in `recorded`.

    The first move that differs is printed to stderr.
    """
    try:
        played, moves, _ = play_with_prefix(
            world, find_event(schedule), schedule, servers, recorded_moves=recorded
        )
        require_agreement(recorded, moves)
    except MovesDiffer as error:
        print(f"{world.strategy} {schedule}: {error}", file=sys.stderr, flush=True)
        return False
    return played == schedule
