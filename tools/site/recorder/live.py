"""Two buyers and one unit in every order of their moves: each move of the real shop, written down.

A purchase is three moves: it reads; it writes, and records its order; it commits. With a lock the
read waits for the lock, and the commit releases it.
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
from shop.sale.points import installed
from shop.sale.purchase import Attempt
from shop.sale.reports import sale_report
from testing import interleave, step
from testing.actor import Actor
from testing.driver import Driver
from tools.site.worlds import BUYERS, MOVES, OTHER_BUYER, Moves, by_length, stops_in

PRODUCT = "apple"
#: Time for a buyer who is let go on to come to its next stop.
NEXT_STOP_SECONDS = 0.15
#: A buyer that stopped in the recording is waited for as long as this: the machine may be busy.
EXPECTED_STOP_TIMEOUT_SECONDS = 30.0
#: A person may look at a move for as long as they like, and so may a busy machine.
UNLIMITED_TIMEOUTS_SQL = (
    "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; SET statement_timeout = 0"
)
#: Points of a purchase that become a line.
SHOWN_POINTS = ("acquired", "after_read", "released", "unlocked_before_commit", "reserved")


def current_buyer() -> str:
    """Return the buyer whose thread this is: testing names it interleaved-A or -B."""
    return threading.current_thread().name.removeprefix("interleaved-")


@dataclass(slots=True)
class Trace:
    """One order as it happened: a list of turns, each of its events.

    An event is [buyer, kind, facts..., state]: `begins` a move, `sends` a statement, comes to a
    point of SHOWN_POINTS, or `ends` with an outcome. State is what everybody can see after it:
    stock left, orders, and whose lock it is.
    """

    events: list[list[Any]] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)

    def add(self, kind: str, *facts: object) -> None:
        """Add an event of the buyer whose thread this is."""
        self.events.append([current_buyer(), kind] + list(facts))

    def turns_made(self) -> str:
        """Return the turns so far."""
        return "".join(event[0] for event in list(self.events) if event[1] == "begins")

    def is_let_go(self, buyer: str) -> bool:
        """Return whether a buyer who waited for the lock can go on, and has not stopped again."""
        events = list(self.events)  # another thread may add to them
        kinds = [event[1] for event in events if event[0] == buyer]
        is_free = self.holders in ([], [buyer])
        is_released = any(event[1] == "released" and event[0] != buyer for event in events)
        return is_free and is_released and bool(kinds) and kinds[-1] not in ("stops", "ends")


class ReplayDriver(Driver):
    """A driver that waits for a buyer that stopped in the recording.

    recorded_moves  what each turn did before, if that is known
    """

    def __init__(self, recorded_moves: Moves, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._recorded_moves = recorded_moves

    def settle(self, actor: Actor, blocked_after: float) -> bool:
        if stops_in(self._recorded_moves, self.schedule, actor.name):
            blocked_after = EXPECTED_STOP_TIMEOUT_SECONDS
        return super().settle(actor, blocked_after)


class Recorder:
    """Runs the orders of one strategy.

    recorded_moves  what each turn did before, if that is known
    """

    def __init__(self, lock: str, recorded_moves: Moves | None = None) -> None:
        self.lock = lock
        self.recorded_moves = recorded_moves or {}
        self.trace = Trace()
        self.sale = 0
        self._observer = ThreadPoolExecutor(1)

    def traces(self) -> list[Trace]:
        """Return a trace of each order that testing's driver finds worth a run."""
        traces: list[Trace] = []

        def before() -> None:
            self.sale = restock(product=PRODUCT, amount=1, lock=self.lock).pk
            self.trace = Trace()
            traces.append(self.trace)

        restock(product=PRODUCT, amount=1, lock=self.lock)
        check_out(Attempt(PRODUCT, "first", self.lock))  # what a process asks once, it has asked
        with installed(self._at_point):
            driver = partial(ReplayDriver, self.recorded_moves)
            interleave(self._buy, self._buy, before=before, at=(), driver=driver)
        self._observer.submit(connections.close_all).result()
        self._observer.shutdown()
        return traces

    def _buy(self) -> None:
        connection.ensure_connection()  # later it would look like a wait
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(UNLIMITED_TIMEOUTS_SQL)
        self._move()
        self._record_statements()
        try:
            receipt = check_out(self._attempt())
            outcome = "replayed" if receipt.replayed else "sold"
        except ShopError as error:
            outcome = error.outcome
        self.trace.add("ends", outcome, self._observe_state())

    def _attempt(self) -> Attempt:
        return Attempt(PRODUCT, current_buyer(), self.lock)

    def _move(self) -> None:
        """End a move with the state that can be seen now, and stop until the next turn."""
        name = current_buyer()
        if [name, "begins"] in self.trace.events:
            self._wait_for_next_holder(OTHER_BUYER[name])
            self.trace.add("stops", self._observe_state())
        step("move")
        self.trace.add("begins")

    def _wait_for_next_holder(self, buyer: str) -> None:
        """Wait for a buyer that the other, whose move has not ended, has given the lock to."""
        until = time.monotonic() + NEXT_STOP_SECONDS
        if stops_in(self.recorded_moves, self.trace.turns_made(), buyer):
            until = time.monotonic() + EXPECTED_STOP_TIMEOUT_SECONDS
        while self.trace.is_let_go(buyer) and time.monotonic() < until:
            time.sleep(0.002)

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        name = current_buyer()
        if name not in BUYERS:
            return
        if place == "acquired":
            self.trace.holders.append(name)
        if place in ("released", "unlocked_before_commit") and name in self.trace.holders:
            self.trace.holders.remove(name)
        if place == "after_read" and facts.get("amount") is not None:
            self.trace.add(place, facts["amount"])
        elif place in SHOWN_POINTS:
            self.trace.add(place)
        if place == "after_read":
            self._move()

    def _sends(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)", sql):
            self.trace.add("sends", plain(sql, params))
        return execute(sql, params, many, context)

    def _record_statements(self) -> None:
        """Record the statements of this thread's connection. Its COMMIT begins a move."""
        wrapper = connections["default"]
        commit = wrapper.commit
        rollback = wrapper.rollback

        def stopping() -> None:
            self._move()
            self.trace.add("sends", "COMMIT")
            commit()

        def undoing() -> None:
            self.trace.add("sends", "ROLLBACK")
            rollback()

        vars(wrapper).update(commit=stopping, rollback=undoing)
        wrapper.execute_wrappers.append(self._sends)

    def _observe_state(self) -> list[Any]:
        """Return [stock left, orders, whose lock it is], as another connection sees it."""
        report = self._observer.submit(sale_report, self.sale).result()
        return [report.stock_left, report.orders, "".join(self.trace.holders)]


