"""The shop as an ASGI application, for gunicorn's own asgi worker (WEB_SERVER=asgi).

POST /buy waits here without a thread (shop/sale/async_checkout.py). Everything else goes through
Django's own ASGI handler, which has a thread for each request while it is answered.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
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

from shop.api.answers import REFUSED, Answer, refused  # noqa: E402  (after the settings)
from shop.api.parse import parse_attempt  # noqa: E402
from shop.checks import refuse_to_start  # noqa: E402
from shop.ops.logs import NO_REQUEST, request_id  # noqa: E402
from shop.sale.async_checkout import Threads, check_out, to_its_end  # noqa: E402
from shop.sale.points import apoint  # noqa: E402
from shop.views import sold  # noqa: E402

refuse_to_start()

Hook = Callable[..., HttpResponseBase | None]

#: Purchases that begin in one turn of the event loop: some 20 ms of work. More would keep it from
#: Redis's answers for so long that those who asked take the silence for an outage.
AT_ONCE = 50
#: What a purchase is logged and counted as whose client did not wait for the answer: nginx's.
GONE = 499


def _nothing(*_: object) -> Any:
    """Stands in for a hook that a middleware does not have, and for what comes after it."""


class Application(ASGIHandler):
    """The ASGI application: Django's own, but for purchases.

    Those have the same middleware, the same parsing, the same answers as in shop/views.py.
    Django's own way through async middleware and an async view hops into a thread for each
    middleware and each signal, and keeps a thread for each request. Nothing that a purchase passes
    through blocks but the sale itself, so here all of it runs in the loop. Of settings.MIDDLEWARE
    those with process_request and process_response take part, in Django's order; none does I/O.
    """

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads(settings.WEB_THREADS)
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._middleware = [
            kind(_nothing)
            for kind in map(import_string, settings.MIDDLEWARE)
            if isinstance(kind, type) and issubclass(kind, MiddlewareMixin)
        ]
        self._match = resolve("/buy")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":  # a web socket: the shop speaks none
            await send({"type": "websocket.close"})
        elif scope["path"] != "/buy" or scope["method"] != "POST":
            # Answers, or ends, before a cancellation is passed on. gunicorn cancels the task of a
            # client that is gone. Django's handler would leave at once, and the thread that answers
            # would keep its database connection, which nobody could use.
            page = super().__call__(scope, receive, send)
            await to_its_end(asyncio.ensure_future(page))
        else:
            with suppress(RequestAborted):  # the client is gone
                await self._buy(scope, receive, send)

    async def _buy(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        with await self.read_body(receive) as body:
            async with self._turn:
                await asyncio.sleep(0)
            request, answer = self.create_request(scope, body)
            if request is not None:
                answer = await self.answer(request)
            assert answer is not None  # it is one or the other
            await self.send_response(answer, send)

    async def answer(self, request: HttpRequest) -> HttpResponseBase:
        """The answer to a purchase. Raises only CancelledError, where the client is gone."""
        passed: list[Hook] = []
        answer: HttpResponseBase = Answer({"error": "the client is gone"}, status=GONE)
        try:
            answer = await self._answer(request, passed)
        except asyncio.CancelledError:
            answer.facts = {"outcome": "gone"}  # type: ignore[attr-defined]
            raise
        finally:
            for process_response in reversed(passed):
                answer = process_response(request, answer) or answer
            if answer.status_code >= 500:  # as Django does; of the others it writes no line here
                said = "%s: %s", answer.reason_phrase, request.path
                log_response(*said, response=answer, request=request)  # type: ignore[arg-type]
            request_id.set(NO_REQUEST)
        return answer

    async def _answer(self, request: HttpRequest, passed: list[Hook]) -> HttpResponseBase:
        try:
            for middleware in self._middleware:
                passed.append(getattr(middleware, "process_response", _nothing))
                process_request: Hook = getattr(middleware, "process_request", _nothing)
                if (refusal := process_request(request)) is not None:
                    return refusal
            request.resolver_match = self._match
            await apoint("arrives")
            attempt = parse_attempt(request)
            return sold(attempt, await check_out(attempt, self.threads))
        except REFUSED as error:
            return refused(request, error)
        except Exception as error:
            return response_for_exception(request, error)


application = Application()
