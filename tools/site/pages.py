"""The layout of all pages, and the pages of the step-through, schedules, faults and search.

The layout is the navigation, the stylesheet and the scripts around the content of a page. The page
of the levels is in level_page.py, and the pages of the documents are in documents.py.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from loadtest.report import html_report as report
from loadtest.report.bundle import bundle
from testing.orders import list_orders
from tools.site import event_table
from tools.site.levels import read_levels
from tools.site.narration import describe_turns
from tools.site.recorder.recording import (
    FAULTS_FILE,
    SCHEDULES_FILE,
    describe_strategies,
    read_recorded_moves,
)
from tools.site.turn_lines import NO_WORLD, list_lines
from tools.site.worlds import (
    BUYERS,
    MOVES_PER_PURCHASE,
    OTHER_BUYER,
    Moves,
    World,
    list_beginnings,
    read_events,
)

#: The templates, scripts and stylesheets from which the pages are made.
PARTS_FOLDER = Path(__file__).parent / "pages"
#: Entry of the navigation -> its page, for the pages that are not documents.
INTERACTIVE_PAGES = {
    "Step through": "index.html",
    "Levels": "levels.html",
    "20 schedules": "schedules.html",
    "Every fault": "faults.html",
}
#: Entry of the navigation -> its page.
NAVIGATION = {
    **INTERACTIVE_PAGES,
    "Documents": "contents.html",
    "Workshop": "workshop/overview.html",
}
#: Entry of the navigation for a group of documents -> a Jinja condition that is true on the pages
#: of this group.
CONDITIONS_OF_DOCUMENT_GROUPS = {
    "Documents": "not page.url.startswith('workshop/')",
    "Workshop": "page.url.startswith('workshop/')",
}
#: All orders in which two buyers can make three moves each, such as AABBAB.
TURN_ORDERS = sorted(list_orders([MOVES_PER_PURCHASE, MOVES_PER_PURCHASE], limit=20))
#: The cell that the page faults.html opens first: STRATEGY/FAULT.
FIRST_CELL = "token/pause"
#: The possible verdicts of a cell, the worst first.
VERDICTS = ("oversold", "deadlock", "undersold", "unknown", "not_run", "exact")
#: The description of the site for search engines. The documents and source files, which are in
#: subfolders, do not have it, because it does not describe them.
DESCRIPTION = (
    '  <meta name="description" content="A shop that sells its last unit twice, and what stops it: '
    'recorded, move by move.">\n'
)
#: The order of turns that the step-through shows as text in a browser without JavaScript.
STORY_TURN_ORDER = "ABABAB"
#: The CSS classes of a schedule's outcome: two orders for one unit, or no more orders than units.
OVERSOLD_CLASS = "bad"
CORRECT_CLASS = "good"


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The outcome of a recorded schedule, as its cell in the table of the schedules shows it.

    css_class  OVERSOLD_CLASS or CORRECT_CLASS
    sold_to    the buyers who have an order
    remark     a remark such as `A rereads`, `B waits` or `B too late`; empty if none applies. If
               more than one applies, the first of these three
    """

    css_class: str
    sold_to: tuple[str, ...]
    remark: str


def render_page(
    name: str,
    content: str,
    *,
    path_to_root: str = "",
    script_data: Any = None,
    script: str = "",
    may_fetch: bool = False,
) -> str:
    """Return a page of the site as HTML: the layout with the content in it.

    The page loads nothing from other sites.

    Args:
        name: The page's title. The entry of the navigation with this name is marked as current.
        content: The page's content, as HTML.
        path_to_root: The relative path to the site's root: `../` for each folder of the page.
        script_data: What the page's script reads, as JSON, from the element `data`.
        script: The page's script: the path of its main module in pages/. Empty: no script.
        may_fetch: Whether the script may send requests to the server of the page.
    """
    scripts = ""
    if script:
        code = report.escape_script(bundle(PARTS_FOLDER / script))
        scripts = (
            f'<script type="application/json" id="data">{report.as_json(script_data)}</script>\n'
            f'<script type="module">\n{code}\n</script>'
        )
    return Template(read_part("frame/frame.html")).substitute(
        title=escape(f"Oversold: {name}"),
        description="" if path_to_root else DESCRIPTION,
        up=path_to_root,
        connect="connect-src 'self'; " if may_fetch else "",
        nav=render_navigation(name, path_to_root),
        main=content,
        day=json.loads(SCHEDULES_FILE.read_text())["recorded"],
        scripts=scripts,
    )


def render_navigation(current_entry: str, path_to_root: str = "") -> str:
    """Return the navigation at the top of a page as HTML, in which `current_entry` is marked.

    path_to_root  the relative path to the site's root: `../` for each folder of the page
    """
    links = []
    for name, page in NAVIGATION.items():
        mark = ' aria-current="page"' if name == current_entry else ""
        links.append(f'<a href="{path_to_root}{page}"{mark}>{name}</a>')
    return (
        '<div class="site-head"><nav aria-label="Site">'
        f'<a class="brand" href="{path_to_root}index.html">'
        f"Oversold</a> {' '.join(links)}</nav>"
        f'<form role="search" action="{path_to_root}search.html">'
        '<input type="search" name="q" aria-label="Search the documents" placeholder="Search">'
        "<button>Search</button></form></div>"
    )


def render_document_template() -> str:
    """Return the Jinja template from which MkDocs makes the page of a document.

    It is the layout of the site. In the navigation of a page, the template marks the entry of the
    document's group as current. CONDITIONS_OF_DOCUMENT_GROUPS tells the groups apart.
    """
    template = render_page(
        "{{ page.title | e }}", read_part("frame/document.html"), path_to_root="{{ base_url }}/"
    )
    for name, condition in CONDITIONS_OF_DOCUMENT_GROUPS.items():
        end_of_link = f'{NAVIGATION[name]}">{name}</a>'
        mark = f'"{{% if {condition} %}} aria-current="true"{{% endif %}}>'
        template = template.replace(end_of_link, end_of_link.replace('">', mark), 1)
    return template


def render_step_through() -> str:
    """Return the site's first page, on which a visitor chooses which of two buyers moves next."""
    content = Template(read_part("steps/index.html")).substitute(
        faults=len(read_recorded_faults()["faults"]) - 1,  # the rush of many buyers is no fault
        levels=len(read_levels()),
        story=_render_story(read_recorded_moves()["none"], STORY_TURN_ORDER),
    )
    views_by_strategy = {
        name: describe_turns(moves) for name, moves in read_recorded_moves().items()
    }
    script_data = {"turns": pack_json(views_by_strategy), "strategies": describe_strategies()}
    return render_page("Step through", content, script_data=script_data, script="steps/steps.js")


def _render_story(moves: Moves, turn_order: str) -> str:
    """Return a list with the lines of each turn, as HTML for a browser without JavaScript.

    A beginning of a schedule, such as `AAB`, stands for its last turn.

    turn_order  a sequence of turns after which the sale is oversold
    """
    lines = [
        f"<li>{line}</li>"
        for beginning in list_beginnings(find_whole_schedule(moves, turn_order))
        for line in render_turn(moves, beginning)
    ]
    return f"<ol>{''.join(lines)}</ol><p><strong>Two orders, one unit: oversold.</strong></p>"


def render_turn(moves: Moves, turns_made: str, world: World = NO_WORLD) -> list[str]:
    """Return the lines that describe the last turn of `turns_made`, as HTML."""
    html_lines = []
    for line in list_lines(moves, turns_made, world):
        html = escape(line.text)
        if line.kind == "sql":
            html = f"<code>{html}</code>"
        if line.buyer:
            html = f"{line.buyer} {html}"
        html_lines.append(html)
    return html_lines


def render_schedules() -> str:
    """Return the page with the table of the 20 schedules of two buyers.

    Strategies that have the same outcome in every schedule share a row.
    """
    moves_by_strategy = read_recorded_moves()
    groups = group_by_outcomes(moves_by_strategy)
    row_pairs = [
        _render_outcome_rows(
            strategies,
            [find_outcome(moves_by_strategy[strategies[0]], order) for order in TURN_ORDERS],
        )
        for strategies in groups
    ]
    content = Template(read_part("schedules/schedules.html")).substitute(
        strategies=len(moves_by_strategy),
        patterns=len(groups),
        heads="".join(f'<th scope="col">{turn_order}</th>' for turn_order in TURN_ORDERS),
        bodies="\n".join(row_pairs),
        events=event_table.make_table(),
    )
    return render_page("20 schedules", content)


