"""Requests at random, to a real node with SHOP_DEMO, to one without, and to one of an event loop:
schemathesis makes up what docs/openapi.yaml allows and what it does not, Hypothesis what is hardly
a request at all.

make fuzz asks 10,000 of each node (FUZZ_REQUESTS); CI asks REQUESTS.
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
from shop.tests.node import BEARER, Node, node_at

DESCRIPTION = ROOT / "docs/openapi.yaml"
#: Routes of the demo and of the admin: no part of the interface of the shop.
UNDESCRIBED_ROUTES = {"/", "/admin/", "/admin/password_change/"}
REQUESTS = 90
UNITS = 1_000_000
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
asked_for = int(os.environ.get("FUZZ_REQUESTS", REQUESTS))
bounded = settings(
    max_examples=asked_for // 3,
    deadline=None,
    derandomize="FUZZ_REQUESTS" not in os.environ,
    database=None,
    phases=[Phase.generate, *([Phase.shrink] if asked_for <= REQUESTS else [])],  # hours, if many
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Fuzzed:
    """A node that is asked at random, and every answer that it gave."""

    node: Node
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    sold: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)

    @property
    def description(self) -> dict[str, Any]:
        """docs/openapi.yaml with the locks of this node, and holds of 5 ms at most."""
        described: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text())
        wish = described["components"]["schemas"]["Wish"]["properties"]
        wish["lock"] = {"enum": ["redis"]}
        if self.node.environment["SHOP_DEMO"] == "1":
            listed = self.node.get("/strategies")[1]["strategies"]
            wish["lock"] = {"enum": [strategy["name"] for strategy in listed]}
            wish["hold_ms"]["maximum"] = 5
        else:
            del wish["hold_ms"]
        return described

    def note(self, status: int, body: bytes) -> None:
        answer = json.loads(body) if body else {}
        assert isinstance(answer, dict)
        outcome = str(answer.get("outcome", ""))
        self.answers[status, outcome] += 1
        assert status != 500, answer
        if outcome == "sold" and status == 201:
            self.sold.append(answer["order"])
        elif status == 201:
            self.opened.append(answer["sale"])


#: SHOP_DEMO and WEB_SERVER of each node.
NODES = {"demo": ("1", "gthread"), "no demo": ("0", "gthread"), "asgi": ("1", "asgi")}


@pytest.fixture(scope="module", params=NODES)
def fuzzed(request: pytest.FixtureRequest, folder: Path, valkey: Valkey) -> Iterator[Fuzzed]:
    demo, server = NODES[request.param]
    log = folder / f"fuzz-{demo}-{server}.log"
    with node_at(log, valkey=valkey, SHOP_DEMO=demo, WEB_SERVER=server, SHOP_LOCK_WAIT="1") as node:
        fuzzed = Fuzzed(node)
        fuzzed.opened.append(node.restock(UNITS))
        yield fuzzed


def test_every_path_of_the_shop_is_described_but_the_pages_own() -> None:
    routes = {f"/{pattern.pattern}" for pattern in get_resolver().url_patterns} - UNDESCRIBED_ROUTES
    paths = yaml.safe_load(DESCRIPTION.read_text())["paths"]
    assert {re.sub(r"<int:sale_id>", "{sale}", route) for route in routes} == set(paths)


def is_the_servers(status: int, headers: Iterable[str]) -> bool:
    """Refused before it reached the shop, for its length say: Django puts a header on its own."""
    named = {name.lower() for name in headers}
    return status in (400, 414, 431) and "x-content-type-options" not in named


# Background threads of this process use `random`, too, and Hypothesis notices.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_answers_match_the_description(fuzzed: Fuzzed, mode: schemathesis.GenerationMode) -> None:
    """Requests that docs/openapi.yaml allows and requests that it does not allow are sent."""
    api = schemathesis.openapi.from_dict(fuzzed.description)
    with requests.Session() as session:

        @seed(1)
        @bounded
        @given(case=api.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            headers = BEARER if fuzzed.answers.total() % 3 == 0 else {}
            url = f"http://127.0.0.1:{fuzzed.node.port}"
            answer = case.call(base_url=url, session=session, headers=headers)
            if is_the_servers(answer.status_code, answer.headers):
                fuzzed.answers[answer.status_code, "not the shop's"] += 1
                return
            fuzzed.note(answer.status_code, answer.content)
            case.validate_response(answer, checks=CHECKS)

        ask()


#: Purchases and almost purchases, in every form that a body can have.
words = st.sampled_from(["buyer", "lock", "product", "hold_ms", "stock", "redis", "none", "apple"])
values = st.one_of(words, st.text(max_size=20), st.integers(-2, 3), st.none(), st.booleans())
objects = st.dictionaries(st.one_of(words, st.text(max_size=5)), values, max_size=5)
wishes = st.fixed_dictionaries(
    {"buyer": st.one_of(st.just("ada"), st.text(max_size=10), values)},
    optional={
        "lock": st.sampled_from(["none", "redis", "row-lock", "counter", "zookeeper", "x"]),
        "product": st.sampled_from(["apple", "pear", ""]),
        "hold_ms": st.sampled_from([0, -1, "x"]),
    },
)
types = [
    *("application/json", "application/x-www-form-urlencoded", "text/plain", ""),
    *("multipart/form-data", "multipart/form-data; boundary=b", "application/json; charset=x"),
]
#: Type and body; half of them fit.
contents = st.one_of(
    wishes.map(lambda given: (types[0], json.dumps(given).encode())),
    wishes.map(lambda given: (types[1], urlencode(given).encode())),
    objects.map(lambda given: (types[0], json.dumps(given).encode())),
    st.tuples(st.sampled_from(types), st.binary(max_size=200)),
    st.tuples(st.sampled_from(types), wishes.map(lambda given: urlencode(given).encode())),
)
header_values = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=20)


def test_what_is_hardly_a_purchase_is_answered_too(fuzzed: Fuzzed) -> None:
    fuzzed.opened.append(fuzzed.node.restock(UNITS))

    @seed(1)
    @bounded
    @given(content=contents, key=st.one_of(st.none(), st.sampled_from(["k1", "k2"]), header_values))
    def ask(content: tuple[str, bytes], key: str | None) -> None:
        content_type, body = content
        headers = {"Content-Type": content_type}
        if key is not None:
            headers["Idempotency-Key"] = key
        status, given, answer = fuzzed.node.request("POST", "/buy", body, headers)
        if is_the_servers(status, given):
            fuzzed.answers[status, "not the shop's"] += 1
            return
        fuzzed.note(status, answer)
        assert status < 500 or status == 503, answer

    ask()


def test_every_unit_that_went_was_answered_sold_and_nothing_is_in_the_log(fuzzed: Fuzzed) -> None:
    """Runs last: it looks at what all of them left behind."""
    found = [order for sale in fuzzed.opened for order in fuzzed.node.orders(sale)]
    assert sorted(order["order"] for order in found) == sorted(fuzzed.sold)
    if fuzzed.node.environment["SHOP_DEMO"] == "0":
        assert {order["lock"] for order in found} <= {"redis"}
    reports = [fuzzed.node.get(f"/sales/{sale}")[1] for sale in fuzzed.opened]
    assert {report["lost_updates"] for report in reports} <= {0}
    log = fuzzed.node.log.read_text()
    assert "Traceback" not in log
    total = fuzzed.answers.total()
    print(f"{total} requests, {len(fuzzed.sold)} sold: {dict(fuzzed.answers.most_common())}")
    assert fuzzed.sold, "no purchase was made up: the test has lost its subject"
