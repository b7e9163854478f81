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
from tools.site.recording import MOVES

PRODUCT, BUYERS = "apple", ("A", "B")
#: Seconds for a buyer who is let go on to come to its next stop.
SOON = 0.15
#: A person may look at a move for as long as they like, and so may a busy machine.
PATIENCE = (
    "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; SET statement_timeout = 0"
)
#: Points of a purchase that become a line of their own.
SHOWN = ("acquired", "after_read", "released", "unlocked_before_commit", "reserved")


def here() -> str:
    """The buyer whose thread this is: testing names it interleaved-A or -B."""
    return threading.current_thread().name.removeprefix("interleaved-")


@dataclass(slots=True)
class Trace:
    """One order as it happened: a list of turns, each of its events.

    An event is [buyer, what, facts..., state]: `begins` a move, `sends` a statement, comes to a
    point of SHOWN, or `ends` with an outcome. State is what everybody can see after it: stock
    left, orders, and whose lock it is.
    """

    events: list[list[Any]] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)

    def add(self, what: str, *facts: object) -> None:
        """An event of the buyer whose thread this is."""
        self.events.append([here(), what, *facts])

    def is_let_go(self, buyer: str) -> bool:
        """Whether it waited for a lock that is free, or its own, by now and has not stopped."""
        last = [what for who, what, *_ in list(self.events) if who == buyer]
        free = self.holders in ([], [buyer])
        given_back = any(what == "released" and who != buyer for who, what, *_ in self.events)
        return free and given_back and bool(last) and last[-1] not in ("stops", "ends")


class Recorder:
    """Runs the orders of one strategy."""

    def __init__(self, lock: str) -> None:
        self.lock = lock
        self.trace = Trace()
        self.sale = 0
        self._looker = ThreadPoolExecutor(1)

    def traces(self) -> list[Trace]:
        """Each order that testing's driver finds worth a run."""
        found: list[Trace] = []

        def before() -> None:
            self.sale = restock(product=PRODUCT, amount=1, lock=self.lock).pk
            self.trace = Trace()
            found.append(self.trace)

        restock(product=PRODUCT, amount=1, lock=self.lock)
        check_out(Attempt(PRODUCT, "first", self.lock))  # what a process asks once, it has asked
        with installed(self._at_point):
            interleave(self._buy, self._buy, before=before, at=())
        self._looker.submit(connections.close_all).result()
        self._looker.shutdown()
        return found

    def _buy(self) -> None:
        connection.ensure_connection()  # later it would look like a wait
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(PATIENCE)
        self._move()
        self._record_statements()
        try:
            receipt = check_out(self._attempt())
            outcome = "replayed" if receipt.replayed else "sold"
        except ShopError as error:
            outcome = error.outcome
        self.trace.add("ends", outcome, self._look())

    def _attempt(self) -> Attempt:
        return Attempt(PRODUCT, here(), self.lock)

    def _move(self) -> None:
        """End of a move: what can be seen now. Then it stops, until its next turn."""
        name = here()
        if [name, "begins"] in self.trace.events:
            self._let_the_other_come("B" if name == "A" else "A")
            self.trace.add("stops", self._look())
        step("move")
        self.trace.add("begins")

    def _let_the_other_come(self, other: str) -> None:
        """Where the lock is free before its holder's move ends, its next holder comes first."""
        until = time.monotonic() + SOON
        while self.trace.is_let_go(other) and time.monotonic() < until:
            time.sleep(0.002)

    def _at_point(self, place: str, facts: Mapping[str, object]) -> None:
        name = here()
        if name not in BUYERS:
            return
        if place == "acquired":
            self.trace.holders.append(name)
        if place in ("released", "unlocked_before_commit") and name in self.trace.holders:
            self.trace.holders.remove(name)
        if place in SHOWN:
            amount = facts.get("amount") if place == "after_read" else None
            self.trace.add(place, *([] if amount is None else [amount]))
        if place == "after_read":
            self._move()

    def _sends(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)", sql):
            self.trace.add("sends", plain(sql, params))
        return execute(sql, params, many, context)

    def _record_statements(self) -> None:
        """Of this thread's connection, which ends with it; and its COMMIT is a move."""
        wrapper = connections["default"]
        commit, rollback = wrapper.commit, wrapper.rollback

        def stopping() -> None:
            self._move()
            self.trace.add("sends", "COMMIT")
            commit()

        def undoing() -> None:
            self.trace.add("sends", "ROLLBACK")
            rollback()

        vars(wrapper).update(commit=stopping, rollback=undoing)
        wrapper.execute_wrappers.append(self._sends)

    def _look(self) -> list[Any]:
        """[stock left, orders, whose lock it is] as a third one sees it."""
        report = self._looker.submit(sale_report, self.sale).result()
        return [report.stock_left, report.orders, "".join(self.trace.holders)]


def plain(sql: str, params: Any) -> str:
    """A statement with its values in it, and without what differs from one run to the next or says
    nothing here: columns, numbers of rows and sales, the order's values."""
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


def turns(events: list[list[Any]]) -> dict[str, dict[str, Any]]:
    """A dict: who moved, in order -> what the last move `did`, and the state that it left.

    What a buyer does who had waited belongs to the turn that let it go on, after what the mover
    did: at the end of a turn both run. A buyer whose turn has neither stop nor end `waits`.
    """
    found: dict[str, dict[str, Any]] = {}
    so_far, state = "", [1, 0, ""]
    waiting, let_go = set(), dict[str, str]()  # buyers, and the turns that let them go on
    for buyer, what, *facts in events:
        if what == "begins":
            so_far += buyer
            found[so_far] = {"did": [], "state": state}
            waiting.add(buyer)
            let_go.pop(buyer, None)
            continue
        turn = found[let_go.get(buyer, so_far)]
        if what in ("stops", "ends"):
            turn["state"] = state = facts.pop()
            waiting.discard(buyer)
        if what == "released":
            let_go |= dict.fromkeys(waiting - {buyer}, so_far)
        turn["did"].append([buyer, what, *facts])
    for so_far, turn in found.items():
        mover = so_far[-1]
        if not any(e[0] == mover and e[1] in ("stops", "ends") for e in turn["did"]):
            turn["did"].append([mover, "waits"])
        turn["did"].sort(key=lambda event: (event[0] != mover, event[1] == "stops"))
    return found


def record(lock: str) -> dict[str, dict[str, Any]]:
    """Every move of every order: who has moved so far -> what the last move did.

    Raises AssertionError where two orders that begin alike differ in what they share.
    """
    found: dict[str, dict[str, Any]] = {}
    for trace in Recorder(lock).traces():
        for so_far, did in turns(trace.events).items():
            assert found.setdefault(so_far, did) == did, (lock, so_far, found[so_far], did)
    return dict(sorted(found.items(), key=lambda one: (len(one[0]), one[0])))


def has_three_moves(moves: dict[str, dict[str, Any]]) -> bool:
    """Whether a single buyer reads, writes and commits."""
    return ["A", "ends", "sold"] in moves.get("A" * MOVES, {"did": []})["did"]
