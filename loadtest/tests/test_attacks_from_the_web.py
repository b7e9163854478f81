"""A foreign web page cannot change or read anything of the servers that `make serve` starts.

The servers are the shop and the web UI of Locust, on the machine of the person who gives a demo.
The foreign page is open in a Chromium on the same machine. It comes from one of ORIGINS, knows the
ports, and sends whatever a browser lets a page send.
"""

import json
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import psycopg
import pytest
from playwright.sync_api import BrowserContext, Page, Response

from loadtest.commands.rushes import RushOptions
from loadtest.commands.serve import serve_shop
from loadtest.stack.stack import Stack
from loadtest.tests.browser import launch_browser
from servers.tests.polling import eventually

#: The attacker's host name, which Chromium resolves to 127.0.0.1.
ATTACKER_HOST = "evil.test"
CHROMIUM_OPTIONS = (
    f"--host-resolver-rules=MAP {ATTACKER_HOST} 127.0.0.1",
    # LocalNetworkAccessChecks, in newer versions of Chromium, keeps public pages from sending
    # requests to this machine. Other browsers do not have this protection. The second feature
    # starts processes in advance, which takes time.
    "--disable-features=LocalNetworkAccessChecks,SpareRendererForSitePerProcess",
    # One process for all sites saves time. The servers get the same requests from it.
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
)
#: Where the attacker's page comes from. To a browser, another port of the same host is the same
#: site. With DNS rebinding, the page was loaded from the attacker's server, and then the host name
#: of that server was changed to resolve to 127.0.0.1. So the page seems to come from the target.
ORIGINS = ("another site", "another port", "DNS rebinding")
#: The ways in which a page can send a POST to another origin: a form that is URL-encoded, a form of
#: text/plain, and fetch() in two modes.
POST_WAYS = ("form", "text form", "no-cors", "cors")
# JavaScript for the attacker's page: _FETCH sends a request, and returns the answer if the
# page can read it. _SUBMIT submits a form. _EMBED loads a URL into a new element.

_FETCH = """
async ([url, options]) => {
  try {
    const answer = await fetch(url, {credentials: 'include', ...options});
    return {status: answer.status, text: await answer.text()};
  } catch { return {status: 0, text: ''}; }
}
"""
_SUBMIT = """
([url, fields, enctype]) => {
  const form = document.createElement('form');
  Object.assign(form, {action: url, method: 'POST', enctype});
  for (const [name, value] of Object.entries(fields))
    form.append(Object.assign(document.createElement('input'), {name, value}));
  document.body.append(form);
  form.submit();
}
"""
_EMBED = """
([tag, url]) => new Promise(done => {
  const element = Object.assign(document.createElement(tag), {onload: done, onerror: done});
  if (tag === 'link') element.rel = 'stylesheet';
  const urlAttribute = {link: 'href', object: 'data'}[tag] ?? 'src';
  element[urlAttribute] = url;
  document.body.append(element);
  element.offsetWidth;  // lays the page out: an object is loaded only then
})
"""


@dataclass
class Attacker:
    """A web page that attacks a server on this machine.

    origin            one of ORIGINS: where the page comes from
    target_url        the URL of the attacked server, with the host name that the page uses
    statuses          the status codes of the target's answers, even of those that the page cannot
                      read
    readable_answers  the status and the text of each answer that the page could read
    """

    page: Page
    origin: str
    target_url: str
    statuses: list[int] = field(default_factory=list)
    readable_answers: list[tuple[int, str]] = field(default_factory=list)

    def post(self, way: str, path: str, fields: Mapping[str, str]) -> None:
        """Send a POST with these fields. Record its answer if the page can read it.

        The page cannot read the answer to a form, because a browser shows it in place of the page.

        way  one of POST_WAYS: a form of one of two kinds, or fetch() in one of two modes
        """
        url = self.target_url + path
        urlencoded = "application/x-www-form-urlencoded"
        if way in ("form", "text form"):
            enctype = "text/plain" if way == "text form" else urlencoded
            page_url = self.page.url
            with self.page.expect_response(lambda response: response.url == url) as response:
                self.page.evaluate(_SUBMIT, [url, dict(fields), enctype])
            response.value.finished()
            self.page.goto(page_url)  # the form has replaced the page by the answer
            return
        headers = {"Content-Type": urlencoded}
        options = {"method": "POST", "mode": way, "body": urlencode(fields), "headers": headers}
        self._record_readable(self.page.evaluate(_FETCH, [url, options]))

    def get(self, path: str) -> None:
        """Send a GET request with cookies and one without. CORS has different rules for them."""
        for credentials in ("include", "omit"):
            options = {"credentials": credentials}
            self._record_readable(self.page.evaluate(_FETCH, [self.target_url + path, options]))

    def embed(self, tag: str, path: str) -> None:
        """Load a path of the target into an element of the page, such as an image or a frame.

        tag  one of TAGS
        """
        self.page.evaluate(_EMBED, [tag, self.target_url + path])

    def record_status(self, response: Response) -> None:
        """Record the status of a response of the target, but not of the attacker's own page."""
        if response.url.startswith(self.target_url) and not response.url.endswith("/attack"):
            self.statuses.append(response.status)

    def _record_readable(self, answer: dict[str, Any]) -> None:
        """Record an answer to fetch(), unless its text is empty: the page cannot read it then."""
        if answer["text"]:
            self.readable_answers.append((answer["status"], answer["text"]))


