"""The shop as an ASGI application, for gunicorn's own asgi worker (WEB_SERVER=asgi).

POST /buy waits for a lock without a thread (shop/sale/async_checkout.py). Any other request goes
through Django's own ASGI handler, which occupies a thread for each request.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from typing import Any

import django
from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.exception import response_for_exception
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.deprecation import MiddlewareMixin
from django.utils.log import log_response
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup(set_prefix=False)

# These imports need the settings, which are set up above.
from shop.api.answers import ShopResponse, answer_error, can_answer_error  # noqa: E402
from shop.api.parse import MAX_DISCARDED_BYTES, make_too_large_error, parse_attempt  # noqa: E402
from shop.api.request import ShopAsgiRequest  # noqa: E402
from shop.api.throttle import enforce_rate_limit  # noqa: E402
from shop.checks import require_allowed_lock  # noqa: E402
from shop.errors import TooLarge, TooSlow  # noqa: E402
from shop.middleware import ObserveMiddleware, SecurityHeadersMiddleware  # noqa: E402
from shop.ops.logs import NO_REQUEST, request_id  # noqa: E402
from shop.sale.async_checkout import ThreadPools, check_out, run_in_pool, wait_despite_cancellation  # noqa: E402
from shop.sale.points import reach_point_async  # noqa: E402
from shop.views import make_sold_answer  # noqa: E402

require_allowed_lock()

#: The process_request or process_response of a middleware.
Hook = Callable[..., HttpResponseBase | None]
Receive = Callable[[], Awaitable[dict[str, Any]]]

#: Maximum number of purchases that begin in one turn (iteration) of the event loop: some 20 ms of
#: work. With more, the loop would read the replies of Redis so late that buyers who wait for a lock
#: would take Redis for unreachable.
MAX_PURCHASES_PER_TURN = 50
#: nginx's status code for a client that did not wait for the answer.
CLIENT_GONE_STATUS = 499
#: Time limit for the arrival of a whole body. gunicorn has no limit except its worker timeout.
BODY_TIMEOUT_SECONDS = 5.0


async def read_whole_body(receive: Receive) -> bytes:
    """Return the body of a request.

    A body that is too large is read up to MAX_DISCARDED_BYTES and discarded. A client whose body is
    not read may get a reset of the connection instead of the answer. Raises TooLarge, TooSlow, or
    RequestAborted if the client is gone.
    """
    body = b""
    size = 0
    is_whole = False
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            while not is_whole and size <= MAX_DISCARDED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
                    body += chunk
                is_whole = not message.get("more_body", False)
    except TimeoutError as error:
        # A body that is both too large and too slow is answered with TooLarge.
        if size <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise TooSlow from error
    if size > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise make_too_large_error()
    return body


def make_replaying_receive(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that first returns the `body` already read, then calls `receive`."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> dict[str, Any]:
        if messages:
            return messages.pop()
        return await receive()

    return receive_again


def _do_nothing(*_: object) -> Any:
    """Do nothing. Replaces a middleware's `get_response`, and a hook that a middleware lacks."""


