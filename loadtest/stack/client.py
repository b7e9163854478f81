"""The requests of the load test to a running shop, over HTTP."""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NotRequired, TypedDict
from urllib.error import HTTPError
from urllib.request import Request, urlopen

#: How long to wait, after the last answer of a sale, until its promised orders are written.
SETTLE_TIMEOUT_SECONDS = 15.0


class StrategyFacts(TypedDict):
    """The fields of GET /strategies that the load test reads; shop/sale/strategy.py describes them.

    The optional fields are not in GET /strategies; the load test adds them:

    verdicts   fault -> expected verdict. It replaces the verdicts of loadtest/expected.py if the
               strategy is not in that file, or if the database is not PostgreSQL
    exists     False if the database lacks a feature that the strategy needs
    missing    why the strategy is unavailable, for example because a server did not start
    complaint  how GET /strategies differs from loadtest/expected.py. A strategy with a complaint
               never gets its expected verdict
    """

    name: str
    expected: dict[str, str]
    backend: str
    sound: NotRequired[bool]  # only in GET /strategies
    renewed: bool
    fenced: bool
    takes_over: bool
    reserves: bool
    deferred: bool
    needs: str
    available: bool
    verdicts: NotRequired[Mapping[str, str]]
    exists: NotRequired[bool]
    missing: NotRequired[str]
    complaint: NotRequired[str]


def explain_unavailability(strategy: StrategyFacts) -> str:
    """Return why a strategy is unavailable.

    This is its field `missing`. Without this field, its server is not installed.
    """
    not_installed = f"{strategy['needs']} is not set, and no such server is installed"
    return strategy.get("missing", not_installed)


class ShopUnreachable(RuntimeError):
    """The shop did not answer, or answered with an error. The message says what to do."""


class ConnectionRefused(ShopUnreachable):
    """The connection was refused, so the shop has not received the request. Is it running?"""


class Shop:
    """One running shop.

    url      its address, for instance http://127.0.0.1:8000
    token    the bearer token for opening sales and reading orders (SHOP_RESTOCK_TOKEN)
    timeout  seconds without an answer after which the shop counts as unreachable
    name     the name of the node, such as A; empty if the shop is not a node of a stack
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0, name: str = "") -> None:
        self.url = url.rstrip("/")
        self.name = name
        self.token = token
        self.timeout = timeout

    def buy(self, *, key: str, stop_at: str = "", **fields: Any) -> tuple[int, dict[str, Any]]:
        """Request one unit, and return the status and the body of the answer.

        An answer with an error is returned, too. If its body is not a JSON object, an empty one is
        returned: such an answer comes from a proxy, for example, and not from the shop.

        key      the Idempotency-Key
        stop_at  the point at which this purchase stops until it is resumed (SHOP_DEMO)
        fields   product, lock and buyer. Optional: `sale`, the number of the sale to buy from, and
                 `hold_ms`, the milliseconds between check and decrement (SHOP_DEMO). A field that
                 is 0 is not sent

        Raises ConnectionRefused if the shop cannot have received the request. Raises
        ShopUnreachable if the unit may have been sold, because there is no answer, or because the
        body of a success is not a JSON object.
        """
        body = {name: field for name, field in fields.items() if field != 0}
        headers = {"Idempotency-Key": key, "Demo-Stop": stop_at}
        status, answer_body = send("POST", f"{self.url}/buy", body, headers, self.timeout)
        try:
            return status, _parse_object(answer_body)
        except ValueError as error:
            if status >= 400:
                return status, {}
            raise ShopUnreachable(f"no usable answer from {self.url}: {error}") from error

    def strategies(self) -> list[StrategyFacts]:
        """Return every strategy of GET /strategies."""
        answer = self._request_json("GET", "/strategies")
        if "strategies" not in answer:
            raise ShopUnreachable(
                f"the server at {self.url} lists no strategies, so it is not this project's shop: "
                "choose another server with --host"
            )
        return list(answer["strategies"])

    def restock(self, *, product: str, stock: int, lock: str = "none") -> dict[str, Any]:
        """Open a new sale for this strategy, and return its report."""
        return self._request_json(
            "POST", "/restock", {"product": product, "stock": stock, "lock": lock}
        )

    def sale(self, number: int) -> dict[str, Any]:
        """Return the report of a sale."""
        return self._request_json("GET", f"/sales/{number}")

    def wait_for_settled_sale(
        self, number: int, *, seconds: float = SETTLE_TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """Wait until all promised orders of a sale are written, and return the sale's report.

        A promised order is accepted in Redis and not yet written to the database. The wait ends
        after `seconds` at the latest. The report's field `unsettled` is the number of promised
        orders that are left, or None if the shop does not know the number.
        """
        deadline = time.monotonic() + seconds
        while True:
            report = self.sale(number)
            if report.get("unsettled", 0) == 0 or time.monotonic() > deadline:
                return report
            time.sleep(0.02)

    def orders(self, sale: int) -> list[dict[str, Any]]:
        """Return every order of a sale, oldest first. The shop requires this client's `token`."""
        orders: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._request_json("GET", f"/sales/{sale}/orders?after={after}")
            orders += page["orders"]
            after = page["next"]
        return orders

    def is_healthy(self) -> bool:
        """Return whether /healthz answers with success."""
        try:
            self._request_json("GET", "/healthz")
        except ShopUnreachable:
            return False
        return True

    def read_readyz(self) -> dict[str, Any]:
        """Return the body of /readyz. Raises ShopUnreachable if a server is down."""
        return self._request_json("GET", "/readyz")

    def _request_json(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the JSON object in the body of the answer.

        Raises ShopUnreachable if there is no answer, or an answer with an error.
        """
        try:
            headers = {}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            status, answer_body = send(method, self.url + path, body, headers, self.timeout)
            if status < 400:
                return _parse_object(answer_body)
        except (ShopUnreachable, ValueError) as error:
            advice = "start a shop with make serve, or choose another server with --host"
            if self.name:
                advice = f"the log of node {self.name} may say why"
            raise ShopUnreachable(f"no shop answers at {self.url} ({error}): {advice}") from error
        excerpt = answer_body[:2000].decode(errors="replace")
        raise ShopUnreachable(f"{method} {self.url}{path} was answered {status}: {excerpt}")


def _parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of an answer. Raises ValueError for any other body."""
    parsed_body = json.loads(body)
    if not isinstance(parsed_body, dict):
        raise ValueError(f"the answer is not a JSON object, but {parsed_body!r:.60}")
    return parsed_body


def send(
    method: str, url: str, body: Any, headers: Mapping[str, str], timeout: float
) -> tuple[int, bytes]:
    """Send `body` as JSON, and return the status and the body of the answer.

    An answer with an error is returned, too.

    body     None for a request without a body
    timeout  in seconds, for the connection and for each read

    Raises ConnectionRefused if the server cannot have received the request, and ShopUnreachable if
    there is no answer.
    """
    all_headers = {"Content-Type": "application/json", **headers}
    body_bytes = None if body is None else json.dumps(body).encode()
    try:
        try:
            answer = urlopen(Request(url, body_bytes, all_headers, method=method), timeout=timeout)
        except HTTPError as error_response:
            answer = error_response
        with answer:
            # The outer `try` includes this, because the answer may be cut off while it is read.
            return answer.status, answer.read()
    except (OSError, HTTPException) as error:  # URLError is an OSError
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
            raise ConnectionRefused(f"the connection to {url} was refused") from error
        raise ShopUnreachable(f"no answer from {url}: {error}") from error
