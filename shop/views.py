"""Thin views: parse, call, answer."""

from collections.abc import Callable
from dataclasses import asdict

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.api.answers import Answer, endpoint, has_token, require_token
from shop.api.parse import parse_attempt, parse_buyers, parse_page, parse_product, parse_restock
from shop.ops import health
from shop.ops.connections import beside_the_pool
from shop.sale import opening, reports
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt, Receipt
from shop.strategies import STRATEGIES

#: What GET /strategies says of each as it stands in the registry.
LISTED = (
    *("name", "title", "article", "summary", "file", "backend", "sound", "renewed", "fenced"),
    *("takes_over", "reserves", "deferred", "needs"),
)


# No cookie gives any right here, so there is nothing that a forged request could borrow.
@csrf_exempt
@endpoint("POST")
def buy(request: HttpRequest) -> HttpResponse:
    attempt = parse_attempt(request)
    return sold(attempt, check_out(attempt))


def sold(attempt: Attempt, receipt: Receipt) -> HttpResponse:
    """The answer to a purchase that has its unit, and what the log and the metrics say of it."""
    bought = {"order": receipt.order_id, "sale": receipt.sale_id}
    body = {
        "outcome": "sold",
        **bought,
        "stock_seen": receipt.stock_seen,
        "replayed": receipt.replayed,
        "lock": {"name": attempt.lock, **receipt.lock},
    }
    answer = Answer(body, status=200 if receipt.replayed else 201)
    times = {name: receipt.lock.get(name) for name in ("waited_ms", "held_ms")}
    answer.facts = {"outcome": "replayed" if receipt.replayed else "sold", **bought, **times}
    return answer


@csrf_exempt
@endpoint("POST")
def restock(request: HttpRequest) -> HttpResponse:
    require_token(request)
    product, amount, lock = parse_restock(request)
    sale = opening.restock(product=product, amount=amount, lock=lock)
    return JsonResponse(reports.sale_report(sale.pk).as_dict(), status=201)


@endpoint("GET")
def strategies(request: HttpRequest) -> HttpResponse:
    listed = [
        {
            **{name: getattr(strategy, name) for name in LISTED},
            "expected": {"rush": strategy.rush},
            "available": not strategy.needs or bool(getattr(settings, strategy.needs)),
        }
        for strategy in STRATEGIES.values()
    ]
    return JsonResponse({"strategies": listed})


@endpoint("GET")
def sale(request: HttpRequest, sale_id: int | None = None) -> HttpResponse:
    """The report of a sale; without its number that of the product's latest."""
    buyers = parse_buyers(request)
    if sale_id is None:
        sale_id = reports.latest_sale_id(product=parse_product(request.GET))
    return JsonResponse(reports.sale_report(sale_id, buyers=buyers).as_dict())


@endpoint("GET")
def orders(request: HttpRequest, sale_id: int) -> HttpResponse:
    """Only with the token, in a demo too: a key is all that it takes to be told its order."""
    require_token(request)
    after, limit = parse_page(request)
    # One more than is shown: then there is a next page.
    found = reports.sale_orders(sale_id, after=after, limit=limit + 1)
    shown = found[:limit]
    following = shown[-1]["order"] if len(found) > limit else None
    return JsonResponse({"sale": sale_id, "orders": shown, "next": following})


@endpoint("GET", shown=True)
def curve(request: HttpRequest, sale_id: int) -> HttpResponse:
    with beside_the_pool():
        return JsonResponse({"sale": sale_id, "curve": reports.sale_curve(sale_id)})


@endpoint("GET")
def healthz(request: HttpRequest) -> HttpResponse:
    """Alive: this process answers. Touches no backend."""
    return JsonResponse({"status": "ok"})


@endpoint("GET")
def readyz(request: HttpRequest) -> HttpResponse:
    """Ready: everything that a sale needs answers, and this node is not about to stop. What the
    servers are, and what they say where they fail, is for a demo and for those with the token."""
    if health.is_stopping():
        return JsonResponse({"status": "stopping"}, status=503)
    parts = health.recent()
    ready = all(part.ok for part in parts)
    shown = [asdict(part) for part in parts]
    if not (settings.SHOP_DEMO or has_token(request)):
        shown = [{"name": part.name, "ok": part.ok} for part in parts]
    body = {"status": "ready" if ready else "not ready", "parts": shown}
    return JsonResponse(body, status=200 if ready else 503)


def _always(status: int, said: str, **more: object) -> Callable[..., HttpResponse]:
    """A view for Django's own refusals."""

    def view(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        return JsonResponse({"outcome": "error", "error": said, **more}, status=status)

    return view


#: Refused by Django before any view: a host that is not in ALLOWED_HOSTS, say.
bad_request = _always(400, "the shop does not take this request; its log says why")
permission_denied = _always(403, "this is not yours to do")
without_csrf_token = _always(
    403, "the form came without its CSRF token: load the page again, and send its cookie"
)
not_found = _always(404, "no such page", allowed=["POST /buy", "GET /strategies"])
#: An error that nobody foresaw. What it did is not known, so neither is the sale.
server_error = _always(500, "the shop failed; its log says why")
