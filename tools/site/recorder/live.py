"""Records the moves of two buyers of one unit in the real shop, in every order of their moves.

A purchase has three moves. In the first the buyer reads the stock. In the second it writes the
stock and inserts its order. In the third it commits. Under a strategy with a lock, the first move
waits for the lock, and the third releases it. In a turn one buyer makes a move; if the move
releases the lock, the move of the other buyer, who waits for it, ends in the same turn.
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
    has_ended_move,
    sort_by_length,
)

PRODUCT = "apple"
#: How long a buyer may take from the release of the lock by the other buyer to its own next stop.
NEXT_STOP_SECONDS = 0.15
#: How long to wait for a stop that the existing recording has in the same turn. It is long, because
#: the machine may be busy.
EXPECTED_STOP_TIMEOUT_SECONDS = 30.0
#: Keeps PostgreSQL from ending a transaction that waits for the other buyer's next move.
UNLIMITED_TIMEOUTS_SQL = (
    "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; SET statement_timeout = 0"
)
#: The points of a purchase (shop/sale/points.py) that the site shows as a line.
SHOWN_POINTS = ("acquired", "after_read", "released", "unlocked_before_commit", "reserved")


def current_buyer() -> str:
    """Return the buyer whose thread this is; `testing` names it `interleaved-A` or `-B`."""
    return threading.current_thread().name.removeprefix("interleaved-")


@dataclass(slots=True)
class Trace:
    """The events of the moves in one order of the turns, as they happened.

    An event is a list of the buyer, the kind, and facts. The kinds are `begins` (a move), `sends`
    (with a statement), the points in SHOWN_POINTS, `stops` (at the end of a move) and `ends` (with
    an outcome). The last fact of `stops` and `ends` is the state that another connection sees; see
    Moves in worlds.py. collect_moves() moves that state from the event to its turn, and adds the
    kind `waits`; world.py adds the kind `forever`.

    holders  the buyers who hold the lock, or believe so because their lock was lost unnoticed
    """

    events: list[list[Any]] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)

    def add(self, kind: str, *facts: object) -> None:
        """Add an event of the buyer whose thread this is."""
        self.events.append([current_buyer(), kind] + list(facts))

    def turns_made(self) -> str:
        """Return the turns so far."""
        return "".join(event[0] for event in list(self.events) if event[1] == "begins")

    def is_moving_after_release(self, buyer: str) -> bool:
        """Return whether this buyer is in a move that the other one's release made possible."""
        events = list(self.events)  # a copy, because another thread may add to the list
        kinds = [event[1] for event in events if event[0] == buyer]
        other_holds = self.holders not in ([], [buyer])
        other_has_released = any(event[1] == "released" and event[0] != buyer for event in events)
        is_moving = bool(kinds) and kinds[-1] not in ("stops", "ends")
        return other_has_released and not other_holds and is_moving


