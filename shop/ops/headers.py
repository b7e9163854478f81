"""Security headers, the same on every answer, including files and refusals.

Django 5.2 has no Content-Security-Policy; Django 6.0 has (SECURE_CSP), and then this can go. The
package django-csp adds nonces and policies for single views. One fixed policy needs neither: no
page of the shop or of the admin has an inline script or style.
"""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

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


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Sets the HEADERS that an answer does not have. It is the first in MIDDLEWARE."""

    def process_response(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer
