"""One run as lanes, one per buyer: when it waited, held the lock, committed, was refused.

Small arrays and no objects, because a matrix has thousands of lanes. Times are milliseconds since
the first buyer of the run asked.
"""

from __future__ import annotations

from typing import Any

from loadtest.judge.intervals import Commit, ProductHistory
from loadtest.judge.lock_rules import overlaps
from loadtest.judge.run import Run
from loadtest.judge.stock_rules import stale_writes
from loadtest.report.story import name

#: The state of a commit: nobody knows, it sold, it sold and erased other decrements.
OPEN, SOLD, STALE = 0, 1, 2


def timeline(history: ProductHistory, run: Run) -> dict[str, Any] | None:
    """What the page draws for a run; None if no buyer was recorded.

    lanes     [buyer, node] in the order of their first requests; below, a lane is a place in it
    requests  [lane, sent, answered or None, outcome, order or None]
    holds     [lane, asked or None, start, end, fence or None, what the release found]
    commits   [lane, read or None, committed, stock that was read or None, order or None, OPEN...]
    overlaps  [lane, start, end, the other's lane]: two for every two holds that overlap
    faults    [when, phase, type, what]
    shelf     [when, orders, stock] after each commit
    end       when the last event happened
    """
    return _Lanes(history, run).data() if history.requests else None


class _Lanes:
    def __init__(self, history: ProductHistory, run: Run) -> None:
        self.history = history
        self.run = run
        self.asked = asked = history.requests
        self.zero = asked[0].sent
        self.lane = {a: n for n, a in enumerate(dict.fromkeys(r.attempt for r in asked))}
        self.holds = [hold for hold in history.holds if hold.attempt in self.lane]
        self.sold = {r.attempt: r.order for r in asked if r.type == "ok"}
        self.commits = sorted(self._commits(), key=self._place)
        self.stale = self._stale()

    def data(self) -> dict[str, Any]:
        return {
            "lanes": self._names(),
            "requests": [
                [self.lane[r.attempt], self.ms(r.sent), self.ms(r.answered), r.outcome, r.order]
                for r in self.asked
            ],
            "holds": self._holds(),
            "commits": [self._commit(commit) for commit in self.commits],
            "overlaps": self._overlaps(),
            "faults": [
                [self.ms(e["t"]), e.get("phase", ""), e["type"], e.get("what", "")]
                for e in self.history.events
                if e["by"] == "fault" and e.get("phase") != "arm"
            ],
            "shelf": self._shelf(),
            "end": self._end(),
        }

    def ms(self, t: int | None) -> float | None:
        """Milliseconds since the first buyer asked, to the hundredth."""
        return None if t is None else round((t - self.zero) / 1e6, 2)

    def _names(self) -> list[list[str]]:
        nodes = {
            e["attempt"]: e["node"] for e in self.history.events if "attempt" in e and "node" in e
        }
        return [[name(attempt), nodes.get(attempt, "")] for attempt in self.lane]

    def _holds(self) -> list[list[Any]]:
        return [
            [
                self.lane[hold.attempt],
                self.ms(hold.asked or None),
                self.ms(hold.start),
                self.ms(hold.end),
                hold.fence,
                hold.outcome or ("" if hold.released else "never released"),
            ]
            for hold in self.holds
        ]

    def _overlaps(self) -> list[list[Any]]:
        marks = []
        for one, other in overlaps(self.holds):
            together = [self.ms(other.start), self.ms(min(one.end, other.end))]
            marks.append([self.lane[one.attempt], *together, self.lane[other.attempt]])
            marks.append([self.lane[other.attempt], *together, self.lane[one.attempt]])
        return marks

    # --- sales ----------------------------------------------------------------------------------

    def _commits(self) -> list[Commit]:
        """The last commit of each attempt; those before it failed. Where no commit was recorded,
        the answer to a buyer who bought takes its place."""
        last = {c.attempt: c for c in self.history.commits if c.attempt in self.lane}
        for request in self.asked:
            if request.type == "ok" and request.attempt not in last:
                assert request.answered is not None
                last[request.attempt] = Commit(request.attempt, request.answered)
        return list(last.values())

    def _happened(self, commit: Commit) -> bool:
        return commit.done is not None or commit.attempt in self.sold

    def _number(self, commit: Commit) -> int | None:
        return self.sold.get(commit.attempt) or commit.order

    def _place(self, commit: Commit) -> tuple[int, int]:
        """Orders are numbered in the order of their commits: see Record.committed."""
        return self._number(commit) or 0, commit.begun

    def _stale(self) -> set[str]:
        """The attempts whose commits erased decrements; none where no update was lost."""
        there = [c for c in self.commits if self._happened(c)]
        if (self.run.get("lost_updates") or 0) <= 0 or any(c.amount is None for c in there):
            return set()
        seen = [commit.amount for commit in there if commit.amount is not None]
        return {there[n].attempt for n, _ in stale_writes(self.run["initial_stock"], seen)}

    def _commit(self, commit: Commit) -> list[Any]:
        state = STALE if commit.attempt in self.stale else SOLD
        return [
            self.lane[commit.attempt],
            self.ms(commit.read_at),
            self.ms(commit.done or commit.begun),
            commit.amount,
            self._number(commit),
            state if self._happened(commit) else OPEN,
        ]

    def _shelf(self) -> list[list[Any]]:
        """Without lost updates every order took one unit. With them each commit left the stock that
        it had read, less one."""
        initial = int(self.run["initial_stock"])
        lost = (self.run.get("lost_updates") or 0) != 0
        shelf: list[list[Any]] = [[0.0, 0, initial]]
        there = [c for c in self.commits if self._happened(c)]
        for orders, commit in enumerate(sorted(there, key=lambda c: c.done or c.begun), 1):
            read_less_one = commit.amount - 1 if commit.amount is not None else initial - orders
            left = read_less_one if lost else initial - orders
            shelf.append([self.ms(commit.done or commit.begun), orders, left])
        orders, left_at_end = self.run["orders"], self.run["stock_left"]
        shelf.append(
            [self._end(), orders, initial - orders if left_at_end is None else left_at_end]
        )
        return shelf

    def _end(self) -> float | None:
        return self.ms(max(event["t"] for event in self.history.events if event["by"] != "fault"))
