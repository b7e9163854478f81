"""A tab of Locust's web UI: the verdict of every rush so far, and the same as CSV.

Through Locust's own extension points, as in its examples/extend_web_ui.py: what its page is
rendered with (tabs, tables, files), and what its page asks for every other second.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import flask

from loadtest.judge.run import NO_ANSWER, no_answer

KEY = "verdicts"
TITLE = "Verdicts"
FILE = "/verdicts/csv"
#: Key of a run -> title of its column. An outcome is a key of `outcomes`.
COLUMNS = {
    "number": "#",
    "lock": "Lock",
    "verdict": "Verdict",
    "buyers": "Buyers",
    "initial_stock": "Stock",
    "hold_ms": "Payment (ms)",
    "orders": "Orders",
    "stock_left": "Stock left",
    "oversold": "Oversold",
    "undersold": "Undersold",
    "lost_updates": "Lost updates",
    "no_answer": "No answer",
    "duration_s": "Seconds",
    "p50": "p50 (ms)",
    "p95": "p95 (ms)",
}


def row(run: dict[str, Any]) -> dict[str, Any]:
    """One run, as in `summary.json`, as a line of the table. A run that failed has only a verdict;
    empty cells, not missing ones, or the table would not open."""
    stopped = run.get("stopped") and run["verdict"] == "unknown"
    verdict = "STOPPED" if stopped else str(run["verdict"]).upper()
    flat = {**run, **run.get("buy_ms", {}), "verdict": verdict}
    if NO_ANSWER[0] in run:
        flat["no_answer"] = no_answer(run)
    return {key: flat.get(key, "") for key in COLUMNS}


def as_csv(runs: list[dict[str, Any]]) -> str:
    """The table with the keys of `summary.json` as its first line, oldest run first."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row(run) for run in runs)
    return file.getvalue()


def install(ui: Any, runs: list[dict[str, Any]]) -> None:
    """Add the tab to a web UI of Locust. `runs` is read anew whenever somebody looks."""
    structure = [{"key": key, "title": title} for key, title in COLUMNS.items()]
    ui.template_args.update(
        extended_tabs=[{"title": TITLE, "key": KEY}],
        extended_tables=[{"key": KEY, "structure": structure}],
        extended_csv_files=[{"href": f".{FILE}", "title": "Download verdicts CSV"}],
    )

    def download() -> flask.Response:
        name = {"Content-Disposition": "attachment; filename=verdicts.csv"}
        return flask.Response(as_csv(runs), mimetype="text/csv", headers=name)

    def with_the_table(response: flask.Response) -> flask.Response:
        if flask.request.path == "/stats/requests" and response.is_json:
            newest_first = [row(run) for run in reversed(runs)]
            page = {**response.get_json(), "extended_stats": [{"key": KEY, "data": newest_first}]}
            response.set_data(json.dumps(page))
        return response

    ui.app.add_url_rule(FILE, "verdicts", ui.auth_required_if_enabled(download))
    ui.app.after_request(with_the_table)
