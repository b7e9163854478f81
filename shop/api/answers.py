"""JSON answers: one HTTP method per view, errors as status codes, the bearer token."""

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from shop.errors import Forbidden, ShopError, Unavailable
from shop.ops.connections import discard_dead_connections
from shop.ops.database import READ_ONLY_CODES, get_error_code, read_database_software

logger = logging.getLogger("shop.api")

#: Errors of a view that are turned into an answer. Other errors of the database are defects, which
#: Django answers with 500.
ANSWERED_ERRORS = (ShopError, OperationalError, InterfaceError)

View = Callable[..., HttpResponse]


class ShopResponse(JsonResponse):
    """A JSON answer. Its `log_fields` go to the access log and to the metrics."""

    log_fields: Mapping[str, Any] = {}


def endpoint(method: str) -> Callable[[View], View]:
    """Return a decorator for a view of one HTTP method; a view of GET also answers HEAD.

    Requests with another method are answered 405. Errors of the shop and its database become
    answers (see can_answer_error()); other errors are raised.
    """

    allowed = [method]
    if method == "GET":
        allowed.append("HEAD")

    def decorate(view: View) -> View:
        @wraps(view)
        def call_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if request.method not in allowed:
                body = {"outcome": "error", "error": f"use {method}", "allowed": allowed}
                return JsonResponse(body, status=405, headers={"Allow": ", ".join(allowed)})
            try:
                return view(request, *args, **kwargs)
            except Exception as error:
                if not can_answer_error(error):
                    raise
                return answer_error(request, error)

        if method == "GET":
            # A POST to this view should be answered 405, and not 403 for a missing CSRF token.
            return csrf_exempt(call_view)
        return call_view

    return decorate


def can_answer_error(error: Exception) -> bool:
    """Return whether answer_error() can answer an error of a view.

    It can answer ANSWERED_ERRORS, and the error of a write to a read-only database.
    """
    if isinstance(error, InternalError):
        return get_error_code(error) in READ_ONLY_CODES
    return isinstance(error, ANSWERED_ERRORS)


def answer_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return the answer to a request whose view raised an error of the shop or its database.

    If the error shows that the database connection is dead, dead connections are closed.
    """
    if isinstance(error, ShopError):
        return make_refusal(error)
    assert isinstance(error, OperationalError | InterfaceError | InternalError)
    logger.warning("%s: %s: %s", request.path, read_database_software(), error)
    discard_dead_connections(error)
    if request.method in ("GET", "HEAD"):
        return make_refusal(Unavailable("the database does not answer; nothing was changed"))
    # The connection may have been lost during the commit, so the change may have been made.
    advice = "send the request again with the same Idempotency-Key"
    return make_refusal(Unavailable(f"the database does not answer: {advice}"))


def make_refusal(error: ShopError) -> ShopResponse:
    """Return the answer with the status code and the message of an error."""
    body: dict[str, Any] = {"outcome": error.outcome, "error": str(error)}
    if error.allowed is not None:
        body["allowed"] = error.allowed
    answer = ShopResponse(body, status=error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    answer.log_fields = {"outcome": error.outcome}
    return answer


def has_token(request: HttpRequest) -> bool:
    """Return whether the request has the bearer token SHOP_RESTOCK_TOKEN."""
    header = request.headers.get("Authorization", "")
    expected_header = f"Bearer {settings.SHOP_RESTOCK_TOKEN}"
    is_equal = secrets.compare_digest(header.encode(), expected_header.encode())
    # If SHOP_RESTOCK_TOKEN is not set, the header "Bearer " would equal the expected header.
    return bool(settings.SHOP_RESTOCK_TOKEN) and is_equal


def require_token(request: HttpRequest) -> None:
    """Raise Forbidden for a request without the bearer token."""
    if not has_token(request):
        raise Forbidden
