"""Every query of the dashboard and of the alerts asks for something that a node really exposes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.conf import settings

from shop.tests.metered import asked, metered_node, rush, samples

DOCKER = settings.BASE_DIR / "deploy" / "docker"
#: What Prometheus adds to every series.
ADDED = {"instance", "job"}
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
NAME = re.compile(r"\b(?:oversold|python|process)_\w+")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
#: Labels with few values, each of them there from the start.
CLOSED = {"outcome", "result", "route", "loss", "state"}

Series = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def exposed() -> Iterator[Series]:
    """Name -> label -> its values, after a few purchases."""
    with metered_node() as node:
        node.restock(1)
        rush(node, "redis", buyers=2)
        asked(node, "/")
        found: Series = defaultdict(lambda: defaultdict(set))
        for name, labels in samples(node):
            for label, value in labels:
                found[name][label].add(value)
            found[name]  # one without labels
        yield found


def dashboard() -> Any:
    return json.loads((DOCKER / "grafana/oversold.json").read_text())


def queries() -> dict[str, str]:
    """Place in the dashboard -> PromQL."""
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard()["panels"]
        for target in panel["targets"]
    }
    rules = {
        rule["alert"]: rule["expr"]
        for group in yaml.safe_load((DOCKER / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    }
    return panels | rules


@pytest.mark.parametrize("where", queries())
def test_a_query_asks_for_what_is_there(exposed: Series, where: str) -> None:
    query = queries()[where]
    names = set(NAME.findall(query))
    assert names or query.startswith("up{"), query
    assert names <= exposed.keys()
    for name, selector in SELECTOR.findall(query):
        for label, value in LABEL.findall(selector):
            if name == "up" or label in ADDED:
                continue
            assert label in exposed[name], f"{name} has no label {label}"
            if label in CLOSED:
                assert value in exposed[name][label], f"{name} has no {label}={value}"
    grouped = {
        label.strip() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(",")
    }
    assert grouped <= ADDED.union(*(exposed[name] for name in names))


def test_every_metric_is_shown_somewhere(exposed: Series) -> None:
    shown = " ".join(queries().values())
    families = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in exposed}
    assert {family for family in families if family not in shown} == set()
