"""The timeline of one run, as tables for the script of report.html.

The timeline has a horizontal lane for each buyer, with the buyer's requests, the times in which it
held the lock, and its commits. Rows are arrays instead of objects, because a matrix has thousands
of lanes. Times are milliseconds since the first request of the run.
"""

from collections.abc import Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeAlias

from loadtest.judge.intervals import Commit, ProductHistory
from loadtest.judge.lock_rules import find_overlaps
from loadtest.judge.run import Run
from loadtest.judge.stock_rules import find_stale_writes
from loadtest.report.story import find_last_commits, get_buyer_name

Row: TypeAlias = list[object]


class CommitState(IntEnum):
    """The effect of a commit, which decides how the page draws it."""

    #: No event shows whether the commit happened.
    UNKNOWN = 0
    #: The commit sold a unit, and erased no decrement of another order.
    SOLD = 1
    #: The commit sold a unit, and erased the decrements of other orders.
    STALE = 2


def make_timeline(history: ProductHistory, run: Run) -> dict[str, Any] | None:
    """Return the tables that the page draws for a run; None if no buyer was recorded.

    A hold is the time from the acquisition of the lock to its release. `asked` is the time at which
    the buyer began to wait for the lock.

    lanes     [buyer, node], in the order of the first requests; `lane` below is an index into it
    requests  [lane, sent, answered or None, outcome, order or None]
    holds     [lane, asked or None, start, end, fence or None, outcome of the release]
    commits   [lane, read or None, committed, stock that was read or None, order or None,
              CommitState]; if the state is UNKNOWN, the time at which the commit began
    overlaps  [lane, start, end, other lane]: two rows for each pair of holds that overlap
    faults    [time, phase, type, what]: the fields of each event of a fault (docs/history.md)
    shelf     [time, orders, stock] at the start, after each commit, and at the end: the points of
              the two curves below the lanes
    end       the time of the last event that is not of a fault
    """
    if not history.requests:
        return None
    return Timeline(history, run).make_tables()


