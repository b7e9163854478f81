"""The middleware of the shop, from the outside in: every request passes it in this order.

SecurityHeadersMiddleware   sets the security headers of every answer
ObserveMiddleware           gives a request its id, logs it, counts it
ProbeMiddleware             answers probes that come under an IP address
CrossSiteMiddleware         refuses foreign host names and pages of other sites
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

from shop.api.answers import refusal
from shop.errors import Forbidden
from shop.ops.logs import NO_REQUEST, request_id

access = logging.getLogger("shop.access")
logger = logging.getLogger("shop.ops")

#: It allows only the shop's own files. Styles that ECharts sets through element.style are allowed:
#: a browser does not count them as inline styles.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
UNUSED_FEATURES = ("camera", "geolocation", "microphone", "payment", "usb")
#: SecurityMiddleware sets three of these, but not on answers of the middleware before it.
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in UNUSED_FEATURES),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Ids that are accepted from a client or a proxy. Others could forge a log line, or fill it.
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
#: A client can make up any path.
MAX_LOGGED_PATH_CHARACTERS = 256
#: The route of requests without a view: a file, an unknown path, a refusal before any view.
NO_ROUTE = "other"
PURCHASE_ROUTE = "/buy"
PROBES = ("/healthz", "/readyz")
#: Methods that change nothing.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Sets the security headers that an answer does not have, also on files and refusals.

    Django 5.2 has no Content-Security-Policy; Django 6.0 has (SECURE_CSP), and then this can go.
    The package django-csp adds nonces and policies for single views. One fixed policy needs
    neither: no page of the shop or of the admin has an inline script or style.
    """

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer


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
            answer: HttpResponse = self.metrics.answer_metrics(request)
            return answer
        request.started_at = time.monotonic()  # type: ignore[attr-defined]
        return None

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        started_at = getattr(request, "started_at", None)
        if started_at is None:  # Prometheus reads /metrics
            return answer
        answer.headers["X-Request-ID"] = request_id.get()
        seconds = time.monotonic() - started_at
        route = NO_ROUTE
        if request.resolver_match is not None:
            # The pattern, not the path: a label of a metric needs few values.
            route = f"/{request.resolver_match.route}"
        facts: Mapping[str, Any] = getattr(answer, "facts", {})
        if route == PURCHASE_ROUTE:
            facts = {"outcome": "error", "lock": getattr(request, "strategy_name", None), **facts}
        if self.metrics is not None:
            try:
                self.metrics.count_request(route, answer.status_code, seconds, facts)
            except Exception:
                logger.exception("not counted")  # the answer, perhaps a sale, must not fail for it
        if access.isEnabledFor(logging.INFO):
            path = quote(request.path, errors="replace")  # quoted: it cannot forge a field
            line = {
                "method": request.method,
                "path": path[:MAX_LOGGED_PATH_CHARACTERS],
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


def choose_request_id(header: str | None) -> str:
    """Return the id that came with a request, or a new one if it is missing or malformed."""
    if header is not None and REQUEST_ID_PATTERN.match(header):
        return header
    return secrets.token_hex(16)


class ProbeMiddleware(MiddlewareMixin):
    """Answers /healthz and /readyz when the Host is an IP address.

    Orchestrators and load balancers probe a node by its address, which is not in ALLOWED_HOSTS. A
    name is still checked, because a page that DNS was rebound for comes under a name.
    SECURE_REDIRECT_EXEMPT allows probes without TLS.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if request.path_info not in PROBES:
            return None
        if not _is_address(str(request.META.get("HTTP_HOST", ""))):
            return None
        answer: HttpResponse = resolve(request.path_info).func(request)
        return answer


def _is_address(host: str) -> bool:
    """Return whether a Host header names an IP address, with or without a port."""
    try:
        ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


class CrossSiteMiddleware(MiddlewareMixin):
    """Answers 403 to a request under a foreign host name or from a page of another site.

    Nothing else refuses them: POST /buy needs no cookie, so that programs can buy, and a browser
    sends a form to any address that a page names. Two headers that no page can forge name the site
    of a request, Sec-Fetch-Site and Origin; programs send neither. The rule is that of Go's
    net/http.CrossOriginProtection. After DNS rebinding the Host is foreign, and is refused for
    that.

    ALLOWED_HOSTS has the names of the shop, CSRF_TRUSTED_ORIGINS the sites whose pages may buy.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        try:
            host = request.get_host()
        except DisallowedHost:
            foreign_host = str(request.META.get("HTTP_HOST", ""))[:64]
            return refusal(
                Forbidden(f"the host {foreign_host!r} is not allowed here: see ALLOWED_HOSTS")
            )
        if request.method not in SAFE_METHODS and _is_cross_site(request, host):
            return refusal(
                Forbidden(
                    "a page of another site is not allowed here: open the shop's own page, or name "
                    "that site in CSRF_TRUSTED_ORIGINS"
                )
            )
        return None


def _is_cross_site(request: HttpRequest, host: str) -> bool:
    """Return whether a browser sent this for a page that is neither the shop's nor trusted."""
    site = request.headers.get("Sec-Fetch-Site", "")
    origin = request.headers.get("Origin", "")
    if site in ("same-origin", "none") or not (site or origin):
        return False
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
