"""The shop as an ASGI application: gunicorn -c python:shop.gunicorn_conf with WEB_SERVER=asgi.

POST /buy waits here without a thread (shop/waiting). Everything else goes through Django's own ASGI
handler, which has a thread for each request while it is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from typing import Any

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpResponse
from django.http.response import HttpResponseBase

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup(set_prefix=False)

from shop.checks import refuse_to_start  # noqa: E402  (after the settings are read)
from shop.waiting import locked  # noqa: E402
from shop.waiting.lanes import Lanes, wait_out  # noqa: E402
from shop.waiting.turnstile import Turnstile  # noqa: E402
from shop.waiting.view import Purchases  # noqa: E402

refuse_to_start()

Message = dict[str, Any]
Header = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Any], Awaitable[None]]

#: Bytes of a body that are read, and of those that are kept: more than the shop takes.
LARGEST_BODY = 16 * 1024 * 1024
KEPT_BODY = 64 * 1024
#: Purchases that begin before Redis has answered those before them: some 20 ms of work.
AT_ONCE = 50


class TooLarge(Exception):
    """A body of more than LARGEST_BODY."""


class ClientGone(Exception):
    """The client did not wait for its request to come in."""


class Request(ASGIRequest):
    """A request that knows whether its node is about to stop."""

    def __init__(self, scope: Message, body_file: Any) -> None:
        super().__init__(scope, body_file)
        self.META["shop.stopping"] = scope.get("state", {}).get("stopping", False)


class Pages(ASGIHandler):
    """Everything but a purchase.

    gunicorn cancels the task of a client that is gone. Django's handler would leave at once, and
    the thread that answers would keep its database connection, which nobody could use any more.
    """

    request_class = Request

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        """Answer, or end, before a cancellation is passed on."""
        page = asyncio.ensure_future(super().__call__(scope, receive, send))
        try:
            await asyncio.shield(page)
        except asyncio.CancelledError:
            await wait_out(page)
            raise


class Application:
    """The ASGI application. Makes its threads as they are needed."""

    def __init__(self) -> None:
        self.pages = Pages()
        self.lanes = Lanes(settings.WEB_THREADS)
        self.purchases = Purchases(self.lanes)
        self.turnstile = Turnstile(AT_ONCE, between=locked.round_trip)

    async def open(self) -> None:
        """Connect to the locks' Redis: the first buyers should race, not connect."""
        await locked.connect()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the shop does not speak {scope['type']}")
        try:
            body, length = await read_body(receive)
        except TooLarge:
            await _send_error(
                send, 413, f"Request Entity Too Large: exceeds max_body of {LARGEST_BODY}"
            )
            return
        except ClientGone:
            return
        if _codings(scope["headers"]) not in (b"", b"chunked"):
            await _send_error(send, 501, "Not Implemented: only chunked is read")
            return
        scope["headers"] = _joined(_with_length(scope["headers"], length))
        if scope["path"] != "/buy" or scope["method"] != "POST":
            await self.pages(scope, _replaying(body, receive), send)
            return
        await self.turnstile.enter()
        request, refusal = self.pages.create_request(scope, BytesIO(body))
        if request is None:
            assert refusal is not None
            await _send(refusal, send)
        else:
            await _send(await self.purchases.answer(request), send)


async def read_body(receive: Receive) -> tuple[bytes, int]:
    """The body's first KEPT_BODY bytes and its length. The rest is read, and thrown away: the shop
    refuses it by its length, and a client that is cut off while it sends would get no answer."""
    kept, length = b"", 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        length += len(part)
        if length > LARGEST_BODY:
            raise TooLarge
        if len(kept) < KEPT_BODY:
            kept += part[: KEPT_BODY - len(kept)]
        if not message.get("more_body", False):
            return kept, length


def _with_length(headers: Sequence[Header], length: int) -> Sequence[Header]:
    """The headers of a body that came in chunks as if it had come whole, as waitress has them."""
    if not any(name == b"transfer-encoding" for name, _ in headers):
        return headers
    others = [header for header in headers if header[0] != b"transfer-encoding"]
    return [*others, (b"content-length", b"%d" % length)]


def _codings(headers: Sequence[Header]) -> bytes:
    """What was done to the body on its way."""
    return b",".join(value for name, value in headers if name == b"transfer-encoding").lower()


def _joined(headers: Sequence[Header]) -> Sequence[Header]:
    """One of each key, as waitress has them: of two no part of the shop sees another one."""
    keys = [value for name, value in headers if name == b"idempotency-key"]
    if len(keys) < 2:
        return headers
    others = [header for header in headers if header[0] != b"idempotency-key"]
    return [*others, (b"idempotency-key", b", ".join(keys))]


def _replaying(body: bytes, receive: Receive) -> Receive:
    """What `receive` was before its body was read."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return given.pop() if given else await receive()

    return again


async def _send(answer: HttpResponseBase, send: Send) -> None:
    assert isinstance(answer, HttpResponse)  # none of a purchase is streamed
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in answer.items()]
    cookies = [
        (b"Set-Cookie", c.output(header="").strip().encode()) for c in answer.cookies.values()
    ]
    await send(
        {"type": "http.response.start", "status": answer.status_code, "headers": headers + cookies}
    )
    await send({"type": "http.response.body", "body": answer.content})


async def _send_error(send: Send, status: int, error: str) -> None:
    """Refused before Django, in the shop's form."""
    body = json.dumps({"outcome": "error", "error": error}).encode()
    headers = [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


application = Application()