class Timeline:
    """The tables of one run. Times are nanoseconds; to_milliseconds() converts them for the rows.

    start             the time of the first request
    end               the time of the last event that is not of a fault
    lane_numbers      the number of each attempt's lane; an attempt is one purchase of a buyer
    commits           the last commit of each lane, in the order in which they happened
    finished_commits  the commits that certainly happened
    """

    def __init__(self, history: ProductHistory, run: Run) -> None:
        self.history = history
        self.run = run
        self.start = history.requests[0].sent_at
        self.lane_numbers = {attempt: lane for lane, attempt in enumerate(history.requests_by_key)}
        # An attempt without a recorded request has no lane.
        self.holds = [hold for hold in history.holds if hold.attempt in self.lane_numbers]
        self.commits = self._sort_last_commits()
        self.finished_commits = [commit for commit in self.commits if commit.done_at is not None]
        self.end = max(event["t"] for event in history.events if event["by"] != "fault")

    def make_tables(self) -> dict[str, Any]:
        """Return the tables that make_timeline() describes."""
        return {
            "lanes": self.make_lanes_table(),
            "requests": self.make_requests_table(),
            "holds": self.make_holds_table(),
            "commits": self.make_commits_table(),
            "overlaps": self.make_overlaps_table(),
            "faults": self.make_faults_table(),
            "shelf": self.make_stock_table(),
            "end": self.to_milliseconds(self.end),
        }

    def to_milliseconds(self, time_ns: int | None) -> float | None:
        """Return the milliseconds since the first request, rounded to two decimals."""
        if time_ns is None:
            return None
        return round((time_ns - self.start) / 1e6, 2)

    def make_row(self, attempt: str, times: Sequence[int | None], *values: object) -> Row:
        """Return a row with the lane of an attempt, the times in milliseconds, and the values."""
        row: Row = [self.lane_numbers[attempt]]
        row += [self.to_milliseconds(time_ns) for time_ns in times]
        row += values
        return row

    def make_lanes_table(self) -> list[Row]:
        """Return [buyer, node] for each lane."""
        nodes = {
            event["attempt"]: event["node"]
            for event in self.history.events
            if "attempt" in event and "node" in event
        }
        return [[get_buyer_name(attempt), nodes.get(attempt, "")] for attempt in self.lane_numbers]

    def make_requests_table(self) -> list[Row]:
        """Return [lane, sent, answered, outcome, order] for each request.

        `lane` is the number of the buyer's lane on the page.
        """
        rows = []
        for request in self.history.requests:
            times = (request.sent_at, request.answered_at)
            rows.append(self.make_row(request.attempt, times, request.outcome, request.order))
        return rows

    def make_holds_table(self) -> list[Row]:
        """Return [lane, asked, start, end, fence, outcome of the release] for each hold.

        `lane` is the number of the buyer's lane on the page; `asked` is the time at which the buyer
        began to acquire the lock.
        """
        rows = []
        for hold in self.holds:
            # requested_at is 0 if no node recorded when the buyer requested the lock.
            times = (hold.requested_at or None, hold.start, hold.end)
            release = hold.release_outcome if hold.is_released else "never released"
            rows.append(self.make_row(hold.attempt, times, hold.fence, release))
        return rows

    def make_commits_table(self) -> list[Row]:
        """Return [lane, read, committed, stock that was read, order, state] for each commit.

        `lane` is the number of the buyer's lane on the page, and `state` is a CommitState. If it is
        unknown whether the commit happened, `committed` is the time at which it began.
        """
        states = self._find_states_by_attempt()
        rows = []
        for commit in self.commits:
            times = (commit.read_at, commit.done_at or commit.begun_at)
            state = states[commit.attempt]
            rows.append(
                self.make_row(commit.attempt, times, commit.stock_seen, commit.order, state)
            )
        return rows

    def make_overlaps_table(self) -> list[Row]:
        """Return [lane, start, end, other lane] for each overlap of two holds, once per lane."""
        rows = []
        for earlier, later in find_overlaps(self.holds):
            times = (later.start, min(earlier.end, later.end))
            rows.append(self.make_row(earlier.attempt, times, self.lane_numbers[later.attempt]))
            rows.append(self.make_row(later.attempt, times, self.lane_numbers[earlier.attempt]))
        return rows

    def make_faults_table(self) -> list[Row]:
        """Return [time, phase, type, what] for each event of a fault.

        Events of the phase `arm`, in which a fault is only prepared, are left out.
        """
        rows: list[Row] = []
        for event in self.history.events:
            if event["by"] == "fault" and event.get("phase") != "arm":
                milliseconds = self.to_milliseconds(event["t"])
                phase = event.get("phase", "")
                rows.append([milliseconds, phase, event["type"], event.get("what", "")])
        return rows

    def make_stock_table(self) -> list[Row]:
        """Return [time, orders, stock] at the start, after each commit, and at the end.

        The stock is computed: each commit subtracts one unit. A run with lost updates is an
        exception. There a commit sets the stock to one less than the stock that its buyer had read.
        If it is not known which stock the buyer had read, the commit still subtracts one unit.
        """
        initial_stock = self.run["initial_stock"]
        order_count = self.run["orders"]
        stock_left = self.run["stock_left"]
        rows: list[Row] = [[0.0, 0, initial_stock]]
        commits_by_time = sorted(self.finished_commits, key=attrgetter("done_at"))
        for number, commit in enumerate(commits_by_time, 1):
            stock = initial_stock - number
            if self._count_lost_updates() != 0 and commit.stock_seen is not None:
                stock = commit.stock_seen - 1
            rows.append([self.to_milliseconds(commit.done_at), number, stock])
        if stock_left is None:  # the shop does not show its stock
            stock_left = initial_stock - order_count
        rows.append([self.to_milliseconds(self.end), order_count, stock_left])
        return rows

    def _sort_last_commits(self) -> list[Commit]:
        """Return the last commit of each lane, in the order in which they happened.

        This project's shop numbers its orders in the order of the commits, so they are sorted by
        order number. The commits of a third-party shop are sorted by time.
        """
        commits = [
            commit
            for commit in find_last_commits(self.history).values()
            if commit.attempt in self.lane_numbers
        ]
        is_own_shop = "target" not in self.run  # a third-party shop is called a target

        def sort_key(commit: Commit) -> tuple[int, int]:
            if is_own_shop and isinstance(commit.order, int):
                return commit.order, commit.begun_at
            return 0, commit.begun_at

        return sorted(commits, key=sort_key)

    def _find_states_by_attempt(self) -> dict[str, CommitState]:
        """Return the state of each attempt's commit.

        A commit is stale if it erased the decrements of other orders. Stale commits can be found
        only if it is known for every finished commit which stock the buyer had read. Otherwise
        their state is SOLD.
        """
        states = {
            commit.attempt: CommitState.UNKNOWN if commit.done_at is None else CommitState.SOLD
            for commit in self.commits
        }
        stocks_seen = [commit.stock_seen for commit in self.finished_commits]
        known_stocks = [stock for stock in stocks_seen if stock is not None]
        if self._count_lost_updates() > 0 and len(known_stocks) == len(stocks_seen):
            for index, _ in find_stale_writes(self.run["initial_stock"], known_stocks):
                states[self.finished_commits[index].attempt] = CommitState.STALE
        return states

    def _count_lost_updates(self) -> int:
        """Return the number of lost updates; 0 if the shop does not show its stock."""
        return self.run.get("lost_updates") or 0
