"""Observation of requests: id, access line, metrics."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.signals import request_finished
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from shop.ops.logs import NO_REQUEST, choose_request_id, request_id

access = logging.getLogger("shop.access")
logger = logging.getLogger("shop.ops")

#: A client can make up any path.
MAX_LOGGED_PATH_CHARACTERS = 256
#: The route of requests without a view: a file, an unknown path, a refusal before any view.
NO_ROUTE = "other"
PURCHASE_ROUTE = "/buy"


class ObserveMiddleware(MiddlewareMixin):
    """Gives a request its id, which its answer and its log lines have, then logs and counts it.

    The facts of a purchase are in the `facts` of its answer. If METRICS_TOKEN is set, this answers
    GET /metrics: before the check of the Host and the redirect to HTTPS, because Prometheus asks
    each node by its address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self.metrics: Any = None
        if settings.METRICS_TOKEN:
            from shop.ops import metrics  # loads prometheus-client, so only where it is used

            self.metrics = metrics

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        request_id.set(choose_request_id(request.headers.get("X-Request-ID")))
        if self.metrics is not None and request.path_info == "/metrics":
            answer: HttpResponse = self.metrics.expose(request)
            return answer
        request.started_at = time.monotonic()  # type: ignore[attr-defined]
        return None

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        started_at = getattr(request, "started_at", None)
        if started_at is None:  # Prometheus reads /metrics
            return answer
        answer.headers["X-Request-ID"] = request_id.get()
        seconds = time.monotonic() - started_at
        match = request.resolver_match
        route = (
            NO_ROUTE if match is None else f"/{match.route}"
        )  # a pattern: a label needs few values
        facts: Mapping[str, Any] = getattr(answer, "facts", {})
        if route == PURCHASE_ROUTE:
            facts = {"outcome": "error", "lock": getattr(request, "strategy_name", None), **facts}
        if self.metrics is not None:
            try:
                self.metrics.count(route, answer.status_code, seconds, facts)
            except Exception:
                logger.exception("not counted")  # the answer, perhaps a sale, must not fail for it
        if access.isEnabledFor(logging.INFO):
            line = {
                "method": request.method,
                "path": quote(request.path, errors="replace")[
                    :MAX_LOGGED_PATH_CHARACTERS
                ],  # quoted: it cannot forge a field
                "status": answer.status_code,
                "ms": round(seconds * 1000, 1),
                **facts,
            }
            text = " ".join(f"{name}={value}" for name, value in line.items() if value is not None)
            access.info("%s", text, extra=line)
        return answer


@receiver(request_finished)
def forget_request_id(**kwargs: Any) -> None:
    """Forget the id when the request is over: Django logs a refusal after all middleware."""
    request_id.set(NO_REQUEST)