def group_by_outcomes(moves_by_strategy: Mapping[str, Moves]) -> list[list[str]]:
    """Return groups of strategies, each with the same outcome in every order of the turns."""
    groups: dict[object, list[str]] = {}
    for strategy, moves in moves_by_strategy.items():
        outcomes = tuple(find_outcome(moves, turn_order) for turn_order in TURN_ORDERS)
        groups.setdefault(outcomes, []).append(strategy)
    return list(groups.values())


def _render_outcome_rows(strategies: Sequence[str], outcomes: Sequence[ScheduleOutcome]) -> str:
    """Return two rows of the table as HTML: the names of the strategies, and their outcomes.

    strategies  strategies that have the same outcomes
    outcomes    their outcome in each of TURN_ORDERS
    """
    # A name links to TURN_ORDERS[1]. In TURN_ORDERS[0] the buyers do not meet: A ends before B
    # begins.
    links = " ".join(
        f'<a href="index.html#{name}/{TURN_ORDERS[1]}">{name}</a>' for name in strategies
    )
    cells = [
        f'<td><a class="{outcome.css_class}" href="index.html#{strategies[0]}/{turn_order}">'
        f"{'+'.join(outcome.sold_to)}<small>{escape(outcome.remark)}</small></a></td>"
        for turn_order, outcome in zip(TURN_ORDERS, outcomes, strict=True)
    ]
    return (
        f'<tbody><tr class="names"><th scope="rowgroup" colspan="{len(TURN_ORDERS)}">'
        f'<span>{links}</span></th></tr>\n<tr class="pattern">{"".join(cells)}</tr></tbody>'
    )


def find_whole_schedule(moves: Moves, turn_order: str) -> str:
    """Return the whole schedule in which the buyers take their turns in this order.

    A turn is skipped if its buyer waits or has ended its purchase. After `turn_order`, the buyers
    take further turns alternately until both have ended, because a buyer who waited or started
    again needs more turns.

    turn_order  an order of the turns, such as `AABBAB`
    """
    turns_made = ""
    more_turns_than_needed = "AB" * 4 * MOVES_PER_PURCHASE
    for buyer in turn_order + more_turns_than_needed:
        if turns_made + buyer in moves:
            turns_made += buyer
    return turns_made


def find_outcome(moves: Moves, turn_order: str) -> ScheduleOutcome:
    """Return the outcome of two purchases whose buyers take their turns in this order."""
    events = [
        event
        for beginning in list_beginnings(find_whole_schedule(moves, turn_order))
        for event in read_events(moves[beginning])
    ]
    sold_to = tuple(
        sorted(event.buyer for event in events if (event.kind, event.details) == ("ends", ["sold"]))
    )
    waiters = [event.buyer for event in events if event.kind == "waits"]
    readers = [event.buyer for event in events if event.kind == "after_read"]  # once for each read
    rereaders = [buyer for buyer in BUYERS if readers.count(buyer) > 1]
    remark = ""
    if rereaders:
        remark = f"{rereaders[0]} rereads"
    elif waiters:
        remark = f"{waiters[0]} waits"
    elif len(sold_to) == 1:
        remark = f"{OTHER_BUYER[sold_to[0]]} too late"
    css_class = CORRECT_CLASS
    if len(sold_to) > 1:
        css_class = OVERSOLD_CLASS
    return ScheduleOutcome(css_class, sold_to, remark)


def read_recorded_faults() -> dict[str, Any]:
    """Return what the report on all faults shows, as recording.collect_faults() made it.

    It has the results of `make matrix` and `make faults`.
    """
    return dict(json.loads(gzip.decompress(FAULTS_FILE.read_bytes())))


