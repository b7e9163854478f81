"""POST /buy in an event loop: the same middleware, the same parsing, the same answers.

Django's own way through async middleware and an async view hops into a thread for each middleware
and each signal, and starts a thread of its own for each request (ThreadSensitiveContext). Nothing
that a purchase passes through blocks but the sale itself, so here all of it runs in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.conf import settings
from django.core.handlers.exception import response_for_exception
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.deprecation import MiddlewareMixin
from django.utils.log import log_response
from django.utils.module_loading import import_string

from shop.api.answers import REFUSED, refused
from shop.api.parse import parse_attempt
from shop.ops.current import current, note
from shop.ops.throttle import address_of
from shop.sale.points import apoint
from shop.views import sold
from shop.waiting.checkout import check_out
from shop.waiting.lanes import Lanes

Hook = Callable[..., HttpResponseBase | None]
#: What a purchase is logged and counted as whose client did not wait for the answer: nginx's.
GONE = 499


class Purchases:
    """Answers POST /buy.

    Of settings.MIDDLEWARE those with process_request and process_response take part, in the order
    that Django gives them. They run in the event loop: none of them may ask a server anything.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._middleware: list[tuple[Hook, Hook]] = []
        for name in settings.MIDDLEWARE:
            kind = import_string(name)
            if isinstance(kind, type) and issubclass(kind, MiddlewareMixin):
                made = kind(_not_called)
                hooks = (
                    getattr(made, "process_request", _nothing),
                    getattr(made, "process_response", _nothing),
                )
                self._middleware.append(hooks)
        self._match = resolve("/buy")

    async def answer(self, request: HttpRequest) -> HttpResponseBase:
        """The answer to a purchase. Raises CancelledError alone, where the client is gone."""
        passed: list[Hook] = []
        answer: HttpResponseBase = JsonResponse({"error": "the client is gone"}, status=GONE)
        try:
            answer = await self._answer(request, passed)
        except asyncio.CancelledError:
            note(outcome="gone")
            raise
        finally:
            for process_response in reversed(passed):
                answer = process_response(request, answer) or answer
            if answer.status_code >= 500:  # as Django does; of the others it writes no line here
                _log(request, answer)
            current.set(None)
        return answer

    async def _answer(self, request: HttpRequest, passed: list[Hook]) -> HttpResponseBase:
        try:
            for process_request, process_response in self._middleware:
                passed.append(process_response)
                refusal = process_request(request)
                if refusal is not None:
                    return refusal
            request.resolver_match = self._match
            await apoint("arrives")
            return await self._buy(request)
        except Exception as error:
            return response_for_exception(request, error)

    async def _buy(self, request: HttpRequest) -> HttpResponse:
        try:
            attempt = parse_attempt(request)
            note(lock=attempt.lock)
            receipt = await check_out(attempt, address=address_of(request), lanes=self.lanes)
        except REFUSED as error:
            return refused(request, error)
        return sold(attempt, receipt)


def _log(request: HttpRequest, answer: HttpResponseBase) -> None:
    assert isinstance(answer, HttpResponse)
    log_response("%s: %s", answer.reason_phrase, request.path, response=answer, request=request)


def _not_called(request: HttpRequest) -> HttpResponse:
    raise NotImplementedError("only process_request and process_response are called")


def _nothing(*_: object) -> None:
    """Of a middleware without this hook."""
