"""The command `load`, in which clients buy for some time, in a copy of the project.

The nodes, the servers and Locust's workers are real.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.judge.run import Judged
from loadtest.stack.stack import ROOT
from loadtest.tests.checkout import (
    assert_ctrl_c_leaves_nothing,
    assert_nothing_is_left,
    find_processes,
    read_newest_runs,
    read_until_end,
    start_python,
)
from servers.tests.polling import eventually

#: The command that the tests start: a load with few processes.
SMALL_LOAD = ("-m", "loadtest", "load", "--nodes", "2", "--workers", "1")

#: A script that ends a run while its clients wait for answers. Locust then kills each user that is
#: between two tasks, in DefaultTaskSet.wait(), instead of waiting for the end of its task. So no
#: client may be in this method before the run is over.
END_DURING_REQUESTS = """
import gevent.monkey; gevent.monkey.patch_all()
import gevent
from locust.env import Environment
from locust.user.task import DefaultTaskSet
from loadtest.load import clients
from loadtest.target.answer import Answer

def send_purchase_to_no_shop(self, host, form, request):
    gevent.sleep(0.01)
    request.receive_answer("sold", {})
    return Answer("sold")

early_waits = []
wait = DefaultTaskSet.wait

def record_wait(self):
    if self.user.is_running:
        early_waits.append(self.user)
    wait(self)

DefaultTaskSet.wait = record_wait
clients.PlannedBuyer._send_purchase = send_purchase_to_no_shop
environment = Environment(user_classes=[clients.Client], host="http://127.0.0.1:1")
environment.stop_timeout = 10
runner = environment.create_local_runner()
runner.start(8, 100, wait=True)
gevent.sleep(0.3)
runner.stop()
(requests,) = clients.requests_by_product.values()
assert len(requests) > 20
assert all(request.answered_at for request in requests), "a client was killed"
assert not early_waits, "a client was between two tasks during the run"
"""

#: A script that writes the requests of a long run. This must not take much longer than to convert
#: them to JSON: if a worker took seconds, Locust's master would suppose it to be dead, and kill it.
WRITE_MANY_REQUESTS = """
import gevent.monkey; gevent.monkey.patch_all()
import json
import time
from types import SimpleNamespace
from loadtest.judge.intervals import Request, fields_of_request
from loadtest.load import clients

for number in range(20_000):
    request = Request(f"p/c{number}-0", number)
    request.receive_answer("sold", {"order": number, "replayed": False})
    clients.requests_by_product["a"].append(request)
