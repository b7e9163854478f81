"""What a load run does; its figures, from what its buyers asked; and the verdict on it: each
product's sale is judged as the sale of a rush is. Times are monotonic seconds."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from loadtest.judge.intervals import Request, grouped
from loadtest.judge.sale_record import FINAL
from loadtest.judge.verdict import Judgement
from loadtest.rush.figures import percentiles, recorded
from loadtest.stack.client import Shop

#: The most clients, and the most buyers of the open model who wait for an answer at a time.
MOST_CLIENTS = 2_000
#: The most seconds of one measurement, and the most arrivals in a second.
MOST_SECONDS, MOST_ARRIVALS = 600.0, 5_000
#: How the times between arrivals are drawn.
EXPONENTIAL, CONSTANT = "exponential", "constant"
#: Without --lock: no lock, then three that are exact and wait in different places.
LOCKS = ("none", "row-lock", "conditional", "redis")
#: Threads of a worker in the open model, and the most that the closed one gives it.
THREADS, MOST_THREADS = 100, 500
#: Seconds until orders that were promised have to be there: a strategy may settle them later.
SETTLED_WITHIN = 30.0
#: Answers that say that nothing was sold. A buyer who had no others is left out of the verdict; an
#: order with its key is then one that nobody asked for.
REFUSED = frozenset({"busy", "lost", "unavailable", "throttled"})
#: The worst first.
WORST = ("oversold", "undersold", "deadlock", "unknown", "exact")
#: What is added up over the products.
SUMS = ("initial_stock", "orders", "stock_left", "oversold", "undersold", "lost_updates")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What `python -m loadtest load` is asked for. Its options say what each field means.

    arrivals_per_second  0 is the closed model
    """

    locks: Sequence[str] = LOCKS
    clients: int = 64
    arrivals_per_second: float = 0.0
    arrivals: str = EXPONENTIAL
    cap: int = MOST_CLIENTS
    products: int = 1
    skew: float = 1.1
    stock: int = 20_000
    seconds: float = 10.0
    warm_up: float = 1.0
    hold_ms: int = 0
    nodes: int = 2
    workers: int = 2
    locust_workers: int = 1
    rounds: int = 1

    @property
    def threads(self) -> int:
        """Threads of each worker. A node's clients may all meet the same one."""
        if self.arrivals_per_second:
            return THREADS
        return min(MOST_THREADS, max(1, ceil(self.clients / self.nodes)))

    @property
    def users(self) -> int:
        """Number of Locust's users: clients, or one arrival process in each of its processes."""
        return self.locust_workers if self.arrivals_per_second else self.clients


@dataclass(frozen=True, kw_only=True)
class Plan(Chosen):
    """One strategy, loaded once.

    id     what the Idempotency-Keys begin with
    sales  the number of each product's sale, by product
    hosts  the addresses of the nodes
    pids   the processes of each part of the shop, whose processor time is measured
    """

    id: str
    lock: str
    sales: Mapping[str, int]
    hosts: Sequence[str]
    pids: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Measured:
    """What Locust recorded and measured in a run, from `begin` to `end`.

    requests     of each product's buyers; the first of each purchase was sent when it was to be
    cpu          processor seconds of each part in that time; None where they cannot be read
    is_busy      whether Locust computed for more than 90 % of the time
    turned_away  open model: arrivals above the cap
    shares       processes whose buyers are known
    """

    requests: Mapping[str, Sequence[Request]]
    begin: float
    end: float
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    is_busy: bool = False
    turned_away: int = 0
    shares: int = 1

    @cached_property
    def purchases(self) -> list[list[Request]]:
        """The requests of each purchase."""
        groups = (grouped(asked, lambda r: r.attempt).values() for asked in self.requests.values())
        return [asked for of_product in groups for asked in of_product]


def measured(folder: Path) -> Measured:
    """What a run left in its folder."""
    files = [json.loads(path.read_text()) for path in folder.glob("buyers-*.json")]
    requests: dict[str, list[Request]] = defaultdict(list)
    for file in files:
        for product, found in file["requests"].items():
            requests[product] += [Request(*one) for one in found]
    return Measured(
        requests,
        turned_away=sum(file["turned_away"] for file in files),
        shares=len(files),
        **json.loads((folder / "window.json").read_text()),
    )


def jain(counts: Iterable[float]) -> float | None:
    """Jain's fairness index: 1 if all got as much, 1 / n if one of n got it all; None if nobody got
    anything.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.
    """
    values = list(counts)
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 3) if squares else None


