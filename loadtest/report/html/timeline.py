"""One run as lanes, one per buyer: when it waited, held the lock, committed, was refused.

Small arrays and no objects, because a matrix has thousands of lanes. Times are milliseconds since
the first buyer of the run asked.
"""

from typing import Any

from loadtest.judge.intervals import ProductHistory
from loadtest.judge.lock_rules import overlaps
from loadtest.judge.run import Run
from loadtest.judge.stock_rules import stale_writes
from loadtest.report.story import last_commits, name

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
        #: Orders are numbered in the order of their commits: see Record.committed.
        self.commits = sorted(
            (one for one in last_commits(history).values() if one.attempt in self.lane),
            key=lambda commit: (commit.order or 0, commit.begun),
        )
        self.happened = [commit for commit in self.commits if commit.done is not None]
        self.end = self.ms(max(event["t"] for event in history.events if event["by"] != "fault"))

    def data(self) -> dict[str, Any]:
        events, stale = self.history.events, self._stale()
        nodes = {e["attempt"]: e["node"] for e in events if "attempt" in e and "node" in e}
        return {
            "lanes": [[name(attempt), nodes.get(attempt, "")] for attempt in self.lane],
            "requests": [
                [self.lane[r.attempt], self.ms(r.sent), self.ms(r.answered), r.outcome, r.order]
                for r in self.asked
            ],
            "holds": [
                [
                    self.lane[hold.attempt],
                    self.ms(hold.asked or None),
                    self.ms(hold.start),
                    self.ms(hold.end),
                    hold.fence,
                    hold.outcome or ("" if hold.released else "never released"),
                ]
                for hold in self.holds
            ],
            "commits": [
                [
                    self.lane[commit.attempt],
                    self.ms(commit.read_at),
                    self.ms(commit.done or commit.begun),
                    commit.amount,
                    commit.order,
                    OPEN if commit.done is None else STALE if commit.attempt in stale else SOLD,
                ]
                for commit in self.commits
            ],
            "overlaps": self._overlaps(),
            "faults": [
                [self.ms(e["t"]), e.get("phase", ""), e["type"], e.get("what", "")]
                for e in events
                if e["by"] == "fault" and e.get("phase") != "arm"
            ],
            "shelf": self._shelf(),
            "end": self.end,
        }

    def ms(self, t: int | None) -> float | None:
        """Milliseconds since the first buyer asked, to the hundredth."""
        return None if t is None else round((t - self.zero) / 1e6, 2)

    def _overlaps(self) -> list[list[Any]]:
        marks = []
        for one, other in overlaps(self.holds):
            together = [self.ms(other.start), self.ms(min(one.end, other.end))]
            lanes = self.lane[one.attempt], self.lane[other.attempt]
            marks += [[lanes[0], *together, lanes[1]], [lanes[1], *together, lanes[0]]]
        return marks

    def _stale(self) -> set[str]:
        """The attempts whose commits erased decrements; none where no update was lost."""
        seen = [commit.amount for commit in self.happened if commit.amount is not None]
        if (self.run.get("lost_updates") or 0) <= 0 or len(seen) < len(self.happened):
            return set()
        return {self.happened[n].attempt for n, _ in stale_writes(self.run["initial_stock"], seen)}

    def _shelf(self) -> list[list[Any]]:
        """Without lost updates every order took one unit. With them each commit left the stock that
        it had read, less one."""
        initial, left_at_end = self.run["initial_stock"], self.run["stock_left"]
        lost = self.run.get("lost_updates")
        shelf: list[list[Any]] = [[0.0, 0, initial]]
        for orders, commit in enumerate(sorted(self.happened, key=lambda c: c.done or 0), 1):
            left = commit.amount - 1 if lost and commit.amount is not None else initial - orders
            shelf.append([self.ms(commit.done), orders, left])
        orders = self.run["orders"]
        shelf.append([self.end, orders, initial - orders if left_at_end is None else left_at_end])
        return shelf