def open_attacker(context: BrowserContext, origin: str, port: int) -> Attacker:
    """Open the attacker's page. The test intercepts the request for it, and answers it itself.

    port  the port of the target
    """
    page = context.new_page()
    host = ATTACKER_HOST if origin == "DNS rebinding" else "127.0.0.1"
    target_url = f"http://{host}:{port}"
    page_url = {
        "another site": f"http://{ATTACKER_HOST}/attack",
        "another port": "http://127.0.0.1:8888/attack",
        "DNS rebinding": f"{target_url}/attack",
    }[origin]
    empty_page = "<!doctype html><body>"
    page.route(page_url, lambda route: route.fulfill(body=empty_page, content_type="text/html"))
    page.goto(page_url)
    attacker = Attacker(page, origin, target_url)
    page.on("response", attacker.record_status)
    return attacker


#: The fields that Locust requires to start a rush, a load of many buyers who buy at once.
SWARM_FIELDS = {"user_count": "1", "spawn_rate": "1"}
#: What an attack would cause -> the path and the fields of its POST to Locust.
#: In the fields, FILE stands for the path of a file of the user, and ATTACKER for an address of the
#: attacker.
ATTACKS_ON_LOCUST = {
    "a rush": ("/swarm", {}),
    "a file overwritten": ("/swarm", {"result": "FILE"}),
    "a file appended to": ("/swarm", {"history": "FILE"}),
    "a command as a product": (
        "/swarm",
        {"history": "FILE", "product": "$(id)", "host": "ATTACKER"},
    ),
    "the restock token sent elsewhere": ("/swarm", {"host": "ATTACKER"}),
    "the buyers sent elsewhere": ("/swarm", {"nodes": "ATTACKER", "user_count": "2"}),
    "another token": ("/swarm", {"restock_token": "guessed"}),
    "a file run as a target": ("/swarm", {"target": "FILE"}),
    "a stop": ("/stop", {}),
    "statistics deleted": ("/stats/reset", {}),
    # A form of text/plain sends `name=value`. Here that is a JSON object whose host is "=".
    "another class of users": ("/user", {'{"user_class_name": "ShopUser", "host": "': '"}'}),
}
#: What an attack would cause -> the path and the fields of its POST to the shop. Some attacks have
#: their fields in the query string, because the shop could not parse a body of text/plain.
ATTACKS_ON_SHOP = {
    "a purchase": ("/buy", {"product": "apple", "buyer": "mallory", "lock": "none"}),
    "a purchase that holds the lock": (
        "/buy?product=apple&buyer=mallory&lock=redis&hold_ms=5000",
        {},
    ),
    "a restock": ("/restock?product=apple&stock=1000", {}),
    "a rush": ("/rush", {"lock": "none", "buyers": "5", "stock": "5", "hold_ms": "0"}),
    # In a round, a visitor of the shop's page leads two buyers through a purchase, step by step.
    "a new round": ("/steps", {"lock": "none"}),
    "a step in a round": ("/steps/step", {"round": "1", "buyer": "A"}),
}
#: Paths whose answers the attacker tries to read.
LOCUST_PATHS = (
    "/",
    "/logs",
    "/tasks",
    "/exceptions",
    "/exceptions/csv",
    "/stats/requests",
    "/stats/requests/csv",
    "/stats/failures/csv",
    "/stats/requests_full_history/csv",
    "/stats/report",
    "/stats/report?download=1",
    "/worker-count",
    "/login",
    "/stop",
    "/stats/reset",
    "/no-such-page",
)
SHOP_PATHS = (
    "/",
    "/state",
    "/history",
    "/strategies",
    "/strategies/none/code",
    "/sales/latest",
    "/sales/1/orders",
    "/healthz",
    "/readyz",
    "/admin/login/",
    "/no-such-page",
)
#: The elements in which a page can load a path of another origin.
TAGS = ("img", "script", "link", "iframe", "object")


@dataclass
class Servers:
    """The servers that `make serve` starts: the shop with its database, and Locust's web UI."""

    stack: Stack
    locust_url: str

    @property
    def locust_port(self) -> int:
        return int(self.locust_url.rpartition(":")[2])

    @property
    def shop_port(self) -> int:
        return self.stack.nodes[0].port


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Start the servers that `make serve` starts, and run one rush of two buyers with Locust.

    After the rush, there are orders and statistics that the attacker could read or delete.
    """
    # The node has threads for ten buyers at once. The rush below has two.
    rush_options = RushOptions(buyers=10, nodes=1, workers=1)
    with (
        tempfile.TemporaryFile() as log,
        serve_shop(rush_options, log=log) as (stack, locust_url, _),
    ):
        form = {"user_count": 2, "spawn_rate": 100, "lock": "redis", "stock": 50}
        urlopen(f"{locust_url}/swarm", urlencode(form).encode(), timeout=30).close()
        eventually(lambda: "EXACT [redis]" in fetch(f"{locust_url}/logs"), what="the rush is over")
        yield Servers(stack, locust_url)


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    """Open a context of a browser in which the attacker's host name resolves to this machine."""
    with launch_browser(*CHROMIUM_OPTIONS) as browser:
        yield browser.new_context()


