"""Sustained sales: buyers keep coming, under each strategy in turn, in interleaved rounds.

A run is one strategy in one round, with its figures and its verdict.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.commands.rushes import (
    REREAD_AFTER_SECONDS,
    get_fault_of_rush,
    make_unavailable_run,
    reread_sales,
)
from loadtest.expected import EXPECTED
from loadtest.judge.run import Run, Summary
from loadtest.load.figures import compute_figures
from loadtest.load.measurement import Measurement, read_measurement
from loadtest.load.plan import MAX_CLIENTS, LoadOptions, LoadPlan
from loadtest.load.verdict import judge_load
from loadtest.report import load_table, tables
from loadtest.stack.client import StrategyFacts
from loadtest.stack.stack import (
    ROOT,
    STRATEGIES_WITH_EXTRAS,
    Stack,
    StackError,
    make_child_environment,
)
from loadtest.stack.strategies import list_complaints
from servers import embedded
from servers.loopback import find_free_port
from servers.process import ServerProcess

#: The connections to PostgreSQL that all nodes together may keep. This is less than the limit of
#: the embedded server (servers/postgres.py).
MAX_POOLED_CONNECTIONS = 300
#: The bounds of SHOP_DB_POOL, the connections of each worker; MAX_POOL_SIZE is the shop's default.
MIN_POOL_SIZE = 2
MAX_POOL_SIZE = 20
#: Clients that each of Locust's processes starts per second.
SPAWN_RATE_PER_PROCESS = 200
#: The longest wait, after the measurement, for the last answers to requests.
LAST_ANSWERS_TIMEOUT_SECONDS = 60
#: The time that Locust may take in addition to the measurement: to start, to connect its workers,
#: to warm up, to write its measurements and to end.
OVERHEAD_SECONDS = 90.0
#: The remark on a measurement that Locust itself may have slowed down.
LOCUST_BUSY_MESSAGE = (
    "Locust used its processor for more than 90 % of the time, so its own limit was measured: "
    "give it more processes with --locust-workers"
)


def run(console: Console, **options: Any) -> int:
    """Put load on each strategy once in each round, print the table, and write the results.

    Returns 0 if every verdict was the expected one and every measurement succeeded, else 1. Raises
    StackError, whose message says what to do, and EmbeddedError if a server does not start.

    options  the fields of LoadOptions
    """
    load_options = LoadOptions(**options)
    connections_per_worker = MAX_POOLED_CONNECTIONS // (load_options.nodes * load_options.workers)
    pool_size = min(MAX_POOL_SIZE, max(MIN_POOL_SIZE, connections_per_worker))
    with (
        Output(console) as out,
        Stack(
            node_count=load_options.nodes,
            workers=load_options.workers,
            threads=load_options.threads,
            log=out.log,
            progress=out.progress,
            # The extras are servers that only some strategies need.
            extras=not STRATEGIES_WITH_EXTRAS.isdisjoint(load_options.locks),
            variables={"SHOP_DB_POOL": str(pool_size)},
        ) as stack,
    ):
        strategies = stack.strategies(load_options.locks)
        if complaints := list_complaints(strategies):
            raise StackError("; ".join(complaints))
        strategies_by_name = {strategy["name"]: strategy for strategy in strategies}
        runs: list[Run] = []
        for round_number in range(1, load_options.rounds + 1):
            # The strategies are shuffled in each round, so that no strategy always follows the same
            # one. The seed is the number of the round, so that a repeated run has the same order.
            rng = random.Random(round_number)
            for lock in rng.sample(list(load_options.locks), len(load_options.locks)):
                out.progress(f"round {round_number} of {load_options.rounds}: {lock}")
                run_of_lock = _put_load_on_strategy(
                    stack, load_options, strategies_by_name[lock], out
                )
                runs.append(cast(Run, {**run_of_lock, "round": round_number}))
        # Find orders that a shop writes, and units that it loses, after the sales were judged.
        time.sleep(REREAD_AFTER_SECONDS)
        reread_sales(stack.shop(), runs)

        def get_round_and_position(run: Run) -> tuple[int, int]:
            return run["round"], load_options.locks.index(run["lock"])

        runs.sort(key=get_round_and_position)
        summary: Summary = {
            **out.make_summary(stack, runs),
            "rounds": load_options.rounds,
            "load": {**asdict(load_options), "given": " ".join(sys.argv[2:])},
            "medians": load_table.compute_medians(runs),
        }
        tables.write_summary(out.path, summary)
        (out.path / load_table.FILENAME).write_text(load_table.markdown(summary))
        out.finish()
    reasons = [f"{run['lock']}, round {run['round']}: {run['why']}" for run in runs if run["why"]]
    return out.print_conclusion(
        load_table.make_sheet(summary), reasons, load_table.LEGEND, load_table.FILENAME
    )


def _put_load_on_strategy(
    stack: Stack, load_options: LoadOptions, strategy: StrategyFacts, out: Output
) -> dict[str, Any]:
    """Put load on one strategy for one round. Return its run, without the field `round`."""
    if not strategy["available"]:
        return dict(make_unavailable_run(strategy))
    lock = strategy["name"]
    fault = get_fault_of_rush(lock, load_options)
    stack.start_order_consumers_for(lock)
    shop = stack.shop()
    products = [f"load-{number:03}" for number in range(1, load_options.products + 1)]
    plan = LoadPlan(
        **asdict(load_options),
        id=uuid.uuid4().hex,
        lock=lock,
        sales={
            product: shop.restock(product=product, stock=load_options.stock, lock=lock)["sale"]
            for product in products
        },
        hosts=[node.url for node in stack.nodes],
        pids=find_pids(stack),
    )
    measurement = _run_locust(stack, plan, out)
    run: dict[str, Any] = {
        "lock": lock,
        "fault": fault,
        "expected": EXPECTED[lock][fault],
        "attempts": plan.id,
        "hold_ms": plan.hold_ms,
        "buyers": len(measurement.purchases),
        "clients": None if plan.arrivals_per_second else plan.clients,
        "arrivals_per_second": plan.arrivals_per_second or None,
        **compute_figures(measurement, plan),
        **judge_load(plan, measurement, shop),
    }
    return {**run, **assess_run(run, measurement, plan)}


def _run_locust(stack: Stack, plan: LoadPlan, out: Output) -> Measurement:
    """Run Locust with this plan until it ends, and return its measurement.

    Locust and its workers are always stopped, even if an exception is raised. Locust's own report
    is written into the folder of the results. Raises StackError if Locust measured nothing or does
    not end in time, or if a server ended meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder:
        plan_file = Path(folder) / "plan.json"
        plan_file.write_text(json.dumps(asdict(plan)))
        locust = ServerProcess("Locust", out.log)
        command = _make_locust_command(plan, report_file=out.path / f"{plan.lock}.html")
        environment = make_child_environment() | {"PYTHONUTF8": "1", "LOAD_PLAN": str(plan_file)}
        pid = locust.start(command, folder=ROOT, environment=environment)
        # The time that one process needs to start all clients. Several workers need less.
        longest_start_seconds = plan.users / SPAWN_RATE_PER_PROCESS
        longest_seconds = (
            longest_start_seconds + plan.seconds + LAST_ANSWERS_TIMEOUT_SECONDS + OVERHEAD_SECONDS
        )
        try:
            embedded.kill_at_exit(pid)
            assert locust.process is not None
            stack.run_while_alive(partial(locust.process.wait, longest_seconds))
        except subprocess.TimeoutExpired as error:
            raise StackError(
                f"Locust did not end within {longest_seconds:.0f} s; see {locust.log_name}"
            ) from error
        finally:
            locust.stop(0)  # kills it at once: it has written its measurement, or it has failed
            with suppress(OSError):  # kills workers whose master has died
                os.killpg(pid, signal.SIGKILL)
        # loadtest/load/clients.py writes window.json next to the plan when the measurement ends.
        if not plan_file.with_name("window.json").exists():
            raise StackError(f"Locust measured nothing; see {locust.log_name}\n{locust.tail()}")
        return read_measurement(Path(folder))


