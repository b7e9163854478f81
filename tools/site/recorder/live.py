"""Records the moves of two buyers of one unit in the real shop, in every order of their moves.

A purchase has three moves. In the first the buyer reads the stock. In the second it writes the
stock and inserts its order. In the third it commits. Under a strategy with a lock, the first move
waits for the lock, and the third releases it. In a turn one buyer makes a move; if the move
releases the lock, the move of the other buyer, who waits for the lock, ends in the same turn.

The earlier recording, in recorded/schedules.json, tells which moves end in which turn. On a busy
machine this helps to distinguish a buyer that is slow from a buyer that waits.
"""

import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

from django.db import connection, connections

from shop.errors import ShopError
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.points import use_probe
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from testing import interleave, step
from testing.actor import Actor
from testing.driver import Driver
from tools.site.worlds import (
    BUYERS,
    MOVES_PER_PURCHASE,
    OTHER_BUYER,
    Moves,
    RecordedEvent,
    has_ended_move,
    make_event,
    sort_by_length,
)

PRODUCT = "apple"
#: How long to wait until a buyer completes its move after the other buyer has released the lock.
UNBLOCKED_MOVE_TIMEOUT_SECONDS = 0.15
#: How long to wait until a buyer completes its move, if the buyer did so in this turn of the
#: earlier recording. The time is long, because the machine may be busy.
RECORDED_STOP_TIMEOUT_SECONDS = 30.0
#: Keeps PostgreSQL from ending a transaction that waits for the other buyer's next move.
UNLIMITED_TIMEOUTS_SQL = (
    "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; SET statement_timeout = 0"
)
#: The points of a purchase (shop/sale/points.py) that the site shows as a line.
SHOWN_POINTS = ("acquired", "after_read", "released", "unlocked_before_commit", "reserved")


def get_current_buyer() -> str:
    """Return the buyer that this thread runs, `A` or `B`.

    The package `testing` has named the thread `interleaved-A` or `interleaved-B`.
    """
    return threading.current_thread().name.removeprefix("interleaved-")


@dataclass(slots=True)
class Trace:
    """The events of one schedule in the order in which they happened.

    An event is a list: the buyer, the kind, and details. In world.py the first element may also be
    the letter of an outside event, which `begins` and `stops`. The kinds are:

    begins   the buyer begins a move
    sends    the buyer sends a statement to the database; the detail is the statement
    stops    the buyer has completed a move; the detail is the state (see Moves in worlds.py)
    ends     the purchase has ended; the details are the outcome and the state
    waits    the buyer has not completed the move that it began (added by collect_moves())
    forever  the buyer waits forever (added by world.py)

    The points of a purchase in SHOWN_POINTS are kinds, too. collect_moves() takes the states out of
    the events.

    believers  the buyers who hold the lock, or who have lost it without noticing
    """

    events: list[list[Any]] = field(default_factory=list)
    believers: list[str] = field(default_factory=list)

    def add(self, kind: str, *details: object) -> None:
        """Add an event of the buyer that this thread runs."""
        self.events.append([get_current_buyer(), kind] + list(details))

    def list_events(self) -> list[RecordedEvent]:
        """Return the events so far."""
        events = list(self.events)  # a copy, because another thread may add to the list
        return [make_event(event) for event in events]

    def list_turns_made(self) -> str:
        """Return the turns made so far as a string, such as `AAB`."""
        return "".join(event.buyer for event in self.list_events() if event.kind == "begins")

    def is_moving_after_release(self, buyer: str) -> bool:
        """Return whether a buyer is in a move that was blocked until the other buyer's release.

        This is so if the other buyer has released the lock and has not acquired it again, and
        `buyer` has begun a move and not completed it.
        """
        events = self.list_events()
        kinds = [event.kind for event in events if event.buyer == buyer]
        other_holds = self.believers not in ([], [buyer])
        other_has_released = any(
            event.buyer != buyer and event.kind == "released" for event in events
        )
        is_moving = bool(kinds) and kinds[-1] not in ("stops", "ends")
        return other_has_released and not other_holds and is_moving


