"""The page to project, and what it asks the shop for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie

from shop.api.answers import endpoint
from shop.api.parse import DEMO_PRODUCT, integer_of, parse_product
from shop.demo import rush, steps
from shop.demo.code import blocks_of
from shop.demo.lesson import lesson
from shop.errors import BadInput, Forbidden, Unavailable
from shop.ops.connections import beside_the_pool
from shop.sale import reports
from shop.strategies import STRATEGIES, Strategy

#: How many sales the page shows side by side.
SHOWN = 12
#: Field of the form -> its least and its largest value, which a browser keeps by itself.
BOUNDS = {
    "buyers": (1, 20_000),
    "stock": (0, 10_000),
    "hold_ms": (0, settings.SHOP_LONGEST_HOLD_MS),
}
#: A strategy's `needs` -> what to set if its servers are missing.
MISSING = {
    "REDLOCK_URLS": "needs five more Redis servers: REDLOCK_URLS",
    "ZOOKEEPER_HOSTS": "needs ZooKeeper: ZOOKEEPER_HOSTS",
}
#: What is said of a run, or nothing yet, that one order too many of its sale refutes.
NOT_OVERSOLD = {"", "exact", "undersold", "stopped"}


@ensure_csrf_cookie
@endpoint("GET", shown=True)
def index(request: HttpRequest) -> HttpResponse:
    shown = {
        "choices": [(one, _missing(one)) for one in STRATEGIES.values()],
        "bounds": BOUNDS,
        "runs_rushes": bool(settings.SHOP_RUSH_FOLDER),
        "product": DEMO_PRODUCT,
        "buyers": steps.BUYERS,
        "deadline": rush.DEADLINE,
        "step_minutes": round(settings.SHOP_DEMO_STEP_TIMEOUT / 60, 1),
        "lesson": lesson(request.GET),
    }
    return render(request, "shop/page.html", shown)


@endpoint("GET", shown=True)
def state(request: HttpRequest) -> HttpResponse:
    """What the page asks for up to four times a second: one query, and a look into Redis."""
    product = parse_product(request.GET)
    with beside_the_pool():
        newest = reports.recent_reports(product, steps.PRODUCT)
    sales = {sale["product"]: sale for sale in newest}
    now, runs = rush.state()
    sale = named(sales[product], runs, now["rush"]) if product in sales else None
    try:
        round_now = steps.state()
    except redis.RedisError:
        round_now = None  # the shelf is worth showing without it
    if round_now is not None:
        round_now["sale"] = sales.get(steps.PRODUCT)
    return JsonResponse({"sale": sale, "rush": now, "steps": round_now})


@endpoint("GET", shown=True)
def history(request: HttpRequest) -> HttpResponse:
    """The newest sales, without those that nobody came to."""
    product = parse_product(request.GET)
    with beside_the_pool():
        sales = reports.recent_reports(product, count=SHOWN)
    now, runs = rush.state()
    came = [one for one in sales if one["open"] or one["orders"] or one["sale"] in runs]
    return JsonResponse({"sales": [named(sale, runs, now["rush"]) for sale in came]})


def named(
    sale: Mapping[str, Any], runs: Mapping[int, dict[str, Any]], now: dict[str, Any] | None
) -> dict[str, Any]:
    """The sale with its `verdict`, its `lock`, whether a rush `is_on` for it, and the figures of
    its `run`.

    runs  sale -> what Locust says of its rush, as in `summary.json`, from its end on
    now   the rush that is on, None if none is

    While it runs, and for a sale without a rush, only the orders decide: `oversold`, else
    `running`, `exact`, `open` or `closed`. A rush that somebody stopped is `stopped`, unless it had
    oversold by then.
    """
    run = runs.get(sale["sale"], {})
    rush_on = now if now and now["sale"] == sale["sale"] else {}
    known = run or rush_on
    ended = "stopped" if run.get("stopped") else run.get("verdict", "")
    exact = sale["orders"] == sale["initial_stock"] and not sale["lost_updates"]
    by_hand = "exact" if exact else "open" if sale["open"] else "closed"
    refuted = sale["oversold"] and ended in NOT_OVERSOLD
    return {
        **sale,
        "verdict": "oversold" if refuted else ended or ("running" if rush_on else by_hand),
        "lock": known.get("lock") or ", ".join(sale["locks"]),
        "is_on": bool(rush_on),
        "run": {name: known.get(name) for name in ("buyers", "hold_ms", "duration_s")},
    }


@endpoint("GET", shown=True)
def code(request: HttpRequest, lock: str) -> HttpResponse:
    if lock not in STRATEGIES:
        raise BadInput("unknown lock", allowed=STRATEGIES)
    return JsonResponse({"blocks": blocks_of(STRATEGIES[lock])})


@endpoint("POST")
def start_rush(request: HttpRequest) -> HttpResponse:
    with _demo():
        wanted: dict[str, Any] = {"lock": _lock_of(request.POST)}
        for name, (least, most) in BOUNDS.items():
            wanted[name] = integer_of(request.POST, name, default=None, least=least, most=most)
        rush.start({**wanted, "product": DEMO_PRODUCT})
    return JsonResponse({"started": wanted}, status=202)


@endpoint("POST")
def stop_rush(request: HttpRequest) -> HttpResponse:
    with _demo(), beside_the_pool():
        rush.stop(product=DEMO_PRODUCT)
    return JsonResponse({}, status=202)


@endpoint("POST")
def begin_steps(request: HttpRequest) -> HttpResponse:
    with _demo():
        round_id = steps.begin(_lock_of(request.POST))
    return JsonResponse({"round": round_id}, status=201)


@endpoint("POST")
def step(request: HttpRequest) -> HttpResponse:
    with _demo():
        steps.step(request.POST.get("round", ""), request.POST.get("buyer", ""))
    return JsonResponse({}, status=202)


@contextmanager
def _demo() -> Iterator[None]:
    """Only in a demo, and only while Redis answers: what the page starts is kept there."""
    if not settings.SHOP_DEMO:
        start = "start the shop with make serve, or with SHOP_DEMO=1."
        raise Forbidden(f"This works in a demo only: {start}")
    try:
        yield
    except redis.RedisError as error:
        raise Unavailable("Redis does not answer; nothing was started") from error


def _lock_of(given: Mapping[str, str]) -> str:
    """The strategy of a form. Raises BadInput."""
    choosable = [one.name for one in STRATEGIES.values() if not _missing(one)]
    if given.get("lock") not in choosable:
        raise BadInput("unknown lock", allowed=choosable)
    return given["lock"]


def _missing(strategy: Strategy) -> str:
    """Why a strategy cannot be chosen here, or an empty text."""
    if not strategy.needs or getattr(settings, strategy.needs):
        return ""
    return MISSING[strategy.needs]
