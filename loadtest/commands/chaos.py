"""python -m loadtest chaos: rushes for the sound strategies, with random faults at random times.

Every rush has a seed of its own, drawn from the run's: who disturbs, when and for how long. What
threads and servers make of it is theirs, so a seed repeats the faults and not the interleaving; the
history of a violation is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from rich.console import Console

from loadtest.commands import demo
from loadtest.commands.demo import Progress, Setting
from loadtest.commands.faults import THREADS, refuse_others_servers
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
from loadtest.faults.testbed import TTL, Stage, until
from loadtest.judge.history import by_product, read
from loadtest.judge.verdict import judge
from loadtest.report.timeline import timeline
from loadtest.stack.results import RESULTS, now, result_folder

STOCK = 12
BUYERS = 20
#: Seconds in which the buyers of a rush come, and how many disturbances they may meet.
COME_WITHIN = 2.0
MOST_AT_ONCE = 3
#: Seconds after the last disturbance in which everybody must have an answer that stands.
PATIENCE = 60.0
#: After these a holder may have lost its lock: two at a time, and the fence decides.
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
    """Rush after rush until the time is over or one is violated. 0 if none was.

    Raises StackError, with a server that is not the run's own, or when a part does not start.
    """
    refuse_others_servers()
    started = now()
    chance = Random(seed)
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=verbose))
        folder = everything.enter_context(result_folder(started))
        stage = everything.enter_context(Stage(log=folder.log, progress=progress, threads=THREADS))
        console.print(f"chaos for {minutes:g} minutes, seed {seed}", highlight=False)
        end = time.monotonic() + minutes * 60
        rushes: list[dict[str, Any]] = []
        while time.monotonic() < end and not (rushes and rushes[-1]["broken"]):
            left = max(0, end - time.monotonic()) / 60
            progress(f"rush {len(rushes) + 1}, {left:.1f} minutes left")
            rushes.append(_rush(stage, len(rushes) + 1, chance.getrandbits(32)))
            said = ", ".join(rushes[-1]["disturbed"])
            if verbose or rushes[-1]["broken"]:
                console.print(f"rush {len(rushes)}: {said}", highlight=False)
        broken = rushes[-1]["broken"]
        summary = {
            "started": started.isoformat(timespec="seconds"),
            "seed": seed,
            "minutes": minutes,
            **demo.summary_of(stage, Setting(nodes=2, workers=1)),
            "rushes": rushes,
        }
        (folder.path / "chaos.json").write_text(json.dumps(summary, indent=1) + "\n")
        if broken:
            lines = [json.dumps(event) + "\n" for event in read(stage.files())]
            (folder.path / "history.jsonl").write_text("".join(lines))
        progress("stopping")
        kept = folder.finish()
    for one in broken:
        console.print(f"{one['lock']}: {one['verdict']} {one['violations']}", style="bold red")
        console.print("\n".join(one["story"]), highlight=False)
    orders = sum(rush["orders"] for rush in rushes)
    disturbed = sum(len(rush["disturbed"]) for rush in rushes)
    console.print(
        f"{len(rushes)} rushes, {orders} orders, {disturbed} disturbances, "
        f"{len(broken)} violations; seed {seed}",
        style="bold",
    )
    console.print(f"{kept.relative_to(RESULTS.parent)}/chaos.json", highlight=False)
    return 1 if broken else 0


def _rush(stage: Stage, number: int, seed: int) -> dict[str, Any]:
    """One rush of every sound strategy at once."""
    chance = Random(seed)
    sales = [_open(stage, lock, number) for lock in UNBROKEN]
    shops = [stage.shop(node) for node in range(2)]
    buyers = [buyer for sale in sales for buyer in sale.buyers]
    chosen = chance.sample(DISTURBANCES, chance.randint(1, MOST_AT_ONCE))
    chance.shuffle(buyers)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        disturbing = pool.submit(_disturb, stage, chosen, Random(chance.getrandbits(32)))
        for place, buyer in enumerate(buyers):
            time.sleep(max(0.0, begun + COME_WITHIN * place / len(buyers) - time.monotonic()))
            buyer.start(*chance.sample(shops, 2))
        disturbing.result()
    stage.tell("chaos", "ok", "heal", "everything as it was")
    if not until(lambda: all(buyer.answered.is_set() for buyer in buyers), PATIENCE):
        for buyer in buyers:
            buyer.give_up()
    excused = {"overlap"} if TAKE_THE_LOCK & set(chosen) else set()
    found = [_judge(stage, sale, excused) for sale in sales]
    return {
        "rush": number,
        "seed": seed,
        "disturbed": [one.__name__ for one in chosen],
        "orders": sum(one["orders"] for one in found),
        "seconds": round(time.monotonic() - begun, 2),
        "broken": [one for one in found if one["broken"]],
    }


def _open(stage: Stage, lock: str, number: int) -> Sale:
    product = f"{lock}-chaos-{number}_"
    sale = int(stage.shop(1).restock(product=product, stock=STOCK)["sale"])
    who = [f"chaos-{number}/{lock}/buyer-{n:02}" for n in range(BUYERS)]
    buyers = [Buyer(stage.history, attempt=key, lock=lock, product=product) for key in who]
    return Sale(lock, product, sale, buyers)


def _disturb(stage: Stage, chosen: Sequence[Disturbance], chance: Random) -> None:
    """One after the other, each at its moment and for its time."""
    for disturbance in chosen:
        time.sleep(chance.uniform(0, COME_WITHIN / len(chosen)))
        stage.tell("chaos", "invoke", "fire", disturbance.__name__)
        for seconds in disturbance(stage, chance):
            time.sleep(seconds)
        stage.tell("chaos", "ok", "prove", f"{disturbance.__name__} is over")


def _judge(stage: Stage, sale: Sale, excused: set[str]) -> dict[str, Any]:
    shop = stage.shop(1)
    report = shop.sale(sale.number)
    history = by_product(read(stage.files()))[sale.product]
    judgement = judge(
        initial_stock=STOCK,
        stock_left=int(report["stock_left"]),
        orders=shop.orders(sale.number),
        told=[buyer.told for buyer in sale.buyers if buyer.first],
        history=history,
        ttl=TTL,
    )
    broken = judgement.verdict != "exact" or set(judgement.violations) - excused
    return {
        "lock": sale.lock,
        "orders": judgement.orders,
        "verdict": judgement.verdict,
        "violations": list(judgement.violations),
        "broken": bool(broken),
        "story": timeline(history, judgement) if broken else [],
    }
