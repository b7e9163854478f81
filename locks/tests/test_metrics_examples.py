"""The README's examples for Prometheus and OpenTelemetry: what they count arrives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..testing.process import LOCKS, ROOT
from ..testing.server import Server

README = (Path(__file__).parents[1] / "README.md").read_text()

#: A wait that succeeds, one that is over too soon, a release, and a lease that is lost.
USE = """
lock.ttl = 0.3
with lock.hold(wait=5) as lease:
    assert lock.try_acquire() is None
    client.delete("lock:{product:42}")
    assert lease.lost_event.wait(5)
    while lost_is_missing():
        time.sleep(0.01)
"""


def run(kind: str, port: int, before: str, after: str) -> dict[str, object]:
    """What the example has counted, by metric and labels."""
    example = re.search(rf"```python {kind}\n(.*?)```", README, re.DOTALL)
    assert example is not None
    program = f"""
import json, redis, time
from {LOCKS} import RedisLock
client = redis.Redis(port={port})
{before}
{example[1].replace("from locks import", f"from {LOCKS} import")}
{USE}
{after}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_what_prometheus_is_given_arrives(server: Server) -> None:
    pytest.importorskip("prometheus_client", reason="pip install prometheus-client")
    seen = run(
        "prometheus",
        server.port,
        """
from prometheus_client import REGISTRY
def lost_is_missing():
    return not REGISTRY.get_sample_value("lock_lost_total", {"lock": "product", "reason": "gone"})
""",
        """
samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
print(json.dumps({
    " ".join([sample.name, *sample.labels.values()]): sample.value
    for sample in samples if sample.name.startswith("lock_") and "le" not in sample.labels
}))
""",
    )
    counted = {name: value for name, value in seen.items() if "_created" not in name}
    seconds = {name for name in counted if "_sum" in name}
    assert {name: value for name, value in counted.items() if name not in seconds} == {
        "lock_waited_seconds_count product yes": 1,
        "lock_waited_seconds_count product no": 1,
        "lock_held_seconds_count product expired": 1,
        "lock_lost_total product gone": 1,
    }
    assert 0 < float(str(counted["lock_held_seconds_sum product expired"])) < 30


def test_what_opentelemetry_is_given_arrives(server: Server) -> None:
    pytest.importorskip("opentelemetry.sdk.metrics", reason="pip install opentelemetry-sdk")
    seen = run(
        "opentelemetry",
        server.port,
        """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
def points():
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    yield metric.name, point
def lost_is_missing():
    return not any(name == "lock.lost" for name, _ in points())
""",
        """
def value(point):
    return point.count if hasattr(point, "count") else point.value
print(json.dumps({
    " ".join([name, *map(str, point.attributes.values())]): value(point)
    for name, point in points()
}))
""",
    )
    assert seen == {
        "lock.waited product True": 1,
        "lock.waited product False": 1,
        "lock.held product expired": 1,
        "lock.lost product gone": 1,
    }