class ReplayDriver(Driver):
    """A driver that waits longer for a stop that the existing recording has in the same turn.

    recorded_moves  the existing recording: what happened in each turn; empty without a recording
    """

    def __init__(self, recorded_moves: Moves, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._recorded_moves = recorded_moves

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        """Wait until the actor stops, or count it as blocked after `blocked_after` seconds.

        If the recording has a stop of this actor in this turn, the wait may take longer.
        """
        if has_ended_move(self._recorded_moves, self.schedule, actor.name):
            blocked_after = EXPECTED_STOP_TIMEOUT_SECONDS
        return super().settle(actor, blocked_after)


class Recorder:
    """Runs two purchases under one strategy, in every order of their moves.

    strategy        the name of the strategy
    recorded_moves  the existing recording: what happened in each turn; empty without a recording
    """

    def __init__(self, strategy: str, recorded_moves: Moves | None = None) -> None:
        self.strategy = strategy
        self.recorded_moves = recorded_moves or {}
        self.trace = Trace()
        self.sale_id = 0
        # The thread of this pool has another connection than the buyers, so it sees only what
        # they have committed.
        self._observer = ThreadPoolExecutor(1)

    def record_traces(self) -> list[Trace]:
        """Run the two purchases in every order of their turns, and return a trace of each run."""
        traces: list[Trace] = []

        def prepare() -> None:
            self.sale_id = restock(product=PRODUCT, amount=1, lock=self.strategy).pk
            self.trace = Trace()
            traces.append(self.trace)

        restock(product=PRODUCT, amount=1, lock=self.strategy)
        check_out(Attempt(PRODUCT, "first", self.strategy))  # fills the caches of this process
        with use_probe(self._at_point):
            driver = partial(ReplayDriver, self.recorded_moves)
            # at=(): the buyers stop only at the calls of step() in _await_next_turn().
            interleave(self._buy, self._buy, before=prepare, at=(), driver=driver)
        self._observer.submit(connections.close_all).result()
        self._observer.shutdown()
        return traces

    def _buy(self) -> None:
        """Make one purchase, and record its moves and its outcome."""
        connection.ensure_connection()  # connecting later would look like waiting for a lock
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
        return Attempt(PRODUCT, current_buyer(), self.strategy)

    def _await_next_turn(self) -> None:
        """End the buyer's current move, if there is one, and wait until its next turn begins."""
        name = current_buyer()
        if [name, "begins"] in self.trace.events:
            self._let_waiter_finish_its_move(OTHER_BUYER[name])
            self.trace.add("stops", self._observe_state())
        step("move")  # the driver lets this thread go on when it is the buyer's turn
        self.trace.add("begins")

    def _let_waiter_finish_its_move(self, buyer: str) -> None:
        """If this move has released the lock to `buyer`, wait until that buyer's move ends.

        After a time limit, `buyer` counts as waiting for something else. The limit is longer if the
        move ends in this turn in the existing recording.
        """
        timeout = NEXT_STOP_SECONDS
        if has_ended_move(self.recorded_moves, self.trace.turns_made(), buyer):
            timeout = EXPECTED_STOP_TIMEOUT_SECONDS
        deadline = time.monotonic() + timeout
        while self.trace.is_moving_after_release(buyer) and time.monotonic() < deadline:
            time.sleep(0.002)

    def _at_point(self, point: str, facts: Mapping[str, object]) -> None:
        """Record a point of a buyer's purchase if the site shows it, and update the lock's holders.

        A point is a moment in a purchase at which the shop calls this function. The read of the
        stock ends a move, so the buyer then waits for its next turn.

        facts  what the shop tells about the moment, such as the amount that the buyer read
        """
        name = current_buyer()
        if name not in BUYERS:
            return
        if point == "acquired":
            self.trace.holders.append(name)
        if point in ("released", "unlocked_before_commit") and name in self.trace.holders:
            self.trace.holders.remove(name)
        if point == "after_read" and facts.get("amount") is not None:
            self.trace.add(point, facts["amount"])
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
        """Return the stock and the orders that another connection sees, and the lock's holders."""
        report = self._observer.submit(sale_report, self.sale_id).result()
        return [report.stock_left, report.orders, "".join(self.trace.holders)]


def simplify_statement(sql: str, params: Any) -> str:
    """Return a statement with its parameters inserted, shortened for the site.

    Left out are the parts that differ from one run to the next (the ids of rows and sales), and
    those that do not matter here (the columns, and the values of an order). A version becomes `as
    read`, an idempotency key `the same`, and a fence `mine`.
    """
    one_line = " ".join(re.sub('["`]', "", sql).split())
    parts = one_line.split("%s")  # the text between the placeholders
    # True and False become 1 and 0, as in SQL.
    values = [repr(int(param)) if isinstance(param, int) else repr(param) for param in params or ()]
    text = "".join(part + value for part, value in zip_longest(parts, values, fillvalue=""))
    text = re.sub(r"^(INSERT INTO \w+) .*", r"\1 ...", text)
    text = re.sub(r"^SELECT .*? FROM (product|purchase_history)", r"SELECT ... FROM \1", text)
    text = re.sub(r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", "", text)
    text = re.sub(r"\b(product|purchase_history|bucket|unit)\.(?=\w)", "", text)
    text = re.sub(r"[( ]*\bAND \(?sale_id (= \d+|IS NOT NULL)\)?", "", text)
    text = re.sub(r"(?<=id = )\d+", "1", text)
    text = re.sub(r"(?<=idempotency_key = )'.*?'", "the same", text)
    text = re.sub(r"WHERE \((.*?)\)?(?= FOR|$)", r"WHERE \1", text)
    text = re.sub(r"(?<=version = )\d+", "as read", text)
    return re.sub(r"\d{9,}", "mine", text)  # a long number is a fence: a time in microseconds


def collect_moves(events: list[list[Any]]) -> Moves:
    """Return the moves of a trace, by the turns that were made up to each move.

    If a turn releases the lock, the other buyer, who waited for the lock, goes on in the same turn.
    The events of this buyer then belong to that turn. If a buyer neither stops nor ends in the turn
    in which it began to move, the event `waits` is added.

    events  the events of a Trace
    """
    moves: Moves = {}
    turns_made = ""
    state: list[Any] = [1, 0, ""]  # one unit, no order, no holder of the lock
    moving_buyers: set[str] = set()  # they have begun a move, and neither stopped nor ended
    released_in: dict[str, str] = {}  # buyer who waited -> the turns made when the lock became free
    for event in events:
        buyer, kind = event[:2]
        facts = event[2:]
        if kind == "begins":
            turns_made += buyer
            moves[turns_made] = {"did": [], "state": state}
            moving_buyers.add(buyer)
            released_in.pop(buyer, None)
            continue
        turn = moves[released_in.get(buyer, turns_made)]
        if kind in ("stops", "ends"):
            state = facts.pop()
            turn["state"] = state
            moving_buyers.discard(buyer)
        if kind == "released":
            released_in |= dict.fromkeys(moving_buyers - {buyer}, turns_made)
        turn["did"].append([buyer, kind] + facts)
    for turns_made, turn in moves.items():
        turn["did"] = _sort_events(turn["did"], mover=turns_made[-1])
    return moves


def _sort_events(turn_events: list[list[Any]], mover: str) -> list[list[Any]]:
    """Return the events of a turn: first those of the mover, then those of the other buyer.

    A buyer's `stops` is the last of its events. If the mover, the buyer whose turn it is, has
    neither stopped nor ended, `waits` is added.
    """

    def rank(event: list[Any]) -> tuple[bool, bool]:
        return event[0] != mover, event[1] == "stops"

    if not any(event[0] == mover and event[1] in ("stops", "ends") for event in turn_events):
        turn_events = turn_events + [[mover, "waits"]]
    return sorted(turn_events, key=rank)


def record_moves(strategy: str, recorded_moves: Moves | None = None) -> Moves:
    """Return the moves of two purchases under a strategy, in every order of the turns.

    The moves after the same first turns must be the same in every order. Otherwise this raises
    AssertionError.

    recorded_moves  the moves in the existing recording: a buyer that stops in a turn of the
                    recording gets more time to stop in this turn
    """
    moves: Moves = {}
    for trace in Recorder(strategy, recorded_moves).record_traces():
        for turns_made, turn in collect_moves(trace.events).items():
            known_turn = moves.setdefault(turns_made, turn)
            assert known_turn == turn, (strategy, turns_made, known_turn, turn)
    return sort_by_length(moves)


def has_three_moves(moves: Moves) -> bool:
    """Return whether A, moving alone, has bought after three moves."""
    return ["A", "ends", "sold"] in moves.get("A" * MOVES_PER_PURCHASE, {"did": []})["did"]
