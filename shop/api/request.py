"""Requests whose Content-Type is unreadable or has another charset than UTF-8.

Django's own requests raise an exception for some of them before any middleware is called, so that
every page answers 500.
"""

import codecs
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.utils.http import parse_header_parameters

#: Python's name for each alias of UTF-8.
UTF_8_NAME = "utf-8"


class Utf8Request(HttpRequest):
    """A request that is read as UTF-8, whatever charset is in its Content-Type.

    If the Content-Type is malformed or has another charset, `content_type` is the whole header. A
    view that reads the body refuses this type (shop/api/parse.py). A page, which reads no body, is
    answered as usual.
    """

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        """Set `content_type` and `content_params`.

        Django calls this private method for each request. Django's method also sets `encoding`.
        This method does not, so that a body is read as UTF-8.
        """
        header = meta.get("CONTENT_TYPE", "")
        try:
            self.content_type, self.content_params = parse_header_parameters(header)
            charset = self.content_params.get("charset", UTF_8_NAME)
            is_utf_8 = codecs.lookup(charset).name == UTF_8_NAME
        except (LookupError, ValueError):  # an unknown charset, or a malformed parameter
            is_utf_8 = False
        if not is_utf_8:
            self.content_type = header
            self.content_params = {}


class ShopWsgiRequest(Utf8Request, WSGIRequest):
    """A request to a node with gunicorn's gthread workers (shop/wsgi.py)."""


class ShopAsgiRequest(Utf8Request, ASGIRequest):
    """A request to a node with gunicorn's asgi workers (shop/asgi.py)."""
