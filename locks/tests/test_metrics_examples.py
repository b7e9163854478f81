"""Tests of the examples in METRICS.md, which export metrics to Prometheus and OpenTelemetry."""

import json
import re
import sys
from pathlib import Path

import pytest

from ..testing.server import Server
from .waiting import LOCKS_PACKAGE, run_program

METRICS_PAGE = (Path(__file__).parents[1] / "METRICS.md").read_text()

#: Uses the lock of an example: a wait that succeeds, a try that fails, a loss and a release. The
#: function lost_is_missing() returns whether the loss has not been exported yet. It is defined in
#: the code before each example.
USAGE = """
lock.ttl = 0.3
with lock.hold(wait=5) as lease:
    assert lock.try_acquire() is None
    client.delete("lock:{product:42}")
    assert lease.lost_event.wait(5)
    while lost_is_missing():
        time.sleep(0.01)
"""

#: For each library: the module that its example needs, the code before the example, the code after
#: it, which prints the counts as JSON, and the expected counts. The key of a count is the name of a
#: metric and its labels.
EXAMPLES = {
    "prometheus": (
        "prometheus_client",
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
    and not sample.name.endswith(("_sum", "_created"))
}))
""",
        {
            "lock_waited_seconds_count product yes": 1,
            "lock_waited_seconds_count product no": 1,
            "lock_held_seconds_count product expired": 1,
            "lock_lost_total product gone": 1,
        },
    ),
    "opentelemetry": (
        "opentelemetry.sdk.metrics",
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
print(json.dumps({
    " ".join([name, *map(str, point.attributes.values())]):
        getattr(point, "count", 0) or point.value
    for name, point in points()
}))
""",
        {
            "lock.waited product True": 1,
            "lock.waited product False": 1,
            "lock.held product expired": 1,
            "lock.lost product gone": 1,
        },
    ),
}


@pytest.mark.parametrize("library", EXAMPLES)
def test_metrics_example_counts_as_documented(server: Server, library: str) -> None:
    """Run an example of the page, use its lock, and compare the counts that it exports."""
    required_module, code_before, code_after, expected_counts = EXAMPLES[library]
    pytest.importorskip(required_module, reason=f"pip install {required_module}")
    example = re.search(rf"```python {library}\n(.*?)```", METRICS_PAGE, re.DOTALL)
    assert example is not None
    program = f"""
import json, redis, time
from {LOCKS_PACKAGE} import RedisLock
client = redis.Redis(port={server.port})
{code_before}
{example[1].replace("from locks import", f"from {LOCKS_PACKAGE} import")}
{USAGE}
{code_after}
"""
    last_line = run_program(sys.executable, "-c", program).splitlines()[-1]
    assert json.loads(last_line) == expected_counts
