"""The queries of the Grafana dashboard and of the alerts use metrics that a node exposes."""

import json
import re
from collections import defaultdict

import pytest
import yaml
from django.conf import settings
from prometheus_client import REGISTRY

DOCKER_FOLDER = settings.BASE_DIR / "deploy" / "docker"
#: Labels that Prometheus adds to every series.
PROMETHEUS_LABELS = {"instance", "job"}
#: A metric and the conditions on its labels in a query: name{label="value", ...}.
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
METRIC_NAME = re.compile(r"\b(?:oversold|python|process)_\w+")
#: A single condition: the label and the value.
CONDITION = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
#: Labels with few values. A node exposes all these values from its start.
ENUMERATED_LABELS = {"outcome", "route", "loss", "state"}

#: Name of a metric -> label -> values of the label.
Series = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def exposed_series() -> Series:
    """The metrics that the shop exposes, with their labels and the values of each label.

    The metrics that prometheus-client itself adds (python_..., process_...) are left out, because a
    node with several workers does not expose them.
    """
    from shop.ops import metrics  # imported late: a shop without METRICS_TOKEN never imports it

    metrics.get_lock_metrics("redis")
    sold = {"lock": "redis", "outcome": "sold"}
    metrics.count_request(route="/buy", status=201, seconds=0.1, log_fields=sold)
    metrics.count_request(route="/", status=200, seconds=0.1, log_fields={})
    for state in ("in_use", "idle"):
        metrics.POOL_CONNECTIONS.labels(state)
    series: Series = defaultdict(lambda: defaultdict(set))
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("oversold_"):
                label_values = series[sample.name]  # creates an entry, even without labels
                for label, value in sample.labels.items():
                    label_values[label].add(value)
    return series


def read_queries() -> dict[str, str]:
    """Return the queries (PromQL) of all panels and alerts.

    The key of a panel's query is the panel's title and the query's letter. The key of an alert's
    query is the alert's name.
    """
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in json.loads((DOCKER_FOLDER / "grafana/oversold.json").read_text())["panels"]
        for target in panel["targets"]
    }
    rules = {
        rule["alert"]: rule["expr"]
        for group in yaml.safe_load((DOCKER_FOLDER / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    }
    return panels | rules


@pytest.mark.parametrize("title", read_queries())
def test_query_uses_exposed_metrics_and_labels(exposed_series: Series, title: str) -> None:
    """A node exposes every metric and label in a query of the dashboard or of an alert.

    Prometheus reports no error for an unknown metric or label. The panel would just stay empty.
    """
    query = read_queries()[title]
    names = set(METRIC_NAME.findall(query))
    # Prometheus itself adds the metric `up`, which shows whether a node answered.
    assert names or query.startswith("up{"), query
    assert names <= exposed_series.keys()
    for name, conditions in SELECTOR.findall(query):
        for label, value in CONDITION.findall(conditions):
            if name != "up" and label not in PROMETHEUS_LABELS:
                assert label in exposed_series[name], f"{name} has no label {label}"
                if label in ENUMERATED_LABELS:
                    assert value in exposed_series[name][label], f"{label}={value}"
    groupings = re.findall(r"by \(([^)]*)\)", query)
    grouping_labels = {label.strip() for label in ",".join(groupings).split(",") if label}
    allowed_labels = PROMETHEUS_LABELS.union(*(exposed_series[name] for name in names))
    assert grouping_labels <= allowed_labels


def test_every_metric_is_used(exposed_series: Series) -> None:
    """Each metric that a node exposes occurs in a query of the dashboard or of an alert."""
    all_queries = " ".join(read_queries().values())
    metrics = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in exposed_series}
    unused_metrics = {metric for metric in metrics if metric not in all_queries}
    assert unused_metrics == set()