def figures(found: Measured, plan: Plan) -> dict[str, Any]:
    """The figures of a run as `summary.json` has them. A sale that ran out is measured until its
    last unit.

    measured_s       seconds that were measured, without the warm-up
    ended_by         `time` or `stock`
    sold, sold_per_s units sold in them, and a second
    answer_ms        of the buyers who arrived in them and were sold a unit or answered sold_out:
                     from when the request was to be sent to the last answer
    p99_to_p50       how unevenly buyers wait
    jain             of the units sold to each client; None in the open model
    errors           answers that were neither sold nor sold_out
    cpu_ms_per_sale  milliseconds of processor time a sold unit, by part; None: not known
    """
    bought = sorted((one[-1].answered or 0, one[-1].attempt) for one in found.purchases
                    if one[-1].outcome == "sold")  # fmt: skip
    begin, end = found.begin * 1e9, found.end * 1e9
    ran_out = 0 < plan.stock * plan.products <= len(bought) and bought[-1][0] < end
    end = bought[-1][0] if ran_out else end
    seconds = max((end - begin) / 1e9, 1e-9)
    arrived = [one for one in found.purchases if begin <= one[0].sent < end]
    waited = [
        (one[-1].answered - one[0].sent) / 1e6
        for one in arrived
        if one[-1].outcome in FINAL and one[-1].answered
    ]
    sold = [attempt for answered, attempt in bought if begin <= answered <= end]
    units = Counter(attempt.rpartition("-")[0] for attempt in sold)  # by client
    answers = Counter(request.outcome for one in arrived for request in one)
    answer_ms = percentiles(waited, 50, 99)
    return {
        "measured_s": round(seconds, 3),
        "ended_by": "stock" if ran_out else "time",
        "sold": len(sold),
        "sold_per_s": round(len(sold) / seconds, 1),
        "answer_ms": answer_ms,
        "p99_to_p50": round(answer_ms["p99"] / answer_ms["p50"], 2) if answer_ms["p50"] else None,
        "jain": None
        if plan.arrivals_per_second
        else jain(units[f"{plan.id}/c{number}"] for number in range(plan.clients)),
        "answers": dict(answers),
        "errors": sum(count for name, count in answers.items() if name not in FINAL),
        "cpu_ms_per_sale": {
            part: None if spent is None or not sold else round(spent * 1000 / len(sold), 2)
            for part, spent in found.cpu.items()
        },
        "locust_is_busy": found.is_busy,
        "turned_away": found.turned_away,
    }


def judged(plan: Plan, found: Measured, shop: Shop) -> dict[str, Any]:
    """The fields of a run that the judge finds, over all products; the verdict is the worst of a
    product's. Waits for orders that a strategy settles later. Raises ShopUnreachable."""
    refused = {
        one[0].attempt for one in found.purchases if {asked.outcome for asked in one} <= REFUSED
    }
    products: list[dict[str, Any]] = []
    judgements: list[dict[str, Any]] = []
    for product, sale in plan.sales.items():
        report = shop.settled_sale(sale, seconds=SETTLED_WITHIN)
        orders, left = int(report["orders"]), int(report["stock_left"])
        lag = report.get("settlement_lag_ms") or {"p99": None}
        sums = {"asked": plan.stock, "orders": orders, "left": left, "lag": lag["p99"]}
        products.append({"product": product, "sale": sale, **sums})
        asked = [one for one in found.requests.get(product, ()) if one.attempt not in refused]
        judgement = Judgement(
            events=recorded(asked, plan.lock, product, sale),
            initial_stock=plan.stock,
            opened=int(report["initial_stock"]),
            stock_left=left,
            orders=shop.orders(sale) if asked or orders else (),
            unsettled=report.get("unsettled", 0),
            lock=plan.lock,
            product=product,
            sale=sale,
        )
        nobody_came = not asked and not orders and left == plan.stock
        judgements.append(
            {**judgement.as_run(), **({"verdict": "exact", "why": ""} if nobody_came else {})}
        )
    worst = min(judgements, key=lambda one: WORST.index(one["verdict"]))
    outcomes = sum((Counter(one["outcomes"]) for one in judgements), Counter[str]())
    lags = [one["lag"] for one in products if one["lag"] is not None]
    return {
        **worst,
        **{name: sum(one[name] for one in judgements) for name in SUMS},
        "outcomes": dict(outcomes),
        "never_answered": len(refused) + sum(one["never_answered"] for one in judgements),
        "violations": list(dict.fromkeys(rule for one in judgements for rule in one["violations"])),
        "findings": [what for one in judgements for what in one["findings"]],
        "settlement_lag_ms": max(lags, default=None),
        "products": products,
    }
