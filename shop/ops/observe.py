"""Around every request: its id, its access line, its metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.signals import request_finished
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from shop.ops.current import Facts, current, request_id_of

access = logging.getLogger("shop.access")
logger = logging.getLogger("shop.ops")

#: Of a path that anybody may have made up, in characters.
LONGEST_PATH = 256
#: The route of what no view answered: a file, an unknown path, a refusal before any view.
NO_ROUTE = "other"
PURCHASE = "/buy"


class ObserveMiddleware(MiddlewareMixin):
    """Gives a request its id, which the answer and every log line bear, then logs and counts it.

    Answers GET /metrics itself, where METRICS_TOKEN is set: before the check of the Host and the
    redirect to HTTPS, because Prometheus asks each node by an address of its own.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self.count: Callable[..., None] | None = None
        self.expose: Callable[[HttpRequest], HttpResponse] | None = None
        if settings.METRICS_TOKEN:
            from shop.ops import metrics  # prometheus-client is not loaded for nothing

            self.count, self.expose = metrics.count, metrics.expose

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        current.set(Facts(request_id_of(request.headers.get("X-Request-ID"))))
        if self._is_scrape(request):
            assert self.expose is not None
            return self.expose(request)
        return None

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        facts = current.get()
        if facts is not None and not self._is_scrape(request):
            answer.headers["X-Request-ID"] = facts.request_id
            self._observe(request, answer, facts)
        return answer

    def _is_scrape(self, request: HttpRequest) -> bool:
        return self.expose is not None and request.path_info == "/metrics"

    def _observe(self, request: HttpRequest, answer: HttpResponseBase, facts: Facts) -> None:
        now = time.monotonic()
        route = _route_of(request)
        if route == PURCHASE and not facts.outcome:
            facts.outcome = "error"
        if facts.asked is not None and facts.waited is None:
            waited = now - facts.asked  # to the end: it was not acquired
        else:
            waited = facts.waited or 0.0
        if self.count is not None:
            try:
                self.count(
                    route=route, status=answer.status_code, seconds=now - facts.started, facts=facts
                )
            except Exception:
                logger.exception("not counted")  # what was sold stays sold
        if access.isEnabledFor(logging.INFO):
            line = {
                "method": request.method,
                "path": request.path[:LONGEST_PATH],
                "status": answer.status_code,
                "ms": _ms(now - facts.started),
                "outcome": facts.outcome or None,
                "lock": facts.lock or None,
                "order": facts.order,
                "sale": facts.sale,
                "waited_ms": None if facts.asked is None else _ms(waited),
                "held_ms": None if facts.held is None else _ms(facts.held),
            }
            said = " ".join(f"{name}={value}" for name, value in line.items() if value is not None)
            access.info("%s", said, extra=line)


@receiver(request_finished)
def forget(**kwargs: Any) -> None:
    """Django logs a refusal after every middleware, so the request is over only here."""
    current.set(None)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _route_of(request: HttpRequest) -> str:
    """The pattern that matched, as `/sales/<int:sale_id>`: of these there are few."""
    match = request.resolver_match
    return NO_ROUTE if match is None else f"/{match.route}"
