"""Thin views: parse the request, call the shop, and answer.

A view raises the errors of the shop; the decorator `endpoint` turns them into answers.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import REASON_BAD_ORIGIN
from django.views.decorators.csrf import csrf_exempt

from shop.api.answers import ShopResponse, endpoint, has_token, require_token
from shop.api.parse import (
    parse_attempt,
    parse_buyers,
    parse_key,
    parse_page,
    parse_product,
    parse_restock,
)
from shop.api.throttle import enforce_rate_limit
from shop.ops import health
from shop.ops.database import read_database_software
from shop.sale import opening, reports
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt, Receipt
from shop.sale.strategy import Strategy
from shop.strategies import STRATEGIES

#: Fields of a strategy that GET /strategies lists.
LISTED_FIELDS = (
    "name",
    "title",
    "article",
    "summary",
    "file",
    "backend",
    "sound",
    "renewed",
    "fenced",
    "takes_over",
    "reserves",
    "deferred",
    "needs",
)


# A purchase needs no cookie, so a forged request gains nothing from the cookies of its victim.
@csrf_exempt
@endpoint("POST")
def buy(request: HttpRequest) -> HttpResponse:
    """Sell a unit. Refusals are exceptions, which the decorator turns into answers."""
    attempt = parse_attempt(request)  # the rate limit does not count malformed requests
    if settings.BUY_RATE_LIMIT is not None:
        enforce_rate_limit(request)
    return make_sold_answer(attempt, check_out(attempt))


def make_sold_answer(attempt: Attempt, receipt: Receipt) -> HttpResponse:
    """Return the answer to a successful purchase, with fields for the access log and metrics."""
    order = {"order": receipt.order_id, "sale": receipt.sale_id}
    lease = {}
    if receipt.lease is not None:
        lease = asdict(receipt.lease)
    body = {
        "outcome": "sold",
        **order,
        "stock_seen": receipt.stock_seen,
        "replayed": receipt.replayed,
        "lock": {"name": attempt.lock, **lease},
    }
    answer = ShopResponse(body, status=200 if receipt.replayed else 201)
    answer.log_fields = {
        "outcome": "replayed" if receipt.replayed else "sold",
        **order,
        "waited_ms": lease.get("waited_ms"),
        "held_ms": lease.get("held_ms"),
    }
    return answer


# A restock needs a bearer token, which no browser sends by itself.
@csrf_exempt
@endpoint("POST")
def restock(request: HttpRequest) -> HttpResponse:
    """Open a sale, and answer 201 with its report.

    If an earlier request with the same Idempotency-Key opened a sale, answer 200 with its report.
    """
    require_token(request)
    product, amount, lock = parse_restock(request)
    sale, is_replayed = opening.restock_once(
        product=product, amount=amount, lock=lock, key=parse_key(request)
    )
    report = reports.sale_report(sale.pk).as_dict()
    return JsonResponse(report, status=200 if is_replayed else 201)


@endpoint("GET")
def strategies(request: HttpRequest) -> HttpResponse:
    return JsonResponse(
        {"strategies": [describe_strategy(strategy) for strategy in STRATEGIES.values()]}
    )


def describe_strategy(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy as GET /strategies lists it."""
    description = {name: getattr(strategy, name) for name in LISTED_FIELDS}
    description["expected"] = {"rush": strategy.rush_verdict}
    why = explain_unavailability(strategy)
    description["available"] = not why
    if why:
        description["why"] = why
    return description


def explain_unavailability(strategy: Strategy) -> str:
    """Return the reason why this shop cannot sell under a strategy; empty if it can."""
    if not strategy.works_with(connection.vendor):
        return f"{strategy.name} does not work with {read_database_software()}"
    if strategy.needs and not getattr(settings, strategy.needs):
        return f"{strategy.name} needs the setting {strategy.needs}"
    return ""


#: Cached reports, for requests without the token outside a demo.
public_reports = reports.CachedReports(max_age_seconds=1.0)


@endpoint("GET")
def sale(request: HttpRequest, sale_id: int | None = None) -> HttpResponse:
    """Answer with the report of a sale, by default of the product's latest sale.

    Outside a demo, a request without the bearer token gets a cached report.
    """
    buyers = parse_buyers(request)
    if sale_id is None:
        sale_id = reports.find_latest_sale_id(product=parse_product(request.GET))
    if settings.SHOP_DEMO or has_token(request):
        report = reports.sale_report(sale_id)
    else:
        report = public_reports.get_report(sale_id)
    return JsonResponse(replace(report, buyers=buyers).as_dict())


@endpoint("GET")
def orders(request: HttpRequest, sale_id: int) -> HttpResponse:
    """Answer with a page of orders of a sale.

    This needs the token even in a demo, because the page shows Idempotency-Keys, with which anybody
    could repeat a purchase and get its receipt.
    """
    require_token(request)
    after, limit = parse_page(request)
    # Read one order more than the page shows, to learn whether there is a next page.
    page_and_next = reports.read_orders(sale_id, after=after, limit=limit + 1)
    page = page_and_next[:limit]
    has_next = len(page_and_next) > limit
    last_order = page[-1]["order"] if has_next else None
    return JsonResponse({"sale": sale_id, "orders": page, "next": last_order})


@endpoint("GET")
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process is alive, without a request to any server."""
    return JsonResponse({"status": "ok"})


@endpoint("GET")
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer whether this node can sell: every part of the stack is ready, and it is not stopping.

    A part is, for example, a server or the migrations. The details of the parts are shown only in a
    demo, or to a request with the token.
    """
    if health.is_stopping():
        return JsonResponse({"status": "stopping"}, status=503)
    parts = health.get_recent_parts()
    is_ready = all(part.ok for part in parts)
    if settings.SHOP_DEMO or has_token(request):
        part_bodies = [asdict(part) for part in parts]
    else:
        part_bodies = [{"name": part.name, "ok": part.ok} for part in parts]
    body = {"status": "ready" if is_ready else "not ready", "parts": part_bodies}
    return JsonResponse(body, status=200 if is_ready else 503)


def _make_error_view(
    status: int, message: str, allowed: list[str] | None = None
) -> Callable[..., HttpResponse]:
    """Return a view that replaces one of Django's error pages."""
    body: dict[str, object] = {"outcome": "error", "error": message}
    if allowed is not None:
        body["allowed"] = allowed

    def view(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        return JsonResponse(body, status=status)

    return view


def answer_csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 to a form that Django's CSRF check has refused, and say what to do."""
    message = "the form came without its CSRF token: load the page again, and send its cookie"
    origin = request.headers.get("Origin", "")
    if reason == REASON_BAD_ORIGIN % origin:
        message = (
            f"{origin[:100]} is not the address of this shop, {request.get_host()}: if you use "
            "that address yourself, as with a forwarded port, start the shop with "
            f"CSRF_TRUSTED_ORIGINS={origin[:100]}"
        )
    return JsonResponse({"outcome": "error", "error": message}, status=403)


#: For requests that Django refuses before any view, for example with an unknown Host.
bad_request = _make_error_view(400, "the shop refused this request; its log says why")
permission_denied = _make_error_view(403, "You do not have permission to do this.")
not_found = _make_error_view(404, "no such page", allowed=["POST /buy", "GET /strategies"])
#: For an unexpected error, after which a unit may or may not have been sold.
server_error = _make_error_view(500, "the shop failed; its log says why")