class Application(ASGIHandler):
    """Django's ASGI application, except that it reads bodies and answers purchases itself.

    Bodies are read here, with limits on size and time. Purchases have the same middleware, parsing
    and answers as in shop/views.py. In Django's own handler an async view would use a thread for
    each middleware and each signal, and keep a thread for each request. But only the critical
    section blocks, so here the rest of a purchase runs in the event loop. The middleware of
    settings.MIDDLEWARE that has process_request or process_response is called in Django's order.
    None of it does I/O. WhiteNoise, which serves files, has neither method, so it is left out.
    """

    request_class = ShopAsgiRequest

    def __init__(self) -> None:
        super().__init__()
        self.threads = ThreadPools(settings.WEB_THREADS)
        #: Acquired by a purchase before it begins, and released in the next turn of the event loop.
        self._purchase_starts = asyncio.Semaphore(MAX_PURCHASES_PER_TURN)
        self._middleware = [
            middleware_class(_do_nothing)
            for middleware_class in map(import_string, settings.MIDDLEWARE)
            if isinstance(middleware_class, type) and issubclass(middleware_class, MiddlewareMixin)
        ]
        self._resolver_match = resolve("/buy")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":  # the shop has no web sockets
            await send({"type": "websocket.close"})
            return
        try:
            body = await read_whole_body(receive)
        except RequestAborted:  # the client is gone
            return
        except (TooLarge, TooSlow) as error:
            await self._refuse(scope, error, send)
            return
        if scope["path"] == "/buy" and scope["method"] == "POST":
            await self._buy(scope, body, send)
            return
        # gunicorn cancels this task when the client is gone. If Django's handler ended at once, its
        # thread would go on and leave a database connection that no other request can use.
        # Therefore wait until Django has answered the request.
        django_call = super().__call__(scope, make_replaying_receive(body, receive), send)
        await wait_despite_cancellation(asyncio.ensure_future(django_call))

    async def _refuse(self, scope: dict[str, Any], error: TooLarge | TooSlow, send: Any) -> None:
        """Answer a request whose body was not read to its end, and close the connection.

        Only two middlewares are called, which do not need the body. They set headers, and log and
        count the request.
        """
        request, answer = self.create_request(scope, BytesIO())
        if request is not None:
            if scope["path"] == "/buy":  # with this match, ObserveMiddleware counts a purchase
                request.resolver_match = self._resolver_match
            observing_middleware = [
                middleware
                for middleware in self._middleware
                if isinstance(middleware, SecurityHeadersMiddleware | ObserveMiddleware)
            ]
            for middleware in observing_middleware:
                getattr(middleware, "process_request", _do_nothing)(request)
            refusal = answer_error(request, error)
            # CommonMiddleware, which usually sets this header, is not called here.
            refusal.headers["Content-Length"] = str(len(refusal.content))
            answer = refusal
            for middleware in reversed(observing_middleware):
                answer = middleware.process_response(request, answer)
            request_id.set(NO_REQUEST)
        assert answer is not None  # create_request() returns a request or an answer
        answer.headers["Connection"] = "close"
        await self.send_response(answer, send)

    async def _buy(self, scope: dict[str, Any], body: bytes, send: Any) -> None:
        """Answer POST /buy.

        At most MAX_PURCHASES_PER_TURN purchases begin in one turn (iteration) of the event loop.
        """
        async with self._purchase_starts:
            await asyncio.sleep(0)  # holds the semaphore until the next turn of the event loop
        request, answer = self.create_request(scope, BytesIO(body))
        if request is not None:
            answer = await self.answer_purchase(request)
        assert answer is not None  # create_request() returns a request or an answer
        await self.send_response(answer, send)

    async def answer_purchase(self, request: HttpRequest) -> HttpResponseBase:
        """Return the answer to a purchase. Raises only CancelledError, if the client is gone."""
        response_hooks: list[Hook] = []
        # This answer is replaced below. If the task is cancelled before, this answer is logged and
        # counted, but never sent.
        answer: HttpResponseBase = ShopResponse(
            {"error": "the client is gone"}, status=CLIENT_GONE_STATUS
        )
        try:
            answer = await self._call_middleware_and_buy(request, response_hooks)
        except asyncio.CancelledError:
            answer.log_fields = {"outcome": "gone"}  # type: ignore[attr-defined]
            raise
        finally:
            for process_response in reversed(response_hooks):
                answer = process_response(request, answer) or answer
            if answer.status_code >= 500:  # Django's own handler logs these, too
                log_response(
                    "%s: %s",
                    answer.reason_phrase,
                    request.path,
                    response=answer,  # type: ignore[arg-type]
                    request=request,
                )
            request_id.set(NO_REQUEST)
        return answer

    async def _call_middleware_and_buy(
        self, request: HttpRequest, response_hooks: list[Hook]
    ) -> HttpResponseBase:
        """Return the answer to a purchase. The caller then applies `response_hooks` to the answer.

        response_hooks  a list to which the `process_response` of each called middleware is added
        """
        try:
            for middleware in self._middleware:
                # As in Django, this hook is called even if the same middleware refuses the request.
                response_hooks.append(getattr(middleware, "process_response", _do_nothing))
                process_request: Hook = getattr(middleware, "process_request", _do_nothing)
                refusal = process_request(request)
                if refusal is not None:
                    return refusal
            request.resolver_match = self._resolver_match
            await reach_point_async("arrives")
            attempt = parse_attempt(request)
            if settings.BUY_RATE_LIMIT is not None:
                await run_in_pool(self.threads.short_calls, partial(enforce_rate_limit, request))
            return make_sold_answer(attempt, await check_out(attempt, self.threads))
        except Exception as error:
            if can_answer_error(error):
                return answer_error(request, error)
            return response_for_exception(request, error)


application = Application()