started_at = time.process_time()
requests = clients.requests_by_product["a"]
json.dumps([list(fields_of_request(request)) for request in requests])
json_seconds = time.process_time() - started_at
started_at = time.process_time()
clients.write_requests(SimpleNamespace(runner=None))
write_seconds = time.process_time() - started_at
assert write_seconds < 5 * json_seconds, f"{write_seconds} s, and JSON needs {json_seconds} s"
"""


def test_two_strategies_are_loaded_by_two_workers_and_judged(clone: Path) -> None:
    """Eight clients buy two products for two seconds, first under `none`, then under `row-lock`.

    In a run, `jain` is Jain's index of how fairly the units were shared among the clients.
    `cpu_ms_per_sale` has the processor time of each group of processes, such as the nodes.
    """
    options = ("--lock", "none,row-lock", "--clients", "8", "--seconds", "2", "--products", "2")
    load = start_python(clone, *SMALL_LOAD, *options, "--locust-workers", "2")
    output = read_until_end(load)
    assert load.returncode == 0, output
    assert_nothing_is_left(clone)
    runs_by_lock = {run["lock"]: run for run in read_newest_runs(clone / "results")}
    assert runs_by_lock["row-lock"]["verdict"] == "exact"
    assert runs_by_lock["none"]["lost_updates"] > 0
    for run in runs_by_lock.values():
        assert set(run) >= set(Judged.__annotations__)
        assert (run["ended_by"], run["clients"]) == ("time", 8)
        assert run["measured_s"] == pytest.approx(2.0, abs=1.5)
        assert run["sold"] > 0
        assert run["answer_ms"]["p50"] > 0
        assert 0 < run["jain"] <= 1
        # Each purchase counts as a buyer, and each was answered `sold`.
        assert run["outcomes"]["sold"] == run["orders"] == run["buyers"]
        measured_groups = {
            group for group, cpu_ms in run["cpu_ms_per_sale"].items() if cpu_ms is not None
        }
        if sys.platform.startswith("linux"):
            assert measured_groups == {"nodes", "PostgreSQL", "Valkey", "Locust"}
        else:
            assert measured_groups == set()
    for product in runs_by_lock["row-lock"]["products"]:
        # `asked` is the stock with which the sale was to be opened.
        assert product["asked"] == product["orders"] + product["left"]
    folder = clone / "results" / "latest"
    assert "POST /buy [none] sold" in (folder / "none.html").read_text(), "Locust's own report"
    assert "| `row-lock` | **EXACT** |" in (folder / "load.md").read_text()


def test_buyers_of_the_open_model_buy_until_nothing_is_left(clone: Path) -> None:
    """In the open model new buyers arrive at a fixed rate, here 50 per second.

    The 60 units are sold after about a second, and then the run ends. `turned_away` counts arrivals
    without a request, because too many buyers were already waiting for an answer.
    """
    options = ("--lock", "redis", "--arrivals-per-second", "50", "--stock", "60", "--seconds", "60")
    load = start_python(clone, *SMALL_LOAD, *options)
    output = read_until_end(load)
    assert load.returncode == 0, output
    (run,) = read_newest_runs(clone / "results")
    assert (run["verdict"], run["orders"], run["stock_left"]) == ("exact", 60, 0)
    assert (run["ended_by"], run["jain"], run["turned_away"]) == ("stock", None, 0)
    assert run["measured_s"] < 30, "the run ends before its 60 s are over"
    assert run["sold_per_s"] == pytest.approx(run["sold"] / run["measured_s"], rel=0.005)
    assert_nothing_is_left(clone)


def test_end_of_a_run_interrupts_no_request(tmp_path: Path) -> None:
    """Requests that are in progress at the end of a run are answered."""
    run_with_plan(END_DURING_REQUESTS, tmp_path)


def test_requests_are_written_about_as_fast_as_json(tmp_path: Path) -> None:
    """At the end of a run, a worker writes all its requests, here 20,000."""
    run_with_plan(WRITE_MANY_REQUESTS, tmp_path)


def run_with_plan(script: str, folder: Path) -> None:
    """Run a script that imports loadtest.load.clients, which reads a plan.

    The plan is for a load of the product `a`, whose sale has the number 1.

    folder  the folder into which the plan is written
    """
    plan = {"id": "p", "lock": "none", "sales": {"a": 1}, "hosts": ["h"], "pids": {}}
    (folder / "plan.json").write_text(json.dumps(plan))
    environment = {**os.environ, "LOAD_PLAN": str(folder / "plan.json")}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


def test_ctrl_c_during_a_load_leaves_no_process_and_no_results(clone: Path) -> None:
    """The command is interrupted while Locust and its two workers run."""
    results = clone / "results"
    results.mkdir(exist_ok=True)
    folders_before = sorted(path.name for path in results.iterdir())
    options = ("--lock", "row-lock", "--seconds", "120", "--locust-workers", "2", "--clients", "8")
    load = start_python(clone, *SMALL_LOAD, *options)
    assert load.stdout is not None
    assert any("row-lock" in line for line in load.stdout)
    eventually(
        lambda: sum("load/clients.py" in process for process in find_processes(clone)) == 3,
        what="Locust and its two workers",
        timeout=30,
    )
    assert_ctrl_c_leaves_nothing(load, clone)
    assert sorted(path.name for path in results.iterdir()) == folders_before
