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


def test_the_dashboard_can_be_imported() -> None:
    """A unique id for each panel, none above another, one data source that is chosen there."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in panels]
    cells = [
        (column, row)
        for x, y, width, height in places
        for column in range(x, x + width)
        for row in range(y, y + height)
    ]
    assert len(set(cells)) == len(cells)
    assert all(column < 24 for column, _ in cells)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}


def test_prometheus_asks_each_node_by_itself() -> None:
    """Through nginx it would get the figures of the one or of the other."""
    scrapes = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    (job,) = scrapes["scrape_configs"]
    (targets,) = job["static_configs"]
    compose = yaml.safe_load((settings.BASE_DIR / "docker-compose.yml").read_text())
    nodes = {f"{name}:8000" for name in compose["services"] if name.startswith("web-")}
    assert set(targets["targets"]) == nodes
    assert scrapes["rule_files"] == ["alerts.yml"]
