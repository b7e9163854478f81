"""The pages of our own: the step-through, the table of orders, every fault, the contents."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from loadtest.report import html as report
from tools.site import documents
from tools.site.recording import FAULTS, SCHEDULES
from tools.site.sources import strategies

HERE = Path(__file__).parent / "pages"
ASSETS = report.ASSETS


def frame(name: str, main: str, *, depth: int = 0, data: Any = None, script: str = "") -> str:
    """A page. `depth`: how many folders below the site's root it is."""
    scripts = ""
    if script:
        scripts = (
            f'<script type="application/json" id="data">{report.as_json(data)}</script>\n'
            f'<script>\n(() => {{\n"use strict";\n{_dom()}\n{script}\n}})();\n</script>'
        )
    return Template(_read("frame.html")).substitute(
        title=escape(f"Oversold: {name}"),
        about="A shop that sells its last unit twice, and what stops it: recorded, move by move.",
        up="../" * depth,
        nav=navigation(name, depth),
        main=main,
        recorded=f"Recorded from the real shop on PostgreSQL and Valkey, {recorded()}.",
        scripts=scripts,
    )


def navigation(current: str, depth: int = 0) -> str:
    up = "../" * depth
    pages = {**documents.OWN, "Documents": "overview.html"}
    links = [
        f'<a href="{up}{page}"{" aria-current=page" if name == current else ""}>{name}</a>'
        for name, page in pages.items()
    ]
    return (
        '<nav class="site-head" aria-label="Site"><strong>Oversold</strong>'
        f"<span>{' '.join(links)}</span></nav>"
    )


def recorded() -> str:
    """The day on which the moves were recorded."""
    return str(json.loads(SCHEDULES.read_text())["recorded"])


def moves() -> dict[str, dict[str, Any]]:
    """Of each strategy: who has moved so far -> what the last move did."""
    found: dict[str, dict[str, Any]] = json.loads(SCHEDULES.read_text())["moves"]
    return found


def step_through() -> str:
    data = {"moves": moves(), "strategies": strategies()}
    return frame(
        "Step through", _read("index.html"), data=data, script=_read("code.js") + _read("steps.js")
    )


def orders() -> str:
    """Strategies by the 20 orders of two buyers' moves."""
    from tools.site.orders import ORDERS, outcome

    rows = []
    for name, known in moves().items():
        cells = []
        for order in ORDERS:
            look, who, remark = outcome(known, order)
            cells.append(
                f'<td><a class="{look}" href="index.html#{name}/{order}">'
                f"{'+'.join(who)}<small>{escape(remark)}</small></a></td>"
            )
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    heads = "".join(f'<th scope="col">{order}</th>' for order in ORDERS)
    main = Template(_read("schedules.html")).substitute(heads=heads, rows="\n".join(rows))
    return frame("All 20 orders", main)


def faults() -> str:
    """The report of a whole run of `make faults`, with the code that decides beside each cell."""
    data = json.loads(gzip.decompress(FAULTS.read_bytes()))
    data["sources"] = strategies()
    page = report.render(data, HERE / "code.js", HERE / "faults.js")
    page = page.replace("<header>", f"{navigation('Every fault')}\n<header>", 1)
    page = page.replace("</main>", f"{_read('faults.html')}</main>", 1)
    page = page.replace("</style>", f"{_read('site.css')}</style>", 1)
    return _packed(page)


def contents() -> str:
    """Every page of the site, in one list."""
    parts = [("See it", [(name, page) for name, page in documents.OWN.items()])]
    for section, paths in documents.documents().items():
        links = [
            (documents.title(path), documents.staged(path).with_suffix(".html").as_posix())
            for path in paths
        ]
        parts.append((section, links))
    lists = "".join(
        f"<h2>{section}</h2><ul>"
        + "".join(f'<li><a href="{page}">{escape(name)}</a></li>' for name, page in links)
        + "</ul>"
        for section, links in parts
    )
    return frame("Contents", f'<section class="card"><h1>Contents</h1>{lists}</section>')


def linked(name: str, body: str, depth: int) -> str:
    """A file or a folder of the repository to which a document links."""
    return frame(name, body, depth=depth)


def _packed(page: str) -> str:
    """The page with its data and its library compressed: the browser unpacks them, then draws."""
    opens, uses, closes = "<script>\n", '(() => {\n"use strict";', "})();\n</script>"
    library, script = (
        page.rpartition(opens + uses)[0].rpartition(opens)[2],
        page.rpartition(uses)[2],
    )
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    if data is None or script.count(closes) != 1:
        raise ValueError("report.html is put together in another way: see loadtest/report/html")
    page = page.replace(data[1], _pack(data[1]), 1).replace(
        f"{opens}{library}",
        f'<script type="application/gzip" id="echarts">{_pack(library)}</script>\n',
        1,
    )
    page = page.replace(opens + uses, f'{opens}const run = () => {{\n"use strict";', 1)
    return page.replace(closes, f"}};\n{_read('unpack.js')}</script>", 1)


def tidied(page: str) -> str:
    """A page of the theme without its indents and empty lines, those of code apart, and its tables
    in boxes that a key can scroll."""
    box = '<div class="table" tabindex="0" role="group" aria-label="Table"><table class="plain">'
    page = page.replace("<table>", box).replace("</table>", "</table></div>")
    page = page.replace("<th></th>", "<td></td>")
    parts = re.split(r"(<pre.*?</pre>|<script.*?</script>)", page, flags=re.DOTALL)
    return "".join(p if n % 2 else re.sub(r"\s*\n\s*", "\n", p) for n, p in enumerate(parts))


def _pack(text: str) -> str:
    text = text.removesuffix("</script>\n").strip()
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _dom() -> str:
    return re.sub(r"^export ", "", (ASSETS / "dom.js").read_text(), flags=re.MULTILINE)


def assets(folder: Path) -> None:
    """The stylesheets of the site: of the pages of our own, and of the documents."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.css").write_text((ASSETS / "look.css").read_text() + _read("site.css"))
    (folder / "documents.css").write_text(_read("documents.css"))


def _read(name: str) -> str:
    return (HERE / name).read_text()