@pytest.fixture(scope="module")
def attacker_port() -> Iterator[int]:
    """Listen at a port of the attacker's server, and yield its number.

    At the end, assert that no client has connected to it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def read_state(servers: Servers, folder: Path) -> dict[str, Any]:
    """Return what an attack could change: the files in a folder, and the data of both servers."""
    totals = fetch(f"{servers.locust_url}/stats/requests/csv").splitlines()[-1]
    shop_state = fetch(f"{servers.stack.nodes[0].url}/state?product=apple")
    with psycopg.connect(servers.stack.database_url) as database:
        (orders,) = database.execute("SELECT count(*) FROM purchase_history").fetchone() or (0,)
        sales = tuple(database.execute("SELECT id, initial_stock FROM shop_sale ORDER BY id"))
        stock = tuple(database.execute("SELECT name, amount FROM product ORDER BY name"))
    return {
        "files": {path.name: path.read_bytes() for path in folder.iterdir()},
        "sales": sales,
        "orders": orders,
        "stock": stock,
        "round": json.loads(shop_state)["steps"],
        # Locust logs one line with these words for each rush: its verdict.
        "rushes": fetch(f"{servers.locust_url}/logs").count(" orders for "),
        "requests": totals.split(",")[2],  # the column "Request Count"
    }


def fetch(url: str) -> str:
    """Send a GET request from this process, not from a web page. Return the text of the answer."""
    with urlopen(url, timeout=30) as response:
        return str(response.read().decode())


@pytest.mark.parametrize("origin", ORIGINS)
def test_foreign_page_changes_nothing(
    servers: Servers, context: BrowserContext, attacker_port: int, tmp_path: Path, origin: str
) -> None:
    """A foreign page sends every kind of request to the shop and to Locust that a browser allows.

    The page also tries to embed Locust, for example in a hidden frame, where its visitor might
    press Start without knowing it. Both servers refuse every request, and their data do not change.
    """
    file_of_user = tmp_path / "notes.txt"
    file_of_user.write_text("notes of the user\n")
    placeholders = {"FILE": str(file_of_user), "ATTACKER": f"http://127.0.0.1:{attacker_port}"}
    state_before = read_state(servers, tmp_path)
    attacker = open_attacker(context, origin, servers.locust_port)
    for attack, (path, attack_fields) in ATTACKS_ON_LOCUST.items():
        required_fields = SWARM_FIELDS if path == "/swarm" else {}
        fields = {
            name: placeholders.get(value, value)
            for name, value in (required_fields | attack_fields).items()
        }
        for way in POST_WAYS:
            attacker.post(way, path, fields)
        assert_refused(attacker, attack)
    for path in ("/", "/stats/requests", "/stop", "/stats/reset"):
        for tag in TAGS:
            attacker.embed(tag, path)
        assert_refused(attacker, f"{path} embedded")
    attacker = open_attacker(context, origin, servers.shop_port)
    for attack, (path, fields) in ATTACKS_ON_SHOP.items():
        for way in POST_WAYS:
            attacker.post(way, path, fields)
        assert_refused(attacker, attack)
    assert read_state(servers, tmp_path) == state_before


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("target", ["locust", "shop"])
def test_foreign_page_reads_nothing(
    servers: Servers, context: BrowserContext, target: str, origin: str
) -> None:
    """A foreign page can read no answer, except refusals (status 403) after DNS rebinding.

    After DNS rebinding the page has the target's origin, so the browser lets it read every answer.
    The target therefore refuses all its requests.
    """
    is_locust = target == "locust"
    port = servers.locust_port if is_locust else servers.shop_port
    attacker = open_attacker(context, origin, port)
    for path in LOCUST_PATHS if is_locust else SHOP_PATHS:
        attacker.get(path)
    if origin == "DNS rebinding":
        assert {status for status, _ in attacker.readable_answers} == {403}
        assert all("not allowed here" in text for _, text in attacker.readable_answers)
    else:
        assert attacker.readable_answers == []


def assert_refused(attacker: Attacker, attack: str) -> None:
    """Assert that all requests since the last call were refused, and that the page read no answer.

    With DNS rebinding the page can read the refusals.

    attack  a short description of the attack, for the messages of failed assertions
    """
    assert attacker.statuses, f"{attack}: the page should have sent a request"
    assert set(attacker.statuses) <= {400, 403}, f"{attack}: the target should refuse every request"
    if attacker.origin != "DNS rebinding":
        assert attacker.readable_answers == []
    attacker.statuses.clear()
