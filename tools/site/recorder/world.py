"""Plays schedules of two buyers, each in its own process, with at most one outside event.

An outside event is, for example, a restart of the locks' server, or a pause of A's process. A world
is a strategy with its database, its stock, and its outside events (worlds.py).

A schedule is a string of turns, such as `AAPBBBBGAA`. In a turn `A` or `B` this buyer makes its
next move: it reads, it writes, or it commits (live.py), and stops. If the strategy has a lock, the
buyer stops once more when it has acquired the lock. The other letters are outside events and what
follows them; worlds.py lists them.
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
    PRODUCT,
    RECORDED_STOP_TIMEOUT_SECONDS,
    Trace,
    collect_moves,
)
from tools.site.recorder.lock_servers import LockServers
from tools.site.recorder.played_buyer import LONG_TTL_SECONDS, MovesDiffer, PlayedBuyer
from tools.site.worlds import (
    BUYERS,
    FAILOVER,
    KEEP_WAITING,
    KILL,
    PAUSE,
    RESTART,
    RESUME,
    RETRY,
    TIME_PASSES,
    Moves,
    World,
    find_outside_event,
    has_ended_move,
)

#: A running buyer that has sent no event for this long is taken to be waiting for the other buyer.
BLOCKED_AFTER_SECONDS = 0.3
#: How long to wait after a restart or failover of the locks' server, so that a waiting buyer can
#: connect again, and can acquire the lock if it is free.
RECONNECTED_AFTER_SECONDS = 1.0
#: The ttls of the locks in schedules in which a ttl expires. A schedule is first played with the
#: shortest one. On a slow machine this ttl may expire before the turn that is meant to wait for its
#: end. Then the schedule is played again with the next, longer ttl.
SHORT_TTLS_SECONDS = (1.5, 3.0, 6.0)
#: A turn must end before a buyer has held its lock for this share of the ttl. Otherwise the ttl
#: may have expired in that turn.
USABLE_SHARE_OF_TTL = 0.8
#: The outside events after which the ttl of A's lock expires. PAUSE and TIME_PASSES wait for its
#: end. After KILL it expires while B waits.
EVENTS_WITH_EXPIRY = (PAUSE, TIME_PASSES, KILL)
#: Time for a waiter to notice that a ttl is over.
TTL_NOTICED_AFTER_SECONDS = 0.2
#: Attempts to record a schedule on a machine that was busy for a moment.
MAX_ATTEMPTS = 3

#: What a call that plays a schedule returns.
PlayOutcome = TypeVar("PlayOutcome")


class TtlTooShort(Exception):
    """The machine was so slow that a lock's ttl may have expired before it was meant to."""