def plain(sql: str, params: Any) -> str:
    """Return a statement with its values in it.

    It lacks what differs from one run to the next or says nothing here: columns, numbers of rows
    and sales, the order's values.
    """
    parts = " ".join(re.sub('["`]', "", sql).split()).split("%s")
    values = [repr(int(v)) if isinstance(v, int) else repr(v) for v in params or ()]
    text = "".join(a + b for a, b in zip_longest(parts, values, fillvalue=""))
    text = re.sub(r"^(INSERT INTO \w+) .*", r"\1 ...", text)
    text = re.sub(r"^SELECT .*? FROM (product|purchase_history)", r"SELECT ... FROM \1", text)
    text = re.sub(r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", "", text)
    text = re.sub(r"\b(product|purchase_history|bucket|unit)\.(?=\w)", "", text)
    text = re.sub(r"[( ]*\bAND \(?sale_id (= \d+|IS NOT NULL)\)?", "", text)
    text = re.sub(r"(?<=id = )\d+", "1", text)
    text = re.sub(r"(?<=idempotency_key = )'.*?'", "the same", text)
    text = re.sub(r"WHERE \((.*?)\)?(?= FOR|$)", r"WHERE \1", text)
    text = re.sub(r"(?<=version = )\d+", "as read", text)
    return re.sub(r"\d{9,}", "mine", text)


def turns(events: list[list[Any]]) -> Moves:
    """Return the moves of an order, by the turns that were made.

    What a buyer does who had waited belongs to the turn that let it go on, after what the mover
    did: at the end of a turn both run. A buyer whose turn has neither stop nor end `waits`.
    """
    moves: Moves = {}
    turns_made = ""
    state: list[Any] = [1, 0, ""]
    waiting_buyers: set[str] = set()
    let_go_by: dict[str, str] = {}  # the turn that let a buyer who waited go on
    for event in events:
        buyer, kind = event[:2]
        facts = event[2:]
        if kind == "begins":
            turns_made += buyer
            moves[turns_made] = {"did": [], "state": state}
            waiting_buyers.add(buyer)
            let_go_by.pop(buyer, None)
            continue
        turn = moves[let_go_by.get(buyer, turns_made)]
        if kind in ("stops", "ends"):
            state = facts.pop()
            turn["state"] = state
            waiting_buyers.discard(buyer)
        if kind == "released":
            let_go_by |= dict.fromkeys(waiting_buyers - {buyer}, turns_made)
        turn["did"].append([buyer, kind] + facts)
    for turns_made, turn in moves.items():
        turn["did"] = _in_order(turn["did"], mover=turns_made[-1])
    return moves


def _in_order(did: list[list[Any]], mover: str) -> list[list[Any]]:
    """Return the events of a turn, those of the mover first and the stops of each buyer last.

    A mover that has neither stopped nor ended waits.
    """

    def place(event: list[Any]) -> tuple[bool, bool]:
        return event[0] != mover, event[1] == "stops"

    if not any(event[0] == mover and event[1] in ("stops", "ends") for event in did):
        did = did + [[mover, "waits"]]
    return sorted(did, key=place)


def record(lock: str, recorded_moves: Moves | None = None) -> Moves:
    """Return every move of every order.

    recorded_moves  what each turn did before: a buyer that stopped is waited for

    Raises AssertionError where two orders that begin alike differ in what they share.
    """
    moves: Moves = {}
    for trace in Recorder(lock, recorded_moves).traces():
        for turns_made, turn in turns(trace.events).items():
            known_turn = moves.setdefault(turns_made, turn)
            assert known_turn == turn, (lock, turns_made, known_turn, turn)
    return by_length(moves)


def has_three_moves(moves: Moves) -> bool:
    """Return whether a single buyer reads, writes and commits."""
    return ["A", "ends", "sold"] in moves.get("A" * MOVES, {"did": []})["did"]
