"""Views of the demo: its page, which a teacher projects on a wall, and what the page requests.

The page shows rushes (many buyers at the same moment) and rounds (two buyers, each moved one step
at a time by a button).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie

from demo import rush_folder, steps
from demo.lesson import read_lesson
from demo.source import read_source_blocks
from shop.api.answers import endpoint
from shop.api.parse import DEFAULT_PRODUCT, parse_integer, parse_product
from shop.errors import BadInput, Unavailable
from shop.ops.connections import use_spare_connection
from shop.ops.database import read_database_software
from shop.sale import reports
from shop.strategies import STRATEGIES, Strategy

#: Maximum number of sales in the page's table.
MAX_SALES_SHOWN = 12
#: Field of the form -> its minimum and its maximum.
FORM_BOUNDS = {
    "buyers": (1, 20_000),
    "stock": (0, 10_000),
    "hold_ms": (0, settings.SHOP_LONGEST_HOLD_MS),
}
#: Setting that a strategy may need -> the message on the page if the setting is empty.
MISSING_SERVERS = {
    "REDLOCK_URLS": "needs five more Redis servers: set REDLOCK_URLS",
    "ZOOKEEPER_HOSTS": "needs ZooKeeper: set ZOOKEEPER_HOSTS",
}
#: Verdicts of a rush that the page replaces by `oversold` if the sale has too many orders. The
#: empty text stands for a sale without a finished rush.
VERDICTS_OVERRIDDEN_BY_OVERSELLING = {"", "exact", "undersold", "stopped"}


@ensure_csrf_cookie
@endpoint("GET")
def index(request: HttpRequest) -> HttpResponse:
    """Answer with the page of the demo: its forms and, with `lesson` in the URL, a lesson."""
    context = {
        "strategy_choices": [
            (strategy, _explain_unavailability(strategy)) for strategy in STRATEGIES.values()
        ],
        "database": read_database_software(),
        "bounds": FORM_BOUNDS,
        "runs_rushes": bool(settings.SHOP_RUSH_FOLDER),
        "product": DEFAULT_PRODUCT,
        "buyers": steps.BUYERS,
        "deadline": rush_folder.DEADLINE_SECONDS,
        "step_minutes": round(settings.SHOP_DEMO_STEP_TIMEOUT / 60, 1),
        "lesson": read_lesson(request.GET),
    }
    return render(request, "demo/page.html", context)


@endpoint("GET")
def state(request: HttpRequest) -> HttpResponse:
    """Answer with what the page shows: the latest sale, the rush, and the round.

    A rush is many buyers at the same moment. A round is two buyers, each moved one step at a time.
    The page requests this up to four times a second, so it costs only one query of the database and
    at most two reads of Redis.
    """
    product = parse_product(request.GET)
    with use_spare_connection():
        latest_sales = reports.read_recent_reports(product, steps.PRODUCT)
    sales_by_product = {sale["product"]: sale for sale in latest_sales}
    rush_state, finished_rushes = rush_folder.read_rushes()
    sale = None
    if product in sales_by_product:
        sale = add_rush_fields(sales_by_product[product], finished_rushes, rush_state["rush"])
    try:
        current_round = steps.read_round_state()
    except redis.RedisError:
        current_round = None  # the page can show the stock and the orders without the round
    if current_round is not None:
        current_round["sale"] = sales_by_product.get(steps.PRODUCT)
    return JsonResponse({"sale": sale, "rush": rush_state, "steps": current_round})


@endpoint("GET")
def history(request: HttpRequest) -> HttpResponse:
    """Answer with the newest sales.

    A closed sale is left out if it has neither an order nor a rush (many buyers at one moment).
    """
    product = parse_product(request.GET)
    with use_spare_connection():
        sales = reports.read_recent_reports(product, count=MAX_SALES_SHOWN)
    rush_state, finished_rushes = rush_folder.read_rushes()
    shown_sales = [
        add_rush_fields(sale, finished_rushes, rush_state["rush"])
        for sale in sales
        if sale["open"] or sale["orders"] or sale["sale"] in finished_rushes
    ]
    return JsonResponse({"sales": shown_sales})


def add_rush_fields(
    sale: Mapping[str, Any],
    finished_rushes: Mapping[int, dict[str, Any]],
    current_rush: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the report of a sale with further fields about the sale's rush.

    A rush is many buyers who buy at the same moment. A sale has at most one rush.

    finished_rushes  number of a sale -> the figures of its finished rush, as in the load test's
                     `summary.json`
    current_rush     the current rush, of this or another sale; None if no rush is running

    The further fields are:

    verdict  such as `exact` or `running`; _choose_verdict() lists them
    why      the reason for the verdict `unknown`; empty for any other verdict
    lock     the strategy of the rush; without a rush, the strategies of the orders
    is_on    whether the sale's rush is running
    run      buyers, hold_ms and duration_s of the rush; each is None if it is unknown
    """
    finished_rush = finished_rushes.get(sale["sale"], {})
    running_rush: Mapping[str, Any] = {}
    if current_rush is not None and current_rush["sale"] == sale["sale"]:
        running_rush = current_rush
    figures = finished_rush or running_rush
    verdict = _choose_verdict(sale, finished_rush, is_rush_running=bool(running_rush))
    why = ""
    if verdict == "unknown":
        why = finished_rush.get("why", "")
    return {
        **sale,
        "verdict": verdict,
        "why": why,
        "lock": figures.get("lock") or ", ".join(sale["locks"]),
        "is_on": bool(running_rush),
        "run": {name: figures.get(name) for name in ("buyers", "hold_ms", "duration_s")},
    }


