"""Random requests to three real nodes: a demo, a node that is no demo, and a demo on asgi.

schemathesis generates requests that docs/openapi.yaml allows, and requests that it does not allow.
Hypothesis generates malformed requests. `make fuzz` sends 10,000 requests to each node
(FUZZ_REQUESTS); CI sends DEFAULT_REQUEST_COUNT.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
import schemathesis
import yaml
from django.urls import get_resolver
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from servers.embedded import ROOT
from servers.valkey import Valkey
from shop.tests.node import BEARER, Node, make_node

DESCRIPTION_FILE = ROOT / "docs/openapi.yaml"
#: Routes that docs/openapi.yaml leaves out: the pages of the demo and of the admin.
UNDESCRIBED_ROUTES = {"/", "/admin/", "/admin/password_change/"}
DEFAULT_REQUEST_COUNT = 90
#: Units of a sale: more than all requests of a test can buy.
UNITS = 1_000_000
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
request_count = int(os.environ.get("FUZZ_REQUESTS", DEFAULT_REQUEST_COUNT))
#: Tests that send requests to each node: test_answers_match_the_description for each of
#: schemathesis's two modes, and test_random_purchase_gets_no_server_error.
TESTS_PER_NODE = 3
PHASES = [Phase.generate]
if request_count <= DEFAULT_REQUEST_COUNT:
    PHASES.append(Phase.shrink)  # shrinking many requests would take hours
fuzz_settings = settings(
    max_examples=request_count // TESTS_PER_NODE,
    deadline=None,
    derandomize="FUZZ_REQUESTS" not in os.environ,  # CI sends the same requests each time
    database=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class FuzzTarget:
    """A node that gets random requests, and a record of the answers so far.

    answers       number of answers by status and outcome
    sold_orders   numbers of the orders that were answered `sold`
    opened_sales  numbers of the sales that were opened
    """

    node: Node
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    sold_orders: list[int] = field(default_factory=list)
    opened_sales: list[int] = field(default_factory=list)

    @property
    def description(self) -> dict[str, Any]:
        """docs/openapi.yaml, restricted to the values that this node accepts.

        A demo accepts every strategy. It also accepts `hold_ms`, the time that a buyer holds the
        lock, which is limited to 5 ms here to save time. Any other node accepts only the strategy
        `redis`, and no `hold_ms`.
        """
        description: dict[str, Any] = yaml.safe_load(DESCRIPTION_FILE.read_text())
        # `Wish` is the schema of the body of POST /buy.
        fields = description["components"]["schemas"]["Wish"]["properties"]
        fields["lock"] = {"enum": ["redis"]}
        if self.node.environment["SHOP_DEMO"] == "1":
            strategies = self.node.get("/strategies")[1]["strategies"]
            fields["lock"] = {"enum": [strategy["name"] for strategy in strategies]}
            fields["hold_ms"]["maximum"] = 5
        else:
            del fields["hold_ms"]
        return description

    def record_answer(self, status: int, body: bytes) -> None:
        """Record an answer of the shop.

        Asserts that its status is not 500, and that its body is a JSON object or empty.
        """
        answer = json.loads(body) if body else {}
        assert isinstance(answer, dict)
        outcome = str(answer.get("outcome", ""))
        self.answers[status, outcome] += 1
        assert status != 500, answer
        if outcome == "sold" and status == 201:
            self.sold_orders.append(answer["order"])
        elif status == 201:  # an answer to POST /restock
            self.opened_sales.append(answer["sale"])


#: Name of a node -> its settings SHOP_DEMO and WEB_SERVER.
NODES = {"demo": ("1", "gthread"), "no demo": ("0", "gthread"), "asgi": ("1", "asgi")}


@pytest.fixture(scope="module", params=NODES)
def target(request: pytest.FixtureRequest, folder: Path, valkey: Valkey) -> Iterator[FuzzTarget]:
    """A running node with one open sale. The tests run once for each node in NODES."""
    demo, server = NODES[request.param]
    log = folder / f"fuzz-{demo}-{server}.log"
    node = make_node(log, valkey=valkey, SHOP_DEMO=demo, WEB_SERVER=server, SHOP_LOCK_WAIT="1")
    with node:
        target = FuzzTarget(node)
        target.opened_sales.append(node.restock(UNITS))
        yield target


def test_openapi_file_describes_every_route() -> None:
    """docs/openapi.yaml describes each route of the interface, and no other path."""
    routes = {f"/{pattern.pattern}" for pattern in get_resolver().url_patterns} - UNDESCRIBED_ROUTES
    paths = yaml.safe_load(DESCRIPTION_FILE.read_text())["paths"]
    assert {re.sub(r"<int:sale_id>", "{sale}", route) for route in routes} == set(paths)


def is_refused_by_gunicorn(status: int, header_names: Iterable[str]) -> bool:
    """Return whether the answer comes from gunicorn, which refused the request before the shop."""
    names = {name.lower() for name in header_names}
    # The shop sets this header on each of its answers.
    return status in (400, 414, 431) and "x-content-type-options" not in names


# Background threads of this process use `random`, too, and Hypothesis notices.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_answers_match_the_description(
    target: FuzzTarget, mode: schemathesis.GenerationMode
) -> None:
    """Every answer has a status, headers and a body that docs/openapi.yaml describes.

    mode  whether schemathesis generates requests that the document allows, or requests it forbids
    """
    api = schemathesis.openapi.from_dict(target.description)
    with requests.Session() as session:

        @seed(1)
        @fuzz_settings
        @given(case=api.as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case[Any]) -> None:
            # Every third request has the bearer token. The other requests have no token.
            headers = BEARER if target.answers.total() % 3 == 0 else {}
            url = f"http://127.0.0.1:{target.node.port}"
            answer = case.call(base_url=url, session=session, headers=headers)
            if is_refused_by_gunicorn(answer.status_code, answer.headers):
                target.answers[answer.status_code, "refused by gunicorn"] += 1
                return
            target.record_answer(answer.status_code, answer.content)
            case.validate_response(answer, checks=CHECKS)

        send()


# --- valid and malformed purchases ----------------------------------------------------------------

known_words = st.sampled_from(
    ["buyer", "lock", "product", "hold_ms", "stock", "redis", "none", "apple"]
)
field_values = st.one_of(
    known_words, st.text(max_size=20), st.integers(-2, 3), st.none(), st.booleans()
)
#: JSON objects with any fields.
random_objects = st.dictionaries(
    st.one_of(known_words, st.text(max_size=5)), field_values, max_size=5
)
#: Fields of a POST /buy request. Most of them are valid.
purchases = st.fixed_dictionaries(
    {"buyer": st.one_of(st.just("ada"), st.text(max_size=10), field_values)},
    optional={
        "lock": st.sampled_from(["none", "redis", "row-lock", "counter", "zookeeper", "x"]),
        "product": st.sampled_from(["apple", "pear", ""]),
        "hold_ms": st.sampled_from([0, -1, "x"]),
    },
)
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
content_types = [
    JSON,
    FORM,
    "text/plain",
    "",
    "multipart/form-data",
    "multipart/form-data; boundary=b",
    "application/json; charset=x",
    "application/json; charset=hex",
    "application/json; charset=undefined",
    "application/json; x*=nope''%20",
    "multipart/form-data; boundary=b; charset=hex",
]
#: Pairs of a content type and a body. In the first three kinds the body has this type.
contents = st.one_of(
    purchases.map(lambda fields: (JSON, json.dumps(fields).encode())),
    purchases.map(lambda fields: (FORM, urlencode(fields).encode())),
    random_objects.map(lambda fields: (JSON, json.dumps(fields).encode())),
    st.tuples(st.sampled_from(content_types), st.binary(max_size=200)),
    st.tuples(
        st.sampled_from(content_types), purchases.map(lambda fields: urlencode(fields).encode())
    ),
)
header_values = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=20)


def test_random_purchase_gets_no_server_error(target: FuzzTarget) -> None:
    """No answer has a 5xx status other than 503."""
    # An earlier test has sent random POST /restock requests, so the open sale may have few units.
    target.opened_sales.append(target.node.restock(UNITS))

    @seed(1)
    @fuzz_settings
    @given(content=contents, key=st.one_of(st.none(), st.sampled_from(["k1", "k2"]), header_values))
    def send(content: tuple[str, bytes], key: str | None) -> None:
        content_type, body = content
        headers = {"Content-Type": content_type}
        if key is not None:
            headers["Idempotency-Key"] = key
        status, answer_headers, answer = target.node.request("POST", "/buy", body, headers)
        if is_refused_by_gunicorn(status, answer_headers):
            target.answers[status, "refused by gunicorn"] += 1
            return
        target.record_answer(status, answer)
        assert status < 500 or status == 503, answer

    send()


def test_orders_match_the_answers_and_the_log_is_clean(target: FuzzTarget) -> None:
    """The orders in the database are those that were answered `sold`, and no error was logged.

    This test runs last, because it checks the orders of all other tests.
    """
    orders = [order for sale in target.opened_sales for order in target.node.read_orders(sale)]
    assert sorted(order["order"] for order in orders) == sorted(target.sold_orders)
    if target.node.environment["SHOP_DEMO"] == "0":
        assert {order["lock"] for order in orders} <= {"redis"}
    reports = [target.node.get(f"/sales/{sale}")[1] for sale in target.opened_sales]
    # Without concurrent requests no update can be lost, not even without a lock (`none`).
    assert all(report["lost_updates"] == 0 for report in reports), reports
    log = target.node.log.read_text()
    assert "Traceback" not in log
    total = target.answers.total()
    print(f"{total} requests, {len(target.sold_orders)} sold: {dict(target.answers.most_common())}")
    assert target.sold_orders, "at least one generated purchase should have been sold"
