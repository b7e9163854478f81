"""The shop in an event loop of the test's process, for tests of an asgi node's purchases."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from shop.asgi import Application
from shop.sale.async_checkout import ThreadPools
from shop.tests.purchases import JsonReply, parse_reply

#: Maximum duration of a test that run_in_loop() runs.
LOOP_TIMEOUT_SECONDS = 30


class ShopInLoop:
    """The shop's ASGI application in an event loop. Its method buy() sends a POST /buy request.

    thread_count  number of threads for the strategies that block
    """

    def __init__(self, thread_count: int = 4) -> None:
        self.application = Application()
        self.application.threads = ThreadPools(thread_count)

    async def buy(self, *, key: str | None = None, **fields: object) -> JsonReply:
        """Send POST /buy with these fields, and return the reply.

        A test simulates a client that disconnects: it cancels the task that called this method. The
        method then raises CancelledError.

        key  the Idempotency-Key; None: no such header
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
        # parse_reply() calls this method, which only the responses to Django's test client have.
        answer.json = lambda: json.loads(answer.content)
        return parse_reply(answer)


def run_in_loop(
    test: Callable[[ShopInLoop], Coroutine[Any, Any, None]], *, thread_count: int = 4
) -> None:
    """Run an async test, whose argument is the shop, in a new event loop.

    Raises TimeoutError after LOOP_TIMEOUT_SECONDS.

    thread_count  number of the shop's threads for the strategies that block
    """

    async def run_with_timeout() -> None:
        async with asyncio.timeout(LOOP_TIMEOUT_SECONDS):
            await test(ShopInLoop(thread_count))

    asyncio.run(run_with_timeout())