def _make_locust_command(plan: LoadPlan, report_file: Path) -> list[str]:
    """Return the command that runs Locust with the users and processes of a plan.

    report_file  the file for Locust's own report
    """
    port = str(find_free_port())  # Locust's workers connect to their master at this port
    command = [sys.executable, "-m", "locust", "-f", "loadtest/load/clients.py"]
    command += ["--headless", "--only-summary"]
    command += ["--users", str(plan.users)]
    command += ["--spawn-rate", str(SPAWN_RATE_PER_PROCESS * plan.locust_workers)]
    command += ["--host", plan.hosts[0]]
    command += ["--stop-timeout", str(LAST_ANSWERS_TIMEOUT_SECONDS)]
    command += ["--master-host", "127.0.0.1", "--master-bind-host", "127.0.0.1"]
    command += ["--master-port", port, "--master-bind-port", port]
    if plan.locust_workers > 1:
        command += ["--processes", str(plan.locust_workers)]
    command += ["--html", str(report_file)]
    command.append("Arrivals" if plan.arrivals_per_second else "Client")
    return command


def assess_run(run: Mapping[str, Any], measurement: Measurement, plan: LoadPlan) -> dict[str, Any]:
    """Return the fields `as_expected` and `why` of a run.

    A run whose measurement failed is never as expected.

    A strategy that is expected to oversell oversells only when its stock runs out. If the stock
    lasts longer than the measurement, lost updates show the same flaw. So a run of such a strategy
    is as expected if it is oversold, or if it has lost updates.
    """
    has_shown_its_flaw = run["expected"] == "oversold" and run["lost_updates"] > 0
    if measurement.processes < plan.locust_workers:
        lost_workers = plan.locust_workers - measurement.processes
        why = f"{lost_workers} of Locust's workers were lost: see run.log"
    elif measurement.turned_away:
        why = (
            f"{MAX_CLIENTS} buyers, the maximum, waited for an answer at the same time, so others "
            "were turned away: lower --arrivals-per-second or --seconds"
        )
    elif not run["sold"]:
        # The warm-up may have sold the whole stock.
        why = run["why"] or "nothing was sold in the measured time: raise --stock"
    elif run["verdict"] != run["expected"] and not has_shown_its_flaw:
        why = run["why"]
    else:
        return {
            "as_expected": True,
            "why": LOCUST_BUSY_MESSAGE if measurement.locust_is_busy else "",
        }
    return {"as_expected": False, "why": why}


def find_pids(stack: Stack) -> dict[str, list[int]]:
    """Return the pids of the nodes, of PostgreSQL and of Valkey, by these names.

    Each node has two pids: that of its gunicorn master, and that of its order consumer, which
    writes queued orders to the database. The list of an external server is empty, because its
    processes are unknown.
    """
    pids: dict[str, list[int]] = {"nodes": [], "PostgreSQL": [], "Valkey": []}
    for node in stack.nodes:
        for server in (node.server, node.order_consumer):
            if server.process is not None:
                pids["nodes"].append(server.process.pid)
    if not os.environ.get("DATABASE_URL"):
        postgres_pid = embedded.find_postgres_pid()
        if postgres_pid is not None:
            pids["PostgreSQL"].append(postgres_pid)
    if not os.environ.get("REDIS_URL"):
        pids["Valkey"] += [valkey.pid for valkey in stack.valkeys]
    return pids
