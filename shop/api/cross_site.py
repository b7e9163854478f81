"""Refusal of requests that a page of another site makes a browser send.

Nothing else refuses them: POST /buy needs no cookie, so that programs can buy, and a browser sends
a form to any address that a page names. Two headers that no page can forge name the site of a
request, Sec-Fetch-Site and Origin; programs send neither. The rule is that of Go's
net/http.CrossOriginProtection. After DNS rebinding the Host is foreign, and is refused for that.
"""

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import is_same_domain

from shop.api.answers import refusal
from shop.errors import Forbidden

SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")


class CrossSiteMiddleware(MiddlewareMixin):
    """Answers 403 to a request under a foreign host name or from a page of another site.

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
        if request.method not in SAFE and _is_cross_site(request, host):
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
