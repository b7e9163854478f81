"""The same security headers on every answer, a file and a refusal included.

Django 5.2 has no Content-Security-Policy; Django 6.0 has (SECURE_CSP), and then this can go. The
package django-csp adds nonces and policies for single views. One fixed policy needs neither: no
page of the shop or of the admin has an inline script or style.
"""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

#: Nothing but the shop's own files, so that the page works without a network. What ECharts sets
#: through element.style is no inline style to a browser.
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
UNUSED_FEATURES = ("camera", "geolocation", "microphone", "payment", "usb")
#: SecurityMiddleware sets three of these, but not on what is answered before it is reached.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in UNUSED_FEATURES),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Sets HEADERS where the answer does not have them. Comes first in MIDDLEWARE."""

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer
