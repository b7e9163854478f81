"""Requests that a page of another site has a browser send: refused, whatever they ask to change.

Nothing else refuses them: POST /buy takes no cookie, so that programs can buy, and a browser sends
a form to any address that a page names. Which site a request comes from is in two headers that no
page can forge, Sec-Fetch-Site and Origin; programs send neither. The rule is that of Go's
net/http.CrossOriginProtection. A page that DNS was rebound for is refused by its Host.
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
    """Answers with 403 what is asked under a foreign name, or by a page of another site.

    ALLOWED_HOSTS has the names of the shop, CSRF_TRUSTED_ORIGINS the sites whose pages may buy.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        try:
            host = request.get_host()
        except DisallowedHost:
            named = str(request.META.get("HTTP_HOST", ""))[:64]
            return refusal(Forbidden(f"the host {named!r} is not allowed here: see ALLOWED_HOSTS"))
        if request.method not in SAFE and _is_cross_site(request, host):
            return refusal(
                Forbidden(
                    "a page of another site is not allowed here: open the shop's own page, or name "
                    "that site in CSRF_TRUSTED_ORIGINS"
                )
            )
        return None


def _is_cross_site(request: HttpRequest, host: str) -> bool:
    """Whether a browser sent this for a page that is neither the shop's nor trusted."""
    site = request.headers.get("Sec-Fetch-Site", "")
    origin = request.headers.get("Origin", "")
    if site in ("same-origin", "none") or not (site or origin):
        return False
    if not site and origin.partition("://")[2] == host:
        return False
    return not any(_is_trusted(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _is_trusted(origin: str, trusted: str) -> bool:
    """Whether an origin is this entry of CSRF_TRUSTED_ORIGINS, https://*.example.com among them."""
    scheme, _, host = origin.partition("://")
    wanted_scheme, _, pattern = trusted.partition("://")
    return scheme == wanted_scheme and is_same_domain(host, pattern.removeprefix("*"))
