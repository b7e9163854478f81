"""Around every request its id, its access line, its metrics."""

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

from shop.ops.logs import NO_REQUEST, request_id, request_id_of

access = logging.getLogger("shop.access")
logger = logging.getLogger("shop.ops")

#: Of a path that anybody may have made up, in characters.
LONGEST_PATH = 256
#: The route of what no view answered: a file, an unknown path, a refusal before any view.
NO_ROUTE = "other"
PURCHASE = "/buy"


class ObserveMiddleware(MiddlewareMixin):
    """Gives a request its id, which the answer and every log line bear, then logs and counts it.

    The result of a purchase is in the `facts` of its answer. Answers GET /metrics itself, where
    METRICS_TOKEN is set: before the check of the Host and the redirect to HTTPS, because Prometheus
    asks each node by an address of its own.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self.metrics: Any = None
        if settings.METRICS_TOKEN:
            from shop.ops import metrics  # prometheus-client is not loaded for nothing

            self.metrics = metrics

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        request_id.set(request_id_of(request.headers.get("X-Request-ID")))
        if self.metrics is not None and request.path_info == "/metrics":
            answer: HttpResponse = self.metrics.expose(request)
            return answer
        request.META["shop.began"] = time.monotonic()
        return None

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        began = request.META.get("shop.began")
        if began is None:  # it is Prometheus that asked
            return answer
        answer.headers["X-Request-ID"] = request_id.get()
        seconds = time.monotonic() - began
        match = request.resolver_match
        route = NO_ROUTE if match is None else f"/{match.route}"  # of these there are few
        facts: Mapping[str, Any] = getattr(answer, "facts", {})
        if route == PURCHASE:
            facts = {"outcome": "error", "lock": request.META.get("shop.lock"), **facts}
        if self.metrics is not None:
            try:
                self.metrics.count(route, answer.status_code, seconds, facts)
            except Exception:
                logger.exception("not counted")  # what was sold stays sold
        if access.isEnabledFor(logging.INFO):
            line = {
                "method": request.method,
                "path": quote(request.path, errors="replace")[:LONGEST_PATH],  # forges no field
                "status": answer.status_code,
                "ms": round(seconds * 1000, 1),
                **facts,
            }
            said = " ".join(f"{name}={value}" for name, value in line.items() if value is not None)
            access.info("%s", said, extra=line)
        return answer


@receiver(request_finished)
def forget(**kwargs: Any) -> None:
    """Django logs a refusal after every middleware, so the request is over only here."""
    request_id.set(NO_REQUEST)
