"""One table of all scenarios: a row per figure, a column per lock, and RedisLock as a ratio."""

from __future__ import annotations

from typing import Any

from .contenders import AWAITED, UNCONTENDED

COLUMNS = [*UNCONTENDED, *AWAITED]

#: scenario prefix -> (measure, what it is called, format)
ROWS = {
    "uncontended": [
        ("pairs_per_s", "pairs/s", "{:.0f}"),
        ("ratio", "RedisLock / this", "{:.2f}"),
        ("sent_per_pair", "commands per pair", "{:.2f}"),
    ],
    "drain": [
        ("seconds", "seconds", "{:.3f}"),
        ("ratio", "RedisLock / this", "{:.2f}"),
        ("efficiency", "efficiency", "{:.2f}"),
        ("hand_over_us", "hand-over, us", "{:.0f}"),
        ("sent_per_acquisition", "commands per acquisition", "{:.1f}"),
        ("overtakes_max", "overtakes, most", "{:.0f}"),
    ],
    "crowd": [
        ("bytes_per_waiter", "bytes per waiter", "{:.0f}"),
        ("cpu_percent_while_waiting", "% CPU while waiting", "{:.2f}"),
        ("drained_per_s", "drained per second", "{:.0f}"),
        ("out_of_order", "out of order", "{:.0f}"),
    ],
    "cluster": [
        ("single_uncontended", "single, uncontended: commands", "{:.2f}"),
        ("cluster_uncontended", "cluster, uncontended: commands", "{:.2f}"),
        ("single_contended", "single, contended: commands", "{:.2f}"),
        ("cluster_contended", "cluster, contended: commands", "{:.2f}"),
    ],
    "commands": [("sent_per_acquisition", "commands per acquisition", "{:.2f}")],
    "32": [
        ("acquisitions_per_s", "acquisitions/s", "{:.0f}"),
        ("longest_wait_ms", "longest wait, ms", "{:.0f}"),
        ("overtakes_max", "overtakes, most", "{:.0f}"),
        ("fewest_by_a_thread", "fewest by one thread", "{:.0f}"),
        ("sent_per_acquisition", "commands per acquisition", "{:.1f}"),
    ],
    "holder": [("late_ms", "next holder after ttl, ms", "{:.0f}")],
    "head": [("delay_ms", "second waiter after release, ms", "{:.1f}")],
}


def table(report: dict[str, Any]) -> str:
    """The report of a run as text."""
    lines = [["", *COLUMNS]]
    for scenario, figures in report.items():
        lines.append([scenario])
        for measure, title, form in ROWS[scenario.split()[0]]:
            cells = [
                form.format(figures[lock][measure]) if lock in figures else "" for lock in COLUMNS
            ]
            lines.append([f"  {title}", *cells])
    widths = [34, *(max(len(name), 9) + 2 for name in COLUMNS)]
    return "\n".join(
        "".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        for line in lines
    )