class ReplayDriver(Driver):
    """A driver that lets a buyer take longer over a move that ends in the earlier recording.

    recorded_moves  the moves of the earlier recording; empty if there is none
    """

    def __init__(self, recorded_moves: Moves, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._recorded_moves = recorded_moves

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        """Wait until the actor stops, or count the actor as blocked after `blocked_after` seconds.

        An actor is the thread of a buyer. If the buyer completed its move in this turn of the
        earlier recording, wait for RECORDED_STOP_TIMEOUT_SECONDS instead.
        """
        if has_ended_move(self._recorded_moves, self.schedule, actor.name):
            blocked_after = RECORDED_STOP_TIMEOUT_SECONDS
        return super().settle(actor, blocked_after)


class Recorder:
    """Runs two purchases under one strategy, in every order of their moves.

    strategy        the name of the strategy
    recorded_moves  the moves of the earlier recording; empty if there is none
    """

    def __init__(self, strategy: str, recorded_moves: Moves | None = None) -> None:
        self.strategy = strategy
        self.recorded_moves = recorded_moves or {}
        self.trace = Trace()
        self.sale_id = 0
        # This thread has its own database connection, so it sees only what the buyers have
        # committed.
        self._observer_thread = ThreadPoolExecutor(1)

    def record_traces(self) -> list[Trace]:
        """Run the two purchases in every order of their moves, and return a trace of each run."""
        traces: list[Trace] = []

        def prepare_run() -> None:
            self.sale_id = restock(product=PRODUCT, amount=1, lock=self.strategy).pk
            self.trace = Trace()
            traces.append(self.trace)

        # A first purchase fills the caches of this process.
        restock(product=PRODUCT, amount=1, lock=self.strategy)
        check_out(Attempt(PRODUCT, "first", self.strategy))
        with use_probe(self._record_point):
            driver = partial(ReplayDriver, self.recorded_moves)
            # at=(): the buyers stop only at the calls of step() in _await_next_turn().
            interleave(self._buy, self._buy, before=prepare_run, at=(), driver=driver)
        self._observer_thread.submit(connections.close_all).result()
        self._observer_thread.shutdown()
        return traces

    def _buy(self) -> None:
        """Make one purchase, and record its moves and its outcome."""
        # A buyer that connects during its first move could seem to wait for a lock.
        connection.ensure_connection()
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(UNLIMITED_TIMEOUTS_SQL)
        self._await_next_turn()
        self._record_statements()
        try:
            receipt = check_out(self._make_attempt())
            outcome = "replayed" if receipt.replayed else "sold"
        except ShopError as error:
            outcome = error.outcome
        self.trace.add("ends", outcome, self._observe_state())

    def _make_attempt(self) -> Attempt:
        """Return the arguments of check_out() for the buyer that this thread runs."""
        return Attempt(PRODUCT, get_current_buyer(), self.strategy)

    def _await_next_turn(self) -> None:
        """End the buyer's current move, if there is one, and wait until its next turn begins."""
        buyer = get_current_buyer()
        has_begun = [buyer, "begins"] in self.trace.events
        if has_begun:
            self._wait_for_unblocked_move(OTHER_BUYER[buyer])
            self.trace.add("stops", self._observe_state())
        step("move")  # blocks this thread until the driver gives the buyer its turn
        self.trace.add("begins")

    def _wait_for_unblocked_move(self, buyer: str) -> None:
        """If the current move has released the lock to `buyer`, wait until that buyer's move ends.

        Return after a timeout if the move does not end; `buyer` may wait for something else, such
        as a row. The timeout is longer if the move ended in this turn of the earlier recording.
        """
        timeout = UNBLOCKED_MOVE_TIMEOUT_SECONDS
        if has_ended_move(self.recorded_moves, self.trace.list_turns_made(), buyer):
            timeout = RECORDED_STOP_TIMEOUT_SECONDS
        deadline = time.monotonic() + timeout
        while self.trace.is_moving_after_release(buyer) and time.monotonic() < deadline:
            time.sleep(0.002)

    def _record_point(self, point: str, details: Mapping[str, object]) -> None:
        """Record that a buyer has reached a point of its purchase.

        At some points a buyer begins or ceases to believe that it has the lock. So this function
        also updates `trace.believers`.

        The shop calls this function at each of the points that shop/sale/points.py lists. Only
        SHOWN_POINTS are recorded. The read of the stock ends a move, so the buyer then waits for
        its next turn.

        details  the arguments of the point, such as the `amount` that the buyer read
        """
        buyer = get_current_buyer()
        believers = self.trace.believers
        if buyer not in BUYERS:
            return
        if point == "acquired":
            believers.append(buyer)
        if point in ("released", "unlocked_before_commit") and buyer in believers:
            believers.remove(buyer)
        if point == "after_read" and details.get("amount") is not None:
            self.trace.add(point, details["amount"])
        elif point in SHOWN_POINTS:
            self.trace.add(point)
        if point == "after_read":
            self._await_next_turn()

    def _execute_recorded(
        self, execute: Any, sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        """Execute a statement, and record it if it reads or writes rows.

        Django calls this function for each statement, as one of the execute_wrappers.
        """
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)", sql):
            self.trace.add("sends", simplify_statement(sql, params))
        return execute(sql, params, many, context)

    def _record_statements(self) -> None:
        """Record the statements of this thread's connection from now on.

        The COMMIT is a move by itself, so the buyer waits for its next turn before the COMMIT.
        """
        wrapper = connections["default"]
        commit = wrapper.commit
        rollback = wrapper.rollback

        def recorded_commit() -> None:
            self._await_next_turn()
            self.trace.add("sends", "COMMIT")
            commit()

        def recorded_rollback() -> None:
            self.trace.add("sends", "ROLLBACK")
            rollback()

        # These attributes of the connection take the place of the methods of its class.
        vars(wrapper).update(commit=recorded_commit, rollback=recorded_rollback)
        wrapper.execute_wrappers.append(self._execute_recorded)

    def _observe_state(self) -> list[Any]:
        """Return the stock, the number of orders, and the buyers who believe they hold the lock.

        Another database connection reads the stock and the orders, so it sees what is committed.
        """
        report = self._observer_thread.submit(sale_report, self.sale_id).result()
        return [report.stock_left, report.orders, "".join(self.trace.believers)]


def simplify_statement(sql: str, params: Any) -> str:
    """Return a statement with its parameters inserted, shortened for the site.

    The result does not contain what differs from one run to the next (the ids of rows and sales),
    nor what does not matter here (the columns, and the values of an order). The words `as read`
    stand for a version, `the same` for an idempotency key, and `mine` for the buyer's fence.
    """
    one_line = " ".join(re.sub('["`]', "", sql).split())
    texts_between = one_line.split("%s")
    # True and False become 1 and 0, as in SQL.
    literals = [
        repr(int(param)) if isinstance(param, int) else repr(param) for param in params or ()
    ]
    pairs = zip_longest(texts_between, literals, fillvalue="")
    statement = "".join(text + literal for text, literal in pairs)
    replacements = [
        (r"^(INSERT INTO \w+) .*", r"\1 ..."),
        (r"^SELECT .*? FROM (product|purchase_history)", r"SELECT ... FROM \1"),
        (r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", ""),
        # the name of the table before a column
        (r"\b(product|purchase_history|bucket|unit)\.(?=\w)", ""),
        (r"[( ]*\bAND \(?sale_id (= \d+|IS NOT NULL)\)?", ""),
        (r"(?<=id = )\d+", "1"),
        (r"(?<=idempotency_key = )'.*?'", "the same"),
        # parentheses around the whole condition
        (r"WHERE \((.*?)\)?(?= FOR|$)", r"WHERE \1"),
        (r"(?<=version = )\d+", "as read"),
        # a long number is a fence: a time in microseconds
        (r"\d{9,}", "mine"),
    ]
    for pattern, replacement in replacements:
        statement = re.sub(pattern, replacement, statement)
    return statement


def collect_moves(events: list[list[Any]]) -> Moves:
    """Group the events of a trace by turn, and return them as Moves (see worlds.py).

    An event belongs to the turn in which it happened, with one exception. If a turn releases the
    lock, the other buyer, who waited for the lock, completes its move. The events of that move
    belong to the turn of the release, even if they arrive after the next turn has begun.

    If a buyer does not complete a move in the turn in which the move began, the event `waits` is
    added to that turn.

    events  the events of a Trace
    """
    moves: Moves = {}
    turns_made = ""
    state: list[Any] = [1, 0, ""]  # one unit, no order, and no buyer who believes it has the lock
    moving_buyers: set[str] = set()  # buyers who have begun a move and not completed it
    #: A buyer who waited for the lock -> the turns made up to the release of the lock.
    turns_until_release: dict[str, str] = {}
    for buyer, kind, details in map(make_event, events):
        if kind == "begins":
            turns_made += buyer
            moves[turns_made] = {"did": [], "state": state}
            moving_buyers.add(buyer)
            turns_until_release.pop(buyer, None)
            continue
        turn = moves[turns_until_release.get(buyer, turns_made)]
        if kind in ("stops", "ends"):
            state = details.pop()
            turn["state"] = state
            moving_buyers.discard(buyer)
        if kind == "released":
            turns_until_release |= dict.fromkeys(moving_buyers - {buyer}, turns_made)
        turn["did"].append([buyer, kind] + details)
    for turns_made, turn in moves.items():
        turn["did"] = _sort_events(turn["did"], mover=turns_made[-1])
    return moves


def _sort_events(turn_events: list[list[Any]], mover: str) -> list[list[Any]]:
    """Return the events of a turn: first those of the mover, then those of the other buyer.

    The mover is the buyer whose turn it is. The event `stops`, with which a buyer completes its
    move, is sorted behind the buyer's other events. If the mover has not completed its move, the
    event `waits` is added.
    """

    def make_sort_key(event: list[Any]) -> tuple[bool, bool]:
        buyer, kind = event[:2]
        return buyer != mover, kind == "stops"

    has_completed_move = any(
        event.buyer == mover and event.kind in ("stops", "ends")
        for event in map(make_event, turn_events)
    )
    if not has_completed_move:
        turn_events = turn_events + [[mover, "waits"]]
    return sorted(turn_events, key=make_sort_key)


def record_moves(strategy: str, recorded_moves: Moves | None = None) -> Moves:
    """Play two purchases under a strategy in every order of their moves, and return the moves.

    If two orders begin with the same turns, these turns must have the same events and states in
    both orders. Otherwise this function raises AssertionError.

    recorded_moves  the moves of the earlier recording. If a buyer completed its move there, it gets
                    more time for the same move here, because the machine may be slower
    """
    moves: Moves = {}
    for trace in Recorder(strategy, recorded_moves).record_traces():
        for turns_made, turn in collect_moves(trace.events).items():
            known_turn = moves.setdefault(turns_made, turn)
            assert known_turn == turn, (strategy, turns_made, known_turn, turn)
    return sort_by_length(moves)


def has_three_moves(moves: Moves) -> bool:
    """Return whether buyer A, if B does not move, completes its purchase in three moves.

    moves  what happened in each turn; see Moves in worlds.py
    """
    last_turn_of_purchase = moves.get("A" * MOVES_PER_PURCHASE, {"did": []})
    return ["A", "ends", "sold"] in last_turn_of_purchase["did"]
