"""The frame of every page, and some pages that are not documents.

These are the step-through, the table of schedules, the faults, and the search. The levels are in
level_page.py.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
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
from tools.site.narration import narrate
from tools.site.recorder.recording import (
    FAULTS_FILE,
    SCHEDULES_FILE,
    describe_strategies,
    read_recorded_moves,
)
from tools.site.turn_lines import NO_WORLD, list_lines
from tools.site.worlds import BUYERS, MOVES_PER_PURCHASE, OTHER_BUYER, Moves, World

#: The templates, scripts and styles of the pages.
PARTS_FOLDER = Path(__file__).parent / "pages"
#: Entry of the navigation -> its page, for the pages that are not documents.
OWN_PAGES = {
    "Step through": "index.html",
    "Levels": "levels.html",
    "20 schedules": "schedules.html",
    "Every fault": "faults.html",
}
#: Entry of the navigation -> its page.
NAVIGATION = {**OWN_PAGES, "Documents": "contents.html", "Workshop": "workshop/overview.html"}
#: Entry that stands for many documents -> the condition of MkDocs's templates for its pages.
DOCUMENTS_IN_NAVIGATION = {
    "Documents": "not page.url.startswith('workshop/')",
    "Workshop": "page.url.startswith('workshop/')",
}
#: The 20 orders of two buyers' moves, such as AABBAB.
TURN_ORDERS = sorted(list_orders([MOVES_PER_PURCHASE, MOVES_PER_PURCHASE], limit=20))
#: The cell that the page of the faults opens first: STRATEGY/FAULT.
FIRST_CELL = "token/pause"
#: The verdicts of the cells, the worst first.
VERDICTS = ("oversold", "deadlock", "undersold", "unknown", "not_run", "exact")
#: The description of the site for search engines. Pages in folders, which are documents and source
#: files, do without it, because it does not describe them.
DESCRIPTION = (
    '  <meta name="description" content="A shop that sells its last unit twice, and what stops it: '
    'recorded, move by move.">\n'
)
#: The order of moves that the step-through shows as text in a browser without JavaScript.
STORY_TURN_ORDER = "ABABAB"


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The outcome of a recorded schedule, as its cell in the table of the schedules shows it.

    css_class  `bad` if more than one buyer has an order, else `good`
    sold_to    the buyers with an order
    remark     which buyer reads again, waits, or comes too late: the first of these; else empty
    """

    css_class: str
    sold_to: tuple[str, ...]
    remark: str


def render_frame(
    name: str,
    main: str,
    *,
    up: str = "",
    data: Any = None,
    entry: str = "",
    fetches: bool = False,
) -> str:
    """Return a page of the site as HTML. It loads nothing from other sites.

    Args:
        name: The page's title; the entry of the navigation with this name is marked as current.
        main: The page's content, as HTML.
        up: The relative address of the site's root, `../` for each folder of the page.
        data: The data of the page's script, which finds it as JSON in the element `data`.
        entry: The path in pages/ of the module that is the page's script; empty: no script.
        fetches: Whether the script may send requests to the server of the page.
    """
    scripts = ""
    if entry:
        script = report.as_script(bundle(PARTS_FOLDER / entry))
        scripts = (
            f'<script type="application/json" id="data">{report.as_json(data)}</script>\n'
            f'<script type="module">\n{script}\n</script>'
        )
    return Template(read_part("frame/frame.html")).substitute(
        title=escape(f"Oversold: {name}"),
        description="" if up else DESCRIPTION,
        up=up,
        connect="connect-src 'self'; " if fetches else "",
        nav=render_navigation(name, up),
        main=main,
        day=json.loads(SCHEDULES_FILE.read_text())["recorded"],
        scripts=scripts,
    )


def render_navigation(current: str, up: str = "") -> str:
    """Return the bar at the top of a page as HTML, in which the entry `current` is marked."""
    links = []
    for name, page in NAVIGATION.items():
        mark = ' aria-current="page"' if name == current else ""
        links.append(f'<a href="{up}{page}"{mark}>{name}</a>')
    return (
        f'<div class="site-head"><nav aria-label="Site"><a class="brand" href="{up}index.html">'
        f"Oversold</a> {' '.join(links)}</nav>"
        f'<form role="search" action="{up}search.html">'
        '<input type="search" name="q" aria-label="Search the documents" placeholder="Search">'
        "<button>Search</button></form></div>"
    )


