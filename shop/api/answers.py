"""JSON out: one method per view, errors as status codes, the bearer token."""

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.errors import Forbidden, ShopError, Unavailable
from shop.ops.connections import discard_dead

logger = logging.getLogger("shop.api")

#: What becomes an answer wherever a view raises it.
REFUSED = (ShopError, OperationalError, InterfaceError)

View = Callable[..., HttpResponse]


class Answer(JsonResponse):
    """JSON, and what the access line and the metrics say of a purchase that it answers."""

    facts: Mapping[str, Any] = {}


def endpoint(method: str, *, shown: bool = False) -> Callable[[View], View]:
    """A view for one method; every ShopError that it raises becomes the answer.

    shown  it exists to be shown: 404 outside a demo
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if shown and not settings.SHOP_DEMO:
                raise Http404
            allowed = ("GET", "HEAD") if method == "GET" else (method,)
            if request.method not in allowed:
                body = {"outcome": "error", "error": f"use {method}", "allowed": list(allowed)}
                return JsonResponse(body, status=405, headers={"Allow": ", ".join(allowed)})
            try:
                return view(request, *args, **kwargs)
            except REFUSED as error:
                return refused(request, error)

        # Reading changes nothing: another method is 405 here, and not 403 for want of a CSRF token.
        return csrf_exempt(answer) if method == "GET" else answer

    return decorate


def refused(request: HttpRequest, error: Exception) -> HttpResponse:
    """The answer for one of REFUSED."""
    if isinstance(error, ShopError):
        return refusal(error)
    assert isinstance(error, OperationalError | InterfaceError)
    logger.warning("%s: PostgreSQL: %s", request.path, error)
    discard_dead(error)
    return refusal(Unavailable("the database does not answer; nothing was changed"))


def refusal(error: ShopError) -> Answer:
    """The one place where an error becomes a status code."""
    body: dict[str, Any] = {"outcome": error.outcome, "error": str(error)}
    if error.allowed is not None:
        body["allowed"] = error.allowed
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    answer = Answer(body, status=error.status, headers=headers)
    answer.facts = {"outcome": error.outcome}
    return answer


def has_token(request: HttpRequest) -> bool:
    """Whether the request carries the bearer token of the environment."""
    given = request.headers.get("Authorization", "")
    wanted = f"Bearer {settings.SHOP_RESTOCK_TOKEN}"
    right = secrets.compare_digest(given.encode(), wanted.encode())
    return bool(settings.SHOP_RESTOCK_TOKEN) and right


def require_token(request: HttpRequest) -> None:
    """Raises Forbidden for a request without the bearer token."""
    if not has_token(request):
        raise Forbidden