def _choose_verdict(
    sale: Mapping[str, Any], finished_rush: Mapping[str, Any], *, is_rush_running: bool
) -> str:
    """Return the verdict on a sale that the page shows: the first of these that applies.

    - `oversold` if the sale has too many orders, and the verdict of its finished rush is one of
      VERDICTS_OVERRIDDEN_BY_OVERSELLING
    - `stopped` if the sale's rush was stopped by hand
    - the verdict of the sale's finished rush
    - `running` if the sale's rush is running
    - `exact` if every unit was sold once
    - `open` or `closed`

    finished_rush  the figures of the sale's finished rush; empty if there was no rush
    """
    rush_verdict = str(finished_rush.get("verdict", ""))
    if finished_rush.get("stopped"):
        rush_verdict = "stopped"
    if sale["oversold"] and rush_verdict in VERDICTS_OVERRIDDEN_BY_OVERSELLING:
        return "oversold"
    if rush_verdict:
        return rush_verdict
    if is_rush_running:
        return "running"
    if sale["orders"] == sale["initial_stock"] and not sale["lost_updates"]:
        return "exact"
    if sale["open"]:
        return "open"
    return "closed"


@endpoint("GET")
def code(request: HttpRequest, lock: str) -> HttpResponse:
    """Answer with the source code of a strategy, whose decisive lines the page highlights."""
    if lock not in STRATEGIES:
        raise BadInput("unknown lock", allowed=STRATEGIES)
    return JsonResponse({"blocks": read_source_blocks(STRATEGIES[lock])})


@endpoint("GET")
def curve(request: HttpRequest, sale_id: int) -> HttpResponse:
    """Answer with the points of a chart: for each order, its time and the stock its buyer read."""
    with use_spare_connection():
        return JsonResponse({"sale": sale_id, "curve": reports.read_curve(sale_id)})


@endpoint("POST")
def start_rush(request: HttpRequest) -> HttpResponse:
    """Write down a request for a rush, which `make serve` then runs. The form has its options.

    In a rush, many buyers buy at the same moment.
    """
    rush: dict[str, Any] = {"lock": _parse_strategy(request.POST)}
    for name, (minimum, maximum) in FORM_BOUNDS.items():
        rush[name] = parse_integer(
            request.POST,
            name,
            default=None,  # the field is required
            minimum=minimum,
            maximum=maximum,
        )
    rush_folder.request_rush({**rush, "product": DEFAULT_PRODUCT})
    return JsonResponse({"started": rush}, status=202)


@endpoint("POST")
def stop_rush(request: HttpRequest) -> HttpResponse:
    """Stop the current rush (many buyers at the same moment), and close its sale."""
    with use_spare_connection():
        rush_folder.stop_rush(product=DEFAULT_PRODUCT)
    return JsonResponse({}, status=202)


@endpoint("POST")
def begin_steps(request: HttpRequest) -> HttpResponse:
    """Begin a round: two buyers of one unit, moved by buttons. Answer with the id of the round.

    The form has the name of the strategy.
    """
    with _translate_redis_errors():
        round_id = steps.begin_round(_parse_strategy(request.POST))
    return JsonResponse({"round": round_id}, status=201)


@endpoint("POST")
def step(request: HttpRequest) -> HttpResponse:
    """Move one of the two buyers of the current round by one step of its purchase."""
    with _translate_redis_errors():
        steps.advance_buyer(request.POST.get("round", ""), request.POST.get("buyer", ""))
    return JsonResponse({}, status=202)


@contextmanager
def _translate_redis_errors() -> Iterator[None]:
    """Raise Unavailable, which the page shows, instead of an error of Redis."""
    try:
        yield
    except redis.RedisError as error:
        raise Unavailable("Redis does not answer; start it and try again") from error


def _parse_strategy(form: Mapping[str, str]) -> str:
    """Return the name of the strategy in a form.

    Raises BadInput if there is no such strategy, or if it needs a server that is not there.
    """
    available = [
        strategy.name for strategy in STRATEGIES.values() if not _explain_unavailability(strategy)
    ]
    name = form.get("lock")
    if name not in available:
        raise BadInput("unknown lock", allowed=available)
    return name


def _explain_unavailability(strategy: Strategy) -> str:
    """Return why a strategy cannot be chosen on the page. Empty if it can be chosen."""
    if not strategy.works_with(connection.vendor):
        return f"does not work with {read_database_software()}"
    if not strategy.needs or getattr(settings, strategy.needs):
        return ""
    return MISSING_SERVERS[strategy.needs]
