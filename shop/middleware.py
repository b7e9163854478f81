"""The middleware of the shop, in the order in which requests pass it.

SecurityHeadersMiddleware   sets the security headers of every answer
ObserveMiddleware           gives each request an id, then logs and counts it
ProbeMiddleware             answers probes whose Host is an IP address
CrossSiteMiddleware         refuses unknown host names and requests from pages of other sites
DatabaseErrorMiddleware     answers 503 if the database does not answer a page of the admin
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.signals import request_finished
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import is_same_domain

from shop.api.answers import answer_error, can_answer_error, make_refusal
from shop.errors import Forbidden
from shop.ops.logs import NO_REQUEST, request_id

access_logger = logging.getLogger("shop.access")
logger = logging.getLogger("shop.ops")

#: Allows only the shop's own files. Styles that ECharts sets through element.style are allowed,
#: too, because a browser does not count them as inline styles.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
#: Features of a browser that no page of the shop uses.
UNUSED_FEATURES = ("camera", "geolocation", "microphone", "payment", "usb")
#: Django's SecurityMiddleware sets three of these, but not on answers of middleware before it.
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in UNUSED_FEATURES),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Request ids that are accepted from a client or a proxy. Any other id could forge log lines, or
#: fill the log.
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
#: A path is cut to this length in the log, because a client can send a very long one.
MAX_LOGGED_PATH_CHARACTERS = 256
#: The route of requests without a view: a file, an unknown path, a refusal before any view.
NO_ROUTE = "other"
PURCHASE_ROUTE = "/buy"
#: Paths that orchestrators and load balancers request to learn the state of a node.
PROBE_PATHS = ("/healthz", "/readyz")
#: Methods that change nothing.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Adds missing security headers to every answer, including files and refusals.

    Django 5.2 cannot set Content-Security-Policy. With Django 6.0, which can (SECURE_CSP), this
    middleware will be unnecessary. The package django-csp adds nonces and policies for single
    views. They are not needed here, because no page of the shop or of the admin has an inline
    script or style.
    """

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer


class ObserveMiddleware(MiddlewareMixin):
    """Gives each request an id for its answer and its log lines, then logs and counts the request.

    The answer to a purchase has `log_fields`, which are logged and counted, too. If METRICS_TOKEN
    is set, this middleware answers GET /metrics itself. It comes before the check of the Host and
    the redirect to HTTPS, because Prometheus requests the metrics of each node by its IP address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self.metrics: Any = None
        if settings.METRICS_TOKEN:
            from shop.ops import metrics  # only here, because it loads prometheus-client

            self.metrics = metrics

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        request_id.set(choose_request_id(request.headers.get("X-Request-ID")))
        if self.metrics is not None and request.path_info == "/metrics":
            answer: HttpResponse = self.metrics.answer_metrics(request)
            return answer
        request.started_at = time.monotonic()  # type: ignore[attr-defined]
        return None

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        started_at = getattr(request, "started_at", None)
        if started_at is None:  # a request for /metrics, which is not logged
            return answer
        answer.headers["X-Request-ID"] = request_id.get()
        seconds = time.monotonic() - started_at
        route = NO_ROUTE
        if request.resolver_match is not None:
            # Not the path of the request, because a label of a metric must have few values.
            route = f"/{request.resolver_match.route}"
        log_fields: Mapping[str, Any] = getattr(answer, "log_fields", {})
        if route == PURCHASE_ROUTE:
            # An answer that the shop did not make, such as Django's 500, has no `log_fields`.
            strategy_name = getattr(request, "strategy_name", None)
            log_fields = {"outcome": "error", "lock": strategy_name, **log_fields}
        self._count(route, answer.status_code, seconds, log_fields)
        if access_logger.isEnabledFor(logging.INFO):
            _log_access(request, answer.status_code, seconds, log_fields)
        return answer

    def _count(
        self, route: str, status: int, seconds: float, log_fields: Mapping[str, Any]
    ) -> None:
        """Count an answered request, if there are metrics."""
        if self.metrics is None:
            return
        try:
            self.metrics.count_request(route, status, seconds, log_fields)
        except Exception:  # must not replace the answer: the buyer may have bought
            logger.exception("a request was not counted in the metrics")


def _log_access(
    request: HttpRequest, status: int, seconds: float, log_fields: Mapping[str, Any]
) -> None:
    """Write a line about an answered request to the access log."""
    # The path is quoted, so that a client cannot write fields into the line.
    path = quote(request.path, errors="replace")
    fields = {
        "method": request.method,
        "path": path[:MAX_LOGGED_PATH_CHARACTERS],
        "status": status,
        "ms": round(seconds * 1000, 1),
        **log_fields,
    }
    line = " ".join(f"{name}={field}" for name, field in fields.items() if field is not None)
    access_logger.info("%s", line, extra=fields)


@receiver(request_finished)
def forget_request_id(**kwargs: Any) -> None:
    """Reset the request id when the request has ended.

    A middleware cannot do that, because Django still logs after the last middleware.
    """
    request_id.set(NO_REQUEST)


def choose_request_id(header: str | None) -> str:
    """Return the id that came with a request, or a new one if it is missing or malformed."""
    if header is not None and REQUEST_ID_PATTERN.match(header):
        return header
    return secrets.token_hex(16)


class ProbeMiddleware(MiddlewareMixin):
    """Answers /healthz and /readyz when the Host is an IP address.

    Orchestrators and load balancers probe a node by its address, which is not in ALLOWED_HOSTS.
    Host names are still checked, because an attack by DNS rebinding uses a name.
    SECURE_REDIRECT_EXEMPT allows probes without TLS.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if request.path_info not in PROBE_PATHS:
            return None
        if not _is_ip_address(str(request.META.get("HTTP_HOST", ""))):
            return None
        answer: HttpResponse = resolve(request.path_info).func(request)
        return answer


