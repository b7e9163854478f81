"""Purchases in an event loop of this process, as an asgi node makes them."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from shop.asgi import Application
from shop.sale.async_checkout import ThreadPools
from shop.tests.purchases import JsonReply, parse_reply

#: Seconds for all purchases in one loop.
LOOP_TIMEOUT_SECONDS = 30


class ShopInLoop:
    """The shop's application in one event loop, which answers POST /buy.

    thread_count  threads for the strategies that block
    """

    def __init__(self, thread_count: int = 4) -> None:
        self.application = Application()
        self.application.threads = ThreadPools(thread_count)

    async def buy(self, *, key: str | None = None, **fields: object) -> JsonReply:
        """Return the answer to one purchase.

        Raises CancelledError if the test cancels the task, as if the client had disconnected.
        """
        body = json.dumps({"buyer": "ada", "lock": "redis"} | fields).encode()
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        scope = {"type": "http", "method": "POST", "path": "/buy", "headers": headers}
        answer: Any = await self.application.answer_purchase(ASGIRequest(scope, BytesIO(body)))
        # Responses to Django's test client have this method, and parse_reply() calls it.
        answer.json = lambda: json.loads(answer.content)
        return parse_reply(answer)


def run_in_loop(
    test: Callable[[ShopInLoop], Coroutine[Any, Any, None]], *, thread_count: int = 4
) -> None:
    """Run the test in a new event loop. Raises TimeoutError after LOOP_TIMEOUT_SECONDS."""

    async def run_with_timeout() -> None:
        async with asyncio.timeout(LOOP_TIMEOUT_SECONDS):
            await test(ShopInLoop(thread_count))

    asyncio.run(run_with_timeout())