class PlayedSchedule:
    """A schedule that is being played: the processes of the two buyers, and the trace so far.

    A buyer's status is `new`, `stopped` (between two moves), `running` (in a move, in which it may
    wait for the lock or for a row), `paused` or `ended`.

    event              the outside event of the schedule; empty if it has none
    short_ttl          the ttl of the locks, in seconds, if the event is in EVENTS_WITH_EXPIRY
    ttl                the ttl of the locks, in seconds: short_ttl or LONG_TTL_SECONDS
    recorded_moves     the moves of the earlier recording; empty if there is none
    event_has_happened
                       whether the outside event has happened; True if the schedule has none
    is_stuck           whether a buyer waits forever
    buyers_by_token    the token of each lock that was acquired -> the buyer who acquired it
    acquired_at        buyer -> the monotonic time at which it acquired its lock. Buyer A has no
                       entry after a turn in which the ttl of its lock was meant to expire
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
        self.turns_made = ""  # one letter for each turn
        self.short_ttl = short_ttl
        self.recorded_moves = recorded_moves
        self.event_has_happened = not event  # also true if the schedule has no outside event
        self.is_stuck = False
        self.strategy = world.strategy
        self.servers = servers
        self.trace = Trace()
        self.buyers_by_token: dict[str, str] = {}
        self.acquired_at: dict[str, float] = {}
        servers.prepare(with_replica=event == FAILOVER)
        self.sale_id = restock(product=PRODUCT, amount=world.units, lock=world.strategy).pk
        self.ttl = short_ttl if event in EVENTS_WITH_EXPIRY else LONG_TTL_SECONDS
        self.buyers = {name: self._start_buyer(name) for name in BUYERS}

    def _start_buyer(self, name: str) -> PlayedBuyer:
        """Start the process of a buyer, which then waits for its first turn.

        The purchase has an Idempotency-Key if the buyer may send it again (RETRY).
        """
        connections.close_all()  # the forked process must not share connections with this one
        idempotency_key = None
        if self.event == RETRY:
            idempotency_key = f"{self.sale_id}-{name}"
        return PlayedBuyer(name, self.strategy, idempotency_key, self.ttl)

    def close(self) -> None:
        """End both buyers, and restore the locks' server."""
        for buyer in self.buyers.values():
            buyer.end()
        self.servers.restore()

    def list_possible_turns(self) -> list[str]:
        """Return the letters of the turns that are possible now; empty at the end of a schedule."""
        if self.is_stuck:
            return []
        turns = [name for name, buyer in self.buyers.items() if buyer.status in ("new", "stopped")]
        if self.buyers["A"].status == "paused":
            turns.append(RESUME)
        if not self.event_has_happened and self._can_happen(self.event):
            turns.append(self.event)
        if not turns and any(buyer.status == "running" for buyer in self.buyers.values()):
            turns.append(KEEP_WAITING)
        return turns

    def list_possible_events(self, events: Sequence[str]) -> list[str]:
        """Return which of these outside events can come next.

        A schedule has at most one outside event, so the list is empty if this schedule has one.
        """
        if self.event:
            return []
        return [event for event in events if event and self._can_happen(event)]

    def _can_happen(self, event: str) -> bool:
        """Return whether an outside event can happen now.

        RETRY can happen when A has an order. The other events can happen between two moves of A.
        """
        if event == RETRY:
            return any(
                (event.buyer, event.kind, event.details[:1]) == ("A", "ends", ["sold"])
                for event in self.trace.list_events()
            )
        return self.buyers["A"].status == "stopped"

    def play(self, turn: str) -> None:
        """Play one turn, and wait until each buyer has stopped, has ended or is blocked.

        Raises TtlTooShort if the ttl of a lock may have expired too early, and MovesDiffer if a
        buyer does not wait for the lock as expected.
        """
        self.turns_made += turn
        self.trace.events.append([turn, "begins"])
        if turn in self.buyers:
            self.buyers[turn].status = "running"
            self.buyers[turn].pipe.send("go")
            self._read_events_until_blocked(BLOCKED_AFTER_SECONDS)
        else:
            self._cause_event(turn)
        self._require_valid_locks()

    def _cause_event(self, turn: str) -> None:
        """Cause an outside event, or what follows an outside event, such as RESUME after PAUSE."""
        if turn == self.event:
            self.event_has_happened = True
        actions: dict[str, Callable[[], None]] = {
            PAUSE: self._pause,
            RESUME: self._resume,
            TIME_PASSES: self._wait_until_ttl_expires,
            KILL: self._kill,
            RESTART: partial(self._change_servers, self.servers.restart_empty),
            FAILOVER: partial(self._change_servers, self.servers.fail_over),
            RETRY: self._retry,
            KEEP_WAITING: self._keep_waiting,
        }
        actions[turn]()
        self.trace.events.append([turn, "stops", self._observe_state()])

    def _require_valid_locks(self) -> None:
        """Raise TtlTooShort if a lock that a buyer holds is so old that its ttl may have expired.

        The locks whose ttl was meant to expire are not in `acquired_at`.
        """
        for name, acquired_at in self.acquired_at.items():
            age = time.monotonic() - acquired_at
            if name in self.trace.believers and age > USABLE_SHARE_OF_TTL * self.ttl:
                raise TtlTooShort(f"{self.turns_made}: {name}'s lock is {age:.1f} s old")

    def _wait_until_ttl_expires(self) -> None:
        """Wait until the ttl of A's lock has expired.

        If B waits for the lock, B may acquire it in this time.
        """
        self._read_events_until_blocked(self.ttl + TTL_NOTICED_AFTER_SECONDS, full_time=True)
        self.acquired_at.pop("A", None)  # from now on the ttl of A's lock may have expired

    def _pause(self) -> None:
        """Pause A's process, and wait until the ttl of A's lock has expired."""
        self.buyers["A"].send_signal(signal.SIGSTOP)
        self.buyers["A"].status = "paused"
        self._wait_until_ttl_expires()

    def _resume(self) -> None:
        """Let A's process continue after a pause. A then waits for its next turn."""
        self.buyers["A"].send_signal(signal.SIGCONT)
        self.buyers["A"].status = "stopped"  # between two moves, and not by a signal
        self._read_events_until_blocked(BLOCKED_AFTER_SECONDS)

    def _kill(self) -> None:
        """Kill A's process. B may continue if it waited for a row that A had locked."""
        self.buyers["A"].send_signal(signal.SIGKILL)
        self.buyers["A"].process.join()
        self.buyers["A"].status = "ended"
        self._read_events_until_blocked(BLOCKED_AFTER_SECONDS)

    def _change_servers(self, change: Callable[[], None]) -> None:
        """Restart or fail over the locks' server while the waiting buyers send no requests.

        A buyer that sends a request while no server answers would end its purchase as
        `unavailable`. Raises MovesDiffer if a running buyer does not wait for the lock.

        change  restarts the server, or fails over to the replica
        """
        waiters = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
        for buyer in waiters:
            # On a slow machine, a running buyer may not have requested the lock yet.
            if not buyer.polls_for_lock and not self.servers.wait_for_queued_waiter():
                raise MovesDiffer("a buyer does not wait in the lock's queue")
            buyer.hold_back()
        change()
        for buyer in waiters:
            buyer.resume()
        self._read_events_until_blocked(RECONNECTED_AFTER_SECONDS)

    def _retry(self) -> None:
        """Replace A's process by a new one, which will buy with the same Idempotency-Key.

        Its first turn sends the purchase again.
        """
        self.buyers["A"].end()
        self.buyers["A"] = self._start_buyer("A")

    def _keep_waiting(self) -> None:
        """Let the waiting buyers wait for two short ttls, and record it if they wait forever.

        In two ttls each lock that has a ttl becomes free. If no waiting buyer has moved by then,
        they wait forever, and the schedule is stuck.
        """
        waiters = [buyer.name for buyer in self.buyers.values() if buyer.status == "running"]
        self.acquired_at.pop("A", None)  # from now on the ttl of A's lock may have expired
        self._read_events_until_blocked(2 * (self.short_ttl + TTL_NOTICED_AFTER_SECONDS))
        if all(self.buyers[name].status == "running" for name in waiters):
            self.is_stuck = True
            for name in waiters:
                self.trace.events.append([name, "forever"])

    def _read_events_until_blocked(self, seconds: float, *, full_time: bool = False) -> None:
        """Read the events of the running buyers until all have stopped, or the rest is blocked.

        The running buyers are taken to be blocked if they have run for `seconds`, and none of them
        has sent an event for BLOCKED_AFTER_SECONDS. If one of them stopped in this turn of the
        earlier recording, they get up to RECORDED_STOP_TIMEOUT_SECONDS instead.

        full_time  whether to wait for all of `seconds` even if all buyers have stopped
        """
        deadline = time.monotonic() + seconds
        recorded_stop_deadline = time.monotonic() + RECORDED_STOP_TIMEOUT_SECONDS
        while True:
            running = [buyer for buyer in self.buyers.values() if buyer.status == "running"]
            seconds_left = deadline - time.monotonic()
            if any(
                has_ended_move(self.recorded_moves, self.turns_made, buyer.name)
                for buyer in running
            ):
                seconds_left = recorded_stop_deadline - time.monotonic()
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

        The buyer's process does not know the state after its move, so the state is added here. The
        event `token` is not added: it only tells which token the buyer's lock has.

        event  the kind and the details; see Trace in live.py
        """
        kind, *details = event
        if kind == "token":
            token, acquired_at = details
            self.buyers_by_token[str(token)] = buyer.name
            self.acquired_at[buyer.name] = acquired_at
            return
        believers = self.trace.believers
        if kind == "acquired":
            believers.append(buyer.name)
        if kind in ("released", "unlocked_before_commit") and buyer.name in believers:
            believers.remove(buyer.name)
        if kind == "stops":
            buyer.status = "stopped"
            details = [self._observe_state()]
        if kind == "ends":
            buyer.status = "ended"
            outcome, _ = details  # the second is the empty state that the buyer sent
            details = [outcome, self._observe_state()]
        self.trace.events.append([buyer.name, kind] + details)

    def _observe_state(self) -> list[Any]:
        """Return the stock, the number of orders, the believers, and the owner of the lock.

        The believers are the buyers who believe that they hold the lock. The owner is the buyer
        whose token is on the locks' server.
        """
        report = sale_report(self.sale_id)
        believers = "".join(sorted(self.trace.believers))
        owner = self.servers.find_owner(self.buyers_by_token)
        return [report.stock_left, report.orders, believers, owner]


def warm_up() -> None:
    """Make a first purchase, so that the caches of this process are filled.

    The processes of the buyers are forked later, and inherit the caches.
    """
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
    """Play the turns of `prefix`, and then the first possible turn until no turn is possible.

    Returns the schedule that was played, its moves, and the prefixes of further schedules. For each
    turn that was possible after `prefix` and was not chosen, there is a prefix that ends with it.
    Raises MovesDiffer if a turn of `prefix` is impossible, and TtlTooShort if even the longest ttl
    was too short.

    event   the outside event that the schedule has; NO_EVENT for none
    prefix  the beginning of the schedule, such as `AAP`
    """

    def play_once(short_ttl: float) -> tuple[str, Moves, list[str]]:
        schedule = PlayedSchedule(
            world, event, servers, short_ttl=short_ttl, recorded_moves=recorded_moves or {}
        )
        other_prefixes: list[str] = []
        with closing(schedule):
            while possible_turns := schedule.list_possible_turns():
                turns_made = schedule.turns_made
                if len(turns_made) < len(prefix):
                    turn = prefix[len(turns_made)]
                else:
                    turn, *other_turns = possible_turns
                    other_prefixes += [turns_made + other_turn for other_turn in other_turns]
                if turn not in possible_turns:
                    raise MovesDiffer(f"{turn} is impossible after {turns_made}")
                schedule.play(turn)
        return schedule.turns_made, collect_moves(schedule.trace.events), other_prefixes

    return play_with_long_enough_ttl(play_once)


def play_with_long_enough_ttl(play_once: Callable[[float], PlayOutcome]) -> PlayOutcome:
    """Call `play_once` with each of SHORT_TTLS_SECONDS in turn until it does not raise TtlTooShort.

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
    """Raise MovesDiffer if a turn has other events or another state in `known_moves`.

    Turns that `known_moves` does not have are ignored.
    """
    for turns_made, turn in moves.items():
        if turns_made in known_moves and known_moves[turns_made] != turn:
            raise MovesDiffer(f"{turns_made} was {known_moves[turns_made]}, is {turn}")


def play_all_schedules(world: World, event: str, servers: LockServers, known_moves: Moves) -> int:
    """Play every schedule of a world with this outside event, and return how many there are.

    A world is a strategy with its database, its stock, and its outside events. The moves are added
    to `known_moves`. Schedules that begin with the same turns must have the same events and states
    in these turns. A schedule that differs from `known_moves` is played again. Raises MovesDiffer
    if it still differs in the last of MAX_ATTEMPTS attempts.

    event  NO_EVENT: play the schedules without an outside event
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


def replay(world: World, schedule: str, recorded_moves: Moves, servers: LockServers) -> bool:
    """Play a whole schedule again, and return whether its moves are those in `recorded_moves`.

    The first move that differs is printed to stderr.
    """
    try:
        played_schedule, moves, _ = play_with_prefix(
            world, find_outside_event(schedule), schedule, servers, recorded_moves=recorded_moves
        )
        require_agreement(recorded_moves, moves)
    except MovesDiffer as error:
        print(f"{world.strategy} {schedule}: {error}", file=sys.stderr, flush=True)
        return False
    return played_schedule == schedule
