"""The page to project, and what it asks the shop for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie

from shop.api.answers import endpoint
from shop.api.parse import DEMO_PRODUCT, parse_product
from shop.demo import rush, steps, verdict
from shop.demo.code import blocks_of
from shop.demo.forms import BOUNDS, choices, parse_form
from shop.demo.lesson import lesson
from shop.errors import BadInput, Unavailable
from shop.ops.connections import beside_the_pool
from shop.sale import reports
from shop.strategies import STRATEGIES

#: How many sales the page shows side by side.
SHOWN = 12


@ensure_csrf_cookie
@endpoint("GET", shown=True)
def index(request: HttpRequest) -> HttpResponse:
    shown = {
        "choices": choices(),
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
    body: dict[str, Any] = {"sale": None, "rush": None, "steps": None}
    try:
        body["rush"] = rush.state()
        round_now = steps.state()
    except redis.RedisError:
        round_now = None  # the shelf is worth showing without it
    if round_now is not None:
        body["steps"] = {**round_now, "sale": sales.get(steps.PRODUCT)}
    if product in sales:
        body["sale"] = _named_now(sales[product], body["rush"])
    return JsonResponse(body)


def _named_now(sale: dict[str, Any], now: dict[str, Any] | None) -> dict[str, Any]:
    """The newest sale with its verdict and lock, by what Locust said last."""
    of_sale = {
        which: it
        for which in ("last", "rush")
        if (it := (now or {}).get(which)) is not None and it.get("sale") == sale["sale"]
    }
    return verdict.named(sale, of_sale.get("last"), of_sale.get("rush"))


@endpoint("GET", shown=True)
def history(request: HttpRequest) -> HttpResponse:
    """The newest sales, each with its verdict, its lock and what Locust knows of its rush."""
    product = parse_product(request.GET)
    with beside_the_pool():
        sales = reports.recent_reports(product, count=SHOWN)
    runs = rush.runs()
    shown = []
    for sale in sales:
        run = runs.get(sale["sale"])
        if run is None and not sale["open"] and not sale["orders"]:
            continue  # nobody came
        figures = {name: (run or {}).get(name) for name in ("buyers", "hold_ms", "duration_s")}
        shown.append({**verdict.named(sale, run, None), "run": figures})
    return JsonResponse({"sales": shown})


@endpoint("GET", shown=True)
def code(request: HttpRequest, lock: str) -> HttpResponse:
    if lock not in STRATEGIES:
        raise BadInput("unknown lock", allowed=STRATEGIES)
    return JsonResponse({"blocks": blocks_of(STRATEGIES[lock])})


@endpoint("POST")
def start_rush(request: HttpRequest) -> HttpResponse:
    with _demo():
        wanted = parse_form(request, *BOUNDS)
        rush.start(**wanted, product=DEMO_PRODUCT)
    return JsonResponse({"started": wanted}, status=202)


@endpoint("POST")
def stop_rush(request: HttpRequest) -> HttpResponse:
    with _demo(), beside_the_pool():
        rush.stop(product=DEMO_PRODUCT)
    return JsonResponse({}, status=202)


@endpoint("POST")
def begin_steps(request: HttpRequest) -> HttpResponse:
    with _demo():
        round_id = steps.begin(parse_form(request)["lock"])
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
        raise rush.DemoOnly
    try:
        yield
    except redis.RedisError as error:
        raise Unavailable("Redis does not answer; nothing was started") from error
