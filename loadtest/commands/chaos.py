"""Rushes for the sound strategies, with random faults at random times.

Every rush has a seed of its own, drawn from the run's, for which faults come when and for how long.
A seed repeats the faults but not the interleaving of threads and servers, so the history of a
violation is kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from rich.console import Console

from loadtest.commands.faults import THREADS, refuse_external_servers
from loadtest.commands.run import output
from loadtest.expected import UNBROKEN
from loadtest.faults.buyer import Buyer
from loadtest.faults.disturbances import (
    DISTURBANCES,
    Disturbance,
    cut_redis,
    delay_everything,
    evict,
    fail_over,
    keep_redis_busy,
    pause_node,
    restart_redis,
    stall_redis,
)
from loadtest.faults.testbed import TTL, Testbed, until
from loadtest.judge.history import by_product, write
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Cell, Summary
from loadtest.judge.verdict import Asked, judge
from loadtest.report import tables as report
from loadtest.report.timeline import timeline

STOCK = 12
BUYERS = 20
#: Seconds over which the buyers of a rush start, and how many disturbances it has at most.
COME_WITHIN = 2.0
MOST_AT_ONCE = 3
#: Seconds after the last disturbance for everybody to have a final answer.
DRAIN_TIMEOUT = 60.0
#: These may take a lock from its holder: then two may hold it, and the fence decides.
TAKE_THE_LOCK = {
    *(pause_node, restart_redis, stall_redis, keep_redis_busy, fail_over, evict, cut_redis),
    delay_everything,
}


@dataclass
class Sale:
    """One strategy in one rush."""

    lock: str
    product: str
    number: int
    buyers: list[Buyer]


def run(minutes: float, seed: int, console: Console, *, verbose: bool = False) -> int:
    """Run one rush after the other until the time is over or a sale is violated.

    Returns 0 if none was, else 1. Raises StackError for a server that is not the run's own, or when
    a part does not start.
    """
    refuse_external_servers()
    chance = Random(seed)
    with (
        output(console, verbose=verbose) as out,
        Testbed(log=out.folder.log, progress=out.progress, threads=THREADS) as testbed,
    ):
        console.print(f"chaos for {minutes:g} minutes, seed {seed}", highlight=False)
        end = time.monotonic() + minutes * 60
        rushes: list[dict[str, Any]] = []
        cells: list[Cell] = []
        while time.monotonic() < end and all(cell["as_expected"] for cell in cells):
            left = max(0, end - time.monotonic()) / 60
            out.progress(f"rush {len(rushes) + 1}, {left:.1f} minutes left")
            rush, found = _rush(testbed, len(rushes) + 1, chance.getrandbits(32))
            rushes.append(rush)
            cells += found
            if verbose or not all(cell["as_expected"] for cell in found):
                line = f"rush {len(rushes)}: {', '.join(rush['disturbed'])}"
                console.print(line, highlight=False)
        broken = [cell for cell in cells if not cell["as_expected"]]
        summary: Summary = {
            **out.summary(testbed, cells),
            "seed": seed,
            "minutes": minutes,
            "rushes": rushes,
        }
        report.write_summary(out.folder.path, summary)
        if broken:
            write(out.folder.path / "history.jsonl", testbed.events())
        out.finish()
    for cell in broken:
        console.print(f"{cell['lock']}: {cell['verdict']} {cell['violations']}", style="bold red")
        console.print("\n".join(cell["story"]), highlight=False)
    orders = sum(cell["orders"] for cell in cells)
    disturbed = sum(len(rush["disturbed"]) for rush in rushes)
    console.print(
        f"{len(rushes)} rushes, {orders} orders, {disturbed} disturbances, "
        f"{len(broken)} violations; seed {seed}",
        style="bold",
    )
    out.print_files("summary.json")
    return 1 if broken else 0


def _rush(testbed: Testbed, number: int, seed: int) -> tuple[dict[str, Any], list[Cell]]:
    """One rush of every sound strategy at once: its faults, and the cell of each sale."""
    chance = Random(seed)
    testbed.new_events()  # those of the rushes before this one
    sales = [_open(testbed, lock, number) for lock in UNBROKEN]
    shops = [testbed.shop(node) for node in range(2)]
    buyers = [buyer for sale in sales for buyer in sale.buyers]
    chosen = chance.sample(DISTURBANCES, chance.randint(1, MOST_AT_ONCE))
    chance.shuffle(buyers)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        disturbing = pool.submit(_disturb, testbed, chosen, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, begun + COME_WITHIN * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
        disturbing.result()
    testbed.record_fault("chaos", "ok", "heal", "healed")
    if not until(lambda: all(buyer.answered.is_set() for buyer in buyers), DRAIN_TIMEOUT):
        for buyer in buyers:
            buyer.give_up()
    excused = {"overlap"} if TAKE_THE_LOCK & set(chosen) else set()
    events = by_product(testbed.new_events())
    cells = [_judge(testbed, sale, ProductHistory(events[sale.product]), excused) for sale in sales]
    disturbed = [one.__name__ for one in chosen]
    for cell in cells:
        cell["round"] = number
        cell["evidence"] = ", ".join(disturbed)
    seconds = round(time.monotonic() - begun, 2)
    return {"rush": number, "seed": seed, "disturbed": disturbed, "seconds": seconds}, cells


def _open(testbed: Testbed, lock: str, number: int) -> Sale:
    product = f"{lock}-chaos-{number}_"
    sale = int(testbed.shop(1).restock(product=product, stock=STOCK)["sale"])
    who = [f"chaos-{number}/{lock}/buyer-{n:02}" for n in range(BUYERS)]
    buyers = [Buyer(testbed.history, attempt=key, lock=lock, product=product) for key in who]
    return Sale(lock, product, sale, buyers)


def _disturb(testbed: Testbed, chosen: Sequence[Disturbance], chance: Random) -> None:
    """Make one after the other, each at a random time."""
    for disturbance in chosen:
        time.sleep(chance.uniform(0, COME_WITHIN / len(chosen)))
        testbed.record_fault("chaos", "invoke", "fire", disturbance.__name__)
        for seconds in disturbance(testbed, chance):
            time.sleep(seconds)
        testbed.record_fault("chaos", "ok", "prove", f"{disturbance.__name__} is over")


def _judge(testbed: Testbed, sale: Sale, history: ProductHistory, excused: set[str]) -> Cell:
    shop = testbed.shop(1)
    report = shop.sale(sale.number)
    judgement = judge(
        initial_stock=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(sale.number),
        replies=[buyer.reply for buyer in sale.buyers if buyer.first],
        history=history,
        ttl=TTL,
        asked=Asked(
            stock=STOCK,
            buyers=[buyer.attempt for buyer in sale.buyers],
            lock=sale.lock,
            product=sale.product,
            sale=sale.number,
            recorded=True,
        ),
    )
    wrong = sorted(set(judgement.violations) - excused)
    as_expected = judgement.verdict == "exact" and not wrong
    cell = {
        "lock": sale.lock,
        "fault": "chaos",
        "sale": sale.number,
        "buyers": BUYERS,
        "hold_ms": 0,
        **judgement.as_run(),
        "expected": "exact",
        "as_expected": as_expected,
        "evidence": "",
        "missing": "",
        "wrong": wrong,
        "recovery_s": None,
        "story": [] if as_expected else timeline(history, judgement),
    }
    return cast(Cell, cell)
