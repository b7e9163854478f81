"""report.html of a run: one file that opens from disk, without a network.

It is put together here from the files of this folder, those of shop/demo/static/assets and the
data; its scripts draw the rest.
"""

import html
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from string import Template
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import ProductHistory, grouped
from loadtest.judge.run import Summary
from loadtest.report import tables as report
from loadtest.report.html.timeline import timeline
from servers.embedded import ROOT

NAME = "report.html"
HERE = Path(__file__).parent
ASSETS = ROOT / "shop" / "demo" / "static" / "assets"
ECHARTS = ASSETS / "vendor" / "echarts"
#: In this order, after the shared dom.js, all as one module: a file that is opened from disk cannot
#: import another one.
SCRIPTS = ("marks.js", "timeline.js", "lanes.js", "verdicts.js", "detail.js", "main.js")
#: The licence texts that the charting library asks to be kept.
LICENCES = ("NOTICE", "LICENSE", "licenses/LICENSE-d3")


def write(
    folder: Path,
    summary: Summary,
    events: Sequence[Event],
    *,
    title: str,
    faults: Mapping[str, str] | None = None,
) -> Path:
    """Write report.html into a folder. Returns its path.

    summary  as `summary.json` has it
    events   the history of all its runs, oldest first; a run without events has no timeline
    title    what was run, in a few words
    faults   what each fault does, by name; without any it is a table of rushes
    """
    data = {
        **report_data(summary, events),
        "title": title,
        "where": report.where(summary) if summary["runs"] else "",
        "faults": dict(faults or {}),
    }
    if not faults:
        sheet = report.sheet(summary["runs"], report.DEMO)
        data["table"] = {"heads": sheet.heads, "rows": [texts for _, texts in sheet.rows]}
    path = folder / NAME
    path.write_text(render(data), encoding="utf-8")
    return path


def render(data: Mapping[str, Any], *more: Path) -> str:
    """The page with its data, and with `more` scripts after its own. Text in the data stays text,
    whatever it looks like."""
    scripts = [ASSETS / "dom.js", *(HERE / name for name in SCRIPTS), *more]
    return Template(_read(HERE / NAME)).substitute(
        title=html.escape(data["title"]),
        where=html.escape(data["where"]),
        style=_read(ASSETS / "look.css") + _read(HERE / "report.css"),
        data=as_json(data),
        echarts=_script(_read(ECHARTS / "echarts.min.js")),
        script=_script("\n".join(map(_read, scripts))),
        licences=html.escape("\n\n".join(_read(ECHARTS / name) for name in LICENCES)),
    )


def as_json(data: Any) -> str:
    """JSON for inside a <script>: nothing in it opens or closes a tag or a comment."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _script(text: str) -> str:
    """A script for inside <script>. Our code has these two words in strings only."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def report_data(summary: Summary, events: Sequence[Event]) -> dict[str, Any]:
    """The runs of the summary, each with its `timeline` (None if nothing was recorded).

    The attempts of a rush begin with the run's `attempts`; those of a cell name its fault and its
    strategy; the last part of an attempt's id is the buyer.
    """
    made = grouped((event for event in events if event["by"] == "fault"), itemgetter("f"))
    of_buyers = (event for event in events if "attempt" in event)
    found = grouped(of_buyers, lambda event: event["attempt"].rpartition("/")[0])
    cells = {tuple(name.split("/")[-2:]): name for name in found}
    runs = []
    for run in summary["runs"]:
        name = run.get("attempts") or cells.get((run["fault"], run["lock"]), "")
        there = [*found.get(name, ()), *made.get(run["fault"], ())]
        there.sort(key=itemgetter("t"))
        runs.append({**run, "timeline": timeline(ProductHistory(there), run)})
    return {"runs": runs}
