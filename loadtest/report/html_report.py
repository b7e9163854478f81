"""The report.html of a run: one file that opens from disk, without a network.

It is assembled from the files of page/, the shared assets, and the data that its script draws.
"""

import html
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from string import Template
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, group_by
from loadtest.judge.run import Summary
from loadtest.report import tables
from loadtest.report.bundle import bundle
from loadtest.report.lanes import make_timeline
from servers.embedded import ROOT

FILENAME = "report.html"
#: The folder of the page's files.
PAGE = Path(__file__).parent / "page"
ASSETS = ROOT / "demo" / "static" / "assets"
ECHARTS = ASSETS / "vendor" / "echarts"
#: The texts that the licence of the charting library requires to be included.
LICENCES = ("NOTICE", "LICENSE", "licenses/LICENSE-d3")


def write(
    folder: Path,
    summary: Summary,
    events: Sequence[Event],
    *,
    title: str,
    faults: Mapping[str, str] | None = None,
) -> Path:
    """Write report.html into a folder and return its path.

    summary  the content of summary.json
    events   the history of all runs, oldest first; a run without events has no timeline
    title    the title of the page, such as "the rush"
    faults   the title of each fault, by its name; None or empty if the runs are rushes
    """
    data = {
        **make_report_data(summary, events),
        "title": title,
        "where": tables.describe_setup(summary) if summary["runs"] else "",
        "faults": dict(faults or {}),
    }
    if not faults:
        sheet = tables.make_sheet(summary["runs"], tables.DEMO_COLUMNS)
        data["table"] = {"heads": sheet.all_headings, "rows": [texts for _, texts in sheet.rows]}
    path = folder / FILENAME
    path.write_text(render(data), encoding="utf-8")
    return path


def render(data: Mapping[str, Any], entry: Path = PAGE / "main.js") -> str:
    """Return the page with its data and its script.

    Text in the data is escaped, so that it is never interpreted as HTML or JavaScript.

    data   the tables that the script draws. The top of the page shows two further fields: `title`,
           and `where`, a sentence on the setup of the runs
    entry  the main module of the script. The modules that it imports are included
    """
    return Template(_read(PAGE / FILENAME)).substitute(
        title=html.escape(data["title"]),
        where=html.escape(data["where"]),
        style=_read(ASSETS / "look.css") + _read(PAGE / "report.css"),
        data=as_json(data),
        echarts=escape_script(_read(ECHARTS / "echarts.min.js")),
        script=escape_script(bundle(entry)),
        licences=html.escape("\n\n".join(_read(ECHARTS / name) for name in LICENCES)),
    )


def as_json(data: Any) -> str:
    """Return JSON that is safe inside a <script>: `<` is escaped, so no text in it is a tag."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def escape_script(text: str) -> str:
    """Return a script that is safe inside a <script> element.

    `</script` and `<!--` get a backslash. They may occur only in string literals of the script,
    where a backslash before `/` or `!` does not change the string.
    """
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def make_report_data(summary: Summary, events: Sequence[Event]) -> dict[str, Any]:
    """Return {"runs": runs}: the summary's runs, each with its `timeline` (None without events).

    The id of an attempt, one purchase of a buyer, is `<run name>/<buyer>`. The run of a rush has
    its run name in the field `attempts`. The run of a fault does not have this field, but its run
    name ends in `<fault>/<strategy>`.
    """
    fault_events = (event for event in events if event["by"] == "fault")
    events_by_fault = group_by(fault_events, itemgetter("f"))  # "f" is the name of the fault
    attempt_events = (event for event in events if "attempt" in event)
    events_by_run = group_by(attempt_events, _get_run_name)
    names_by_fault_and_strategy = {tuple(name.split("/")[-2:]): name for name in events_by_run}
    runs_with_timelines = []
    for run in summary["runs"]:
        name = run.get("attempts")
        if not name:
            name = names_by_fault_and_strategy.get((run["fault"], run["lock"]), "")
        run_events = events_by_run.get(name, []) + events_by_fault.get(run["fault"], [])
        run_events.sort(key=itemgetter("t"))
        run_timeline = make_timeline(ProductHistory(run_events), run)
        runs_with_timelines.append({**run, "timeline": run_timeline})
    return {"runs": runs_with_timelines}


def _get_run_name(event: Event) -> str:
    """Return the name of the run to which an event of an attempt belongs."""
    return event["attempt"].rpartition("/")[0]