def render_document_template() -> str:
    """Return the template of MkDocs for a document: the frame of the site with the text in it.

    MkDocs marks one of the entries in DOCUMENTS_IN_NAVIGATION as current: the entry whose condition
    is true for the document.
    """
    page = render_frame(
        "{{ page.title | e }}", read_part("frame/document.html"), up="{{ base_url }}/"
    )
    for name, condition in DOCUMENTS_IN_NAVIGATION.items():
        link = f'{NAVIGATION[name]}">{name}</a>'  # the end of the entry's link
        marked_end = f'"{{% if {condition} %}} aria-current="true"{{% endif %}}>'
        page = page.replace(link, link.replace('">', marked_end), 1)
    return page


def render_step_through() -> str:
    """Return the site's first page, on which a visitor chooses which of two buyers moves next."""
    main = Template(read_part("steps/index.html")).substitute(
        faults=len(read_recorded_faults()["faults"]) - 1,  # without the rush, which is not a fault
        levels=len(read_levels()),
        story=_render_story(read_recorded_moves()["none"], STORY_TURN_ORDER),
    )
    turns = {name: narrate(moves) for name, moves in read_recorded_moves().items()}
    data = {"turns": pack_json(turns), "strategies": describe_strategies()}
    return render_frame("Step through", main, data=data, entry="steps/steps.js")


def _render_story(moves: Moves, turn_order: str) -> str:
    """Return the moves of a schedule that oversells as a list, for a browser without JavaScript."""
    turns_made = find_turns_made(moves, turn_order)
    items = [
        f"<li>{text}</li>"
        for length in range(1, len(turns_made) + 1)
        for text in render_turn(moves, turns_made[:length])
    ]
    return f"<ol>{''.join(items)}</ol><p><strong>Two orders, one unit: oversold.</strong></p>"


def render_turn(moves: Moves, turns_made: str, world: World = NO_WORLD) -> list[str]:
    """Return the lines that describe the last of these turns, as HTML."""
    texts = []
    for line in list_lines(moves, turns_made, world):
        text = escape(line.text)
        if line.kind == "sql":
            text = f"<code>{text}</code>"
        if line.buyer:
            text = f"{line.buyer} {text}"
        texts.append(text)
    return texts


def render_schedules() -> str:
    """Return the page with the table of the 20 schedules of two buyers.

    Strategies that have the same outcome in every schedule share a row.
    """
    recorded = read_recorded_moves()
    groups = group_by_outcomes(recorded)
    bodies = [
        _render_outcome_rows(
            names, [find_outcome(recorded[names[0]], turn_order) for turn_order in TURN_ORDERS]
        )
        for names in groups
    ]
    main = Template(read_part("schedules/schedules.html")).substitute(
        strategies=len(recorded),
        patterns=len(groups),
        heads="".join(f'<th scope="col">{turn_order}</th>' for turn_order in TURN_ORDERS),
        bodies="\n".join(bodies),
        events=event_table.make_table(),
    )
    return render_frame("20 schedules", main)


def group_by_outcomes(recorded: Mapping[str, Moves]) -> list[list[str]]:
    """Return groups of strategies that have the same outcome in every schedule."""
    groups: dict[object, list[str]] = {}
    for name, moves in recorded.items():
        pattern = tuple(find_outcome(moves, turn_order) for turn_order in TURN_ORDERS)
        groups.setdefault(pattern, []).append(name)
    return list(groups.values())


def _render_outcome_rows(names: Sequence[str], outcomes: Sequence[ScheduleOutcome]) -> str:
    """Return two rows of the table: these strategies, and their outcome in each of TURN_ORDERS."""
    # The names link to TURN_ORDERS[1]: in TURN_ORDERS[0], A ends before B begins.
    links = " ".join(f'<a href="index.html#{name}/{TURN_ORDERS[1]}">{name}</a>' for name in names)
    cells = [
        f'<td><a class="{outcome.css_class}" href="index.html#{names[0]}/{turn_order}">'
        f"{'+'.join(outcome.sold_to)}<small>{escape(outcome.remark)}</small></a></td>"
        for turn_order, outcome in zip(TURN_ORDERS, outcomes, strict=True)
    ]
    return (
        f'<tbody><tr class="names"><th scope="rowgroup" colspan="{len(TURN_ORDERS)}">'
        f'<span>{links}</span></th></tr>\n<tr class="pattern">{"".join(cells)}</tr></tbody>'
    )