def render_faults(recorded_faults: Mapping[str, Any]) -> str:
    """Return the page faults.html: the report on all faults, with the code of the strategies.

    The page contains the report in compressed form. A script of the page unpacks the report, and
    replaces the page by it. Without JavaScript the page shows a table of the verdicts.

    recorded_faults  the result of read_recorded_faults()
    """
    cells = recorded_faults["runs"]
    report_data = {
        **recorded_faults,
        "runs": [{**cell, "timeline": transpose_tables(cell["timeline"])} for cell in cells],
        "sources": describe_strategies(),
        "first": FIRST_CELL,
    }
    report_page = report.render(report_data, PARTS_FOLDER / "faults/faults.js")
    navigation = render_navigation("Every fault")
    replacements = {
        "<header>": f"{navigation}\n<header>",
        "</header>": f"{read_part('faults/to_table.html')}</header>",
        "</main>": f"{read_part('faults/faults.html')}</main>",
        "</style>": f"{read_part('frame/site.css')}</style>",
    }
    for tag, replacement in replacements.items():
        report_page = report_page.replace(tag, replacement, 1)
    return Template(read_part("faults/packed.html")).substitute(
        nav=navigation, packed=_pack(report_page), verdicts=render_verdict_table(cells)
    )


def transpose_tables(timeline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a timeline whose tables are lists of columns instead of rows.

    The values of a column resemble each other, so the compressed page becomes a fifth smaller. The
    script of the page turns the columns into rows again.
    """
    if timeline is None:
        return None
    transposed = dict(timeline)
    for name, member in timeline.items():
        if isinstance(member, list):  # a table, as a list of rows
            transposed[name] = list(zip(*member, strict=True))
    return transposed


def render_verdict_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the verdicts as HTML: a row for each strategy, a column for each verdict.

    An entry of the table lists the faults under which the strategy had this verdict.

    cells  runs of one strategy under one fault each
    """
    verdicts_of_cells = {cell["verdict"] for cell in cells}
    verdicts = [verdict for verdict in VERDICTS if verdict in verdicts_of_cells]
    faults_by_strategy: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        by_verdict = faults_by_strategy.setdefault(
            cell["lock"], {verdict: [] for verdict in verdicts}
        )
        by_verdict[cell["verdict"]].append(cell["fault"])
    headings = "".join(f'<th scope="col">{verdict}</th>' for verdict in verdicts)
    rows = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{', '.join(by_verdict[verdict])}</td>" for verdict in verdicts)
        + "</tr>"
        for name, by_verdict in faults_by_strategy.items()
    )
    return f"<table><thead><tr><td></td>{headings}</tr></thead>\n<tbody>{rows}</tbody></table>"


def render_search(index: Mapping[str, Any]) -> str:
    """Return the page that searches the documents.

    Args:
        index: The index of MkDocs's search plugin. It has an entry for each page, and an entry for
            each section of a page. The address of a section has an anchor.
    """
    titles = {entry["location"]: entry["title"] for entry in index["docs"]}
    sections = []
    for entry in index["docs"]:
        page, number_sign, _ = entry["location"].partition("#")
        if number_sign:
            section = {
                "location": entry["location"],
                "page": titles[page],
                "heading": entry["title"],
                "text": " ".join(entry["text"].split()),
            }
            sections.append(section)
    return render_page(
        "Search",
        read_part("search/search.html"),
        script_data=pack_json(sections),
        script="search/search.js",
    )


def write_stylesheet(folder: Path) -> None:
    """Write the stylesheet of the site, site.css, into a folder. Make the folder if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.css").write_text(
        (report.ASSETS / "look.css").read_text() + read_part("frame/site.css")
    )


def pack_json(json_value: object) -> str:
    """Return a value as JSON, compressed and in Base64. pages/shared/unpack.js unpacks it."""
    return _pack(json.dumps(json_value, separators=(",", ":")))


def _pack(text: str) -> str:
    """Return a text compressed with gzip, in Base64.

    The time in the gzip header is 0, so that two builds of the site are equal.
    """
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def read_part(name: str) -> str:
    """Return the text of a template, a part of a page, or a stylesheet in the folder pages/."""
    return (PARTS_FOLDER / name).read_text()