def _is_ip_address(host: str) -> bool:
    """Return whether a Host header is an IP address, with or without a port."""
    try:
        ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


class CrossSiteMiddleware(MiddlewareMixin):
    """Answers 403 to a request with an unknown Host, or from a page of another site.

    Nothing else refuses such requests: POST /buy needs no cookie, so that programs can buy, and a
    browser sends a form of any page to any address. The headers Sec-Fetch-Site and Origin show the
    site of the page. No page can forge these headers, and programs send neither. The rule is the
    same as in Go's net/http.CrossOriginProtection. After DNS rebinding the Host is unknown, so the
    request is refused.

    ALLOWED_HOSTS has the names of the shop, CSRF_TRUSTED_ORIGINS the sites whose pages may buy.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        try:
            host = request.get_host()
        except DisallowedHost:
            foreign_host = str(request.META.get("HTTP_HOST", ""))[:64]
            return make_refusal(
                Forbidden(f"the host {foreign_host!r} is not allowed here: see ALLOWED_HOSTS")
            )
        if request.method not in SAFE_METHODS and _is_cross_site(request, host):
            return make_refusal(
                Forbidden(
                    "a page of another site is not allowed here: open the shop's own page, or name "
                    "that site in CSRF_TRUSTED_ORIGINS"
                )
            )
        return None


class DatabaseErrorMiddleware(MiddlewareMixin):
    """Answers errors of the admin's views. The other views have the decorator `endpoint`."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if can_answer_error(error):
            return answer_error(request, error)
        return None


def _is_cross_site(request: HttpRequest, host: str) -> bool:
    """Return whether the request comes from a page of another site that is not trusted."""
    site = request.headers.get("Sec-Fetch-Site", "")
    origin = request.headers.get("Origin", "")
    # `none` means that the user typed the address. A request with neither header comes from a
    # program.
    if site in ("same-origin", "none") or not (site or origin):
        return False
    # An old browser does not send Sec-Fetch-Site, so compare the host of its page.
    if not site and origin.partition("://")[2] == host:
        return False
    return not any(_is_trusted(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _is_trusted(origin: str, trusted: str) -> bool:
    """Return whether an origin matches an entry of CSRF_TRUSTED_ORIGINS.

    An entry may have a wildcard, as https://*.example.com.
    """
    scheme, _, host = origin.partition("://")
    trusted_scheme, _, pattern = trusted.partition("://")
    return scheme == trusted_scheme and is_same_domain(host, pattern.removeprefix("*"))