def find_turns_made(moves: Moves, turn_order: str) -> str:
    """Return the turns that are made if the buyers take their turns in this order.

    Turns follow until both buyers have ended. The turn of a buyer who waits or has ended is left
    out.
    """
    turns_made = ""
    # A buyer who waited, or who began again, needs more turns than `turn_order` has. The turns that
    # are added are more than any buyer needs.
    for buyer in [*turn_order, *"AB" * 4 * MOVES_PER_PURCHASE]:
        if turns_made + buyer in moves:
            turns_made += buyer
    return turns_made


def _read_turns(moves: Moves, turn_order: str) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded turns of a turn order, each with its `did` and `state`."""
    turns_made = find_turns_made(moves, turn_order)
    for length in range(1, len(turns_made) + 1):
        yield moves[turns_made[:length]]


def find_outcome(moves: Moves, turn_order: str) -> ScheduleOutcome:
    """Return the outcome of two purchases whose buyers take their turns in this order."""
    events = [event for turn in _read_turns(moves, turn_order) for event in turn["did"]]
    sold_to = tuple(sorted(event[0] for event in events if event[1:3] == ["ends", "sold"]))
    waiters = [event[0] for event in events if event[1] == "waits"]
    readers = [event[0] for event in events if event[1] == "after_read"]  # once for each read
    rereaders = [buyer for buyer in BUYERS if readers.count(buyer) > 1]
    remark = ""
    if rereaders:
        remark = f"{rereaders[0]} rereads"
    elif waiters:
        remark = f"{waiters[0]} waits"
    elif len(sold_to) == 1:
        remark = f"{OTHER_BUYER[sold_to[0]]} too late"
    css_class = "good"
    if len(sold_to) > 1:
        css_class = "bad"
    return ScheduleOutcome(css_class, sold_to, remark)


def read_recorded_faults() -> dict[str, Any]:
    """Return the data of report.html for whole runs of `make matrix` and `make faults`."""
    return dict(json.loads(gzip.decompress(FAULTS_FILE.read_bytes())))


def render_faults(data: Mapping[str, Any]) -> str:
    """Return a page with the report on all faults, which also shows the code of the strategies.

    The page contains the report in compressed form. A script of the page unpacks the report, and
    shows it in place of the page. Without JavaScript the page shows a table of the verdicts.

    data  the result of read_recorded_faults()
    """
    runs = [{**run, "timeline": transpose_tables(run["timeline"])} for run in data["runs"]]
    data = {**data, "runs": runs, "sources": describe_strategies(), "first": FIRST_CELL}
    page = report.render(data, PARTS_FOLDER / "faults/faults.js")
    nav = render_navigation("Every fault")
    page = page.replace("<header>", f"{nav}\n<header>", 1)
    page = page.replace("</header>", f"{read_part('faults/to_table.html')}</header>", 1)
    page = page.replace("</main>", f"{read_part('faults/faults.html')}</main>", 1)
    page = page.replace("</style>", f"{read_part('frame/site.css')}</style>", 1)
    return Template(read_part("faults/packed.html")).substitute(
        nav=nav, packed=_pack(page), verdicts=render_verdict_table(data["runs"])
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
    """Return a table of the faults as HTML, with a row for each strategy.

    The table has a column for each verdict. A fault is in the column of the verdict that the
    strategy had under it.

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
    heads = "".join(f'<th scope="col">{verdict}</th>' for verdict in verdicts)
    rows = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{', '.join(by_verdict[verdict])}</td>" for verdict in verdicts)
        + "</tr>"
        for name, by_verdict in faults_by_strategy.items()
    )
    return f"<table><thead><tr><td></td>{heads}</tr></thead>\n<tbody>{rows}</tbody></table>"


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
    return render_frame(
        "Search",
        read_part("search/search.html"),
        data=pack_json(sections),
        entry="search/search.js",
    )


def write_stylesheet(folder: Path) -> None:
    """Write the stylesheet of the site, site.css, into a folder. Make the folder if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.css").write_text(
        (report.ASSETS / "look.css").read_text() + read_part("frame/site.css")
    )


def pack_json(data: object) -> str:
    """Return data as compressed JSON in Base64, which unpack.js reads."""
    return _pack(json.dumps(data, separators=(",", ":")))


def _pack(text: str) -> str:
    """Return a text as gzip in Base64. The time is 0, so that equal texts have equal results."""
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def read_part(name: str) -> str:
    """Return the text of a file in pages/."""
    return (PARTS_FOLDER / name).read_text()
