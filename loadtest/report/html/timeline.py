"""One run as lanes, one per buyer: when it waited, held the lock, committed, was refused.

Small arrays and no objects, because a matrix has thousands of lanes. Times are milliseconds since
the first buyer of the run asked.
"""

from collections.abc import Sequence
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
    asked, events = history.requests, history.events
    if not asked:
        return None

    def ms(t: int | None) -> float | None:
        """Milliseconds since the first buyer asked, to the hundredth."""
        return None if t is None else round((t - asked[0].sent) / 1e6, 2)

    lane = {attempt: n for n, attempt in enumerate(history.requests_of)}

    def row(attempt: str, times: Sequence[int | None], *said: object) -> list[object]:
        """The lane of an attempt, times in it, and what else is known of them."""
        return [lane[attempt], *map(ms, times), *said]

    nodes = {e["attempt"]: e["node"] for e in events if "attempt" in e and "node" in e}
    holds = [hold for hold in history.holds if hold.attempt in lane]
    # Orders are numbered in the order of their commits: see Record.committed.
    commits = sorted(
        (one for one in last_commits(history).values() if one.attempt in lane),
        key=lambda commit: (commit.order or 0, commit.begun),
    )
    happened = [commit for commit in commits if commit.done is not None]
    initial, orders, left = run["initial_stock"], run["orders"], run["stock_left"]
    lost, seen = run.get("lost_updates") or 0, [commit.amount for commit in happened]
    known = [amount for amount in seen if amount is not None]
    writes = stale_writes(initial, known) if lost > 0 and known == seen else ()
    state = {one.attempt: OPEN if one.done is None else SOLD for one in commits}
    state |= {happened[place].attempt: STALE for place, _ in writes}
    # Without lost updates every order took one unit. With them each commit left the stock that it
    # had read, less one.
    shelf = [
        [ms(c.done), n, c.amount - 1 if lost and c.amount is not None else initial - n]
        for n, c in enumerate(sorted(happened, key=lambda commit: commit.done or 0), 1)
    ]
    end = max(event["t"] for event in events if event["by"] != "fault")
    return {
        "lanes": [[name(attempt), nodes.get(attempt, "")] for attempt in lane],
        "requests": [row(r.attempt, (r.sent, r.answered), r.outcome, r.order) for r in asked],
        "holds": [
            row(h.attempt, (h.asked or None, h.start, h.end), h.fence, release)
            for h in holds
            for release in [h.outcome if h.released else "never released"]
        ],
        "commits": [
            row(c.attempt, (c.read_at, c.done or c.begun), c.amount, c.order, state[c.attempt])
            for c in commits
        ],
        "overlaps": [
            row(this.attempt, (late.start, min(early.end, late.end)), lane[that.attempt])
            for early, late in overlaps(holds)
            for this, that in ((early, late), (late, early))
        ],
        "faults": [
            [ms(e["t"]), e.get("phase", ""), e["type"], e.get("what", "")]
            for e in events
            if e["by"] == "fault" and e.get("phase") != "arm"
        ],
        "shelf": [
            [0.0, 0, initial],
            *shelf,
            [ms(end), orders, initial - orders if left is None else left],
        ],
        "end": ms(end),
    }
