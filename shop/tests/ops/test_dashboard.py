"""Every query of the dashboard and of the alerts asks for something that a node really exposes."""

import json
import re
from collections import defaultdict

import pytest
import yaml
from django.conf import settings
from prometheus_client import REGISTRY

DOCKER = settings.BASE_DIR / "deploy" / "docker"
#: What Prometheus adds to every series.
ADDED = {"instance", "job"}
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
NAME = re.compile(r"\b(?:oversold|python|process)_\w+")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
#: Labels with few values, each of them there from the start.
CLOSED = {"outcome", "route", "loss", "state"}

Series = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def exposed() -> Series:
    """Name -> label -> its values, after one request. What of one process is no sum of all workers
    is not among them."""
    from shop.ops import metrics  # which nobody else needs without METRICS_TOKEN

    metrics.lock_metrics("redis")
    sold = {"lock": "redis", "outcome": "sold"}
    metrics.count(route="/buy", status=201, seconds=0.1, facts=sold)
    metrics.count(route="/", status=200, seconds=0.1, facts={})
    for state in ("in_use", "idle"):
        metrics.POOL.labels(state)
    found: Series = defaultdict(lambda: defaultdict(set))
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("oversold_"):
                for label, value in sample.labels.items():
                    found[sample.name][label].add(value)
                found[sample.name]  # one without labels
    return found


def queries() -> dict[str, str]:
    """Place in the dashboard -> PromQL."""
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in json.loads((DOCKER / "grafana/oversold.json").read_text())["panels"]
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
            if name != "up" and label not in ADDED:
                assert label in exposed[name], f"{name} has no label {label}"
                assert label not in CLOSED or value in exposed[name][label], f"{label}={value}"
    grouped = {
        label.strip() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(",")
    }
    assert grouped <= ADDED.union(*(exposed[name] for name in names))


def test_every_metric_is_shown_somewhere(exposed: Series) -> None:
    shown = " ".join(queries().values())
    families = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in exposed}
    assert {family for family in families if family not in shown} == set()
