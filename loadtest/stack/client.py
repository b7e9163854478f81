"""The requests of the load test to a running shop, over HTTP."""

import json
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NotRequired, TypedDict
from urllib.error import HTTPError
from urllib.request import Request, urlopen

#: Seconds that the orders of a sale are waited for after its last answer.
SETTLE_TIMEOUT = 15.0


class Strategy(TypedDict):
    """As much of a strategy as is read of GET /strategies. shop/sale/strategy.py says what each
    field means.

    verdicts  what is expected of it under each fault, where that is not in loadtest/expected.py
    """

    name: str
    expected: dict[str, str]
    backend: str
    sound: bool
    renewed: bool
    fenced: bool
    takes_over: bool
    reserves: bool
    deferred: bool
    needs: str
    available: bool
    verdicts: NotRequired[Mapping[str, str]]


class ShopUnreachable(RuntimeError):
    """The shop does not answer, or answers with an error. The message says what to do."""


class Refused(ShopUnreachable):
    """Nobody listens there, so nothing happened. Start the shop, or see in its log why it ended."""


class Shop:
    """One running shop.

    url    where it listens, for instance http://127.0.0.1:8000
    token  the bearer token to open sales and to read orders (SHOP_RESTOCK_TOKEN)
    name   of the node, where there are several
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0, name: str = "") -> None:
        self.url = url.rstrip("/")
        self.name = name
        self.token = token
        self.timeout = timeout

    def buy(self, *, key: str, stop: str = "", **wanted: Any) -> tuple[int, dict[str, Any]]:
        """Ask for one unit. Returns status and body of the answer, whatever it is.

        stop    the point at which this purchase stops until it is resumed (SHOP_DEMO)
        wanted  product, lock and buyer; `sale` is the number of the sale that the buyer comes for,
                `hold_ms` milliseconds between its check and its decrement (SHOP_DEMO): those that
                are 0 are not sent

        Raises Refused when nobody listened, so that nothing can have happened, and
        ShopUnreachable when no answer came, so that it may have.
        """
        wanted = {name: value for name, value in wanted.items() if value != 0}
        headers = {"Idempotency-Key": key, "Demo-Stop": stop}
        status, text = send("POST", f"{self.url}/buy", wanted, headers, self.timeout)
        try:
            return status, dict(json.loads(text))
        except ValueError as error:
            if status >= 400:
                return status, {}
            raise ShopUnreachable(f"no answer from {self.url}: {error}") from error

    def strategies(self) -> list[Strategy]:
        """Every strategy, as GET /strategies has it."""
        return list(self._ask("GET", "/strategies")["strategies"])

    def restock(self, *, product: str, stock: int, lock: str = "none") -> dict[str, Any]:
        """Open a new sale for this strategy. Returns its report."""
        return self._ask("POST", "/restock", {"product": product, "stock": stock, "lock": lock})

    def sale(self, number: int) -> dict[str, Any]:
        """The report of a sale."""
        return self._ask("GET", f"/sales/{number}")

    def settled_sale(self, number: int, *, seconds: float = SETTLE_TIMEOUT) -> dict[str, Any]:
        """The report of a sale once all that it promised has its order, or as it is after that many
        seconds: `unsettled` says how many have none, None that nobody knows."""
        deadline = time.monotonic() + seconds
        while True:
            report = self.sale(number)
            if report.get("unsettled", 0) == 0 or time.monotonic() > deadline:
                return report
            time.sleep(0.02)

    def orders(self, sale: int) -> list[dict[str, Any]]:
        """Every order of a sale, oldest first; needs the token."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._ask("GET", f"/sales/{sale}/orders?after={after}")
            found += page["orders"]
            after = page["next"]
        return found

    def is_open(self) -> bool:
        """Whether /healthz answers."""
        try:
            self._ask("GET", "/healthz")
        except ShopUnreachable:
            return False
        return True

    def ready(self) -> dict[str, Any]:
        """The body of /readyz. Raises ShopUnreachable unless everything answers."""
        return self._ask("GET", "/readyz")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            status, text = send(method, self.url + path, body, bearer, self.timeout)
            if status < 400:
                return dict(json.loads(text))
        except (ShopUnreachable, ValueError) as error:
            raise ShopUnreachable(
                f"no shop answers at {self.url} ({error}): start one with make serve, "
                "or name another with --host"
            ) from error
        raise ShopUnreachable(f"{method} {path}: {status}: {text[:2000].decode(errors='replace')}")


def send(
    method: str, url: str, body: Any, headers: Mapping[str, str], timeout: float
) -> tuple[int, bytes]:
    """Status and body of the answer, whatever it is; `body` is sent as JSON. Raises as Shop.buy."""
    given = {"Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    try:
        try:
            answer = urlopen(Request(url, data, given, method=method), timeout=timeout)
        except HTTPError as refusal:
            answer = refusal
        with answer:  # either may be cut off while it is read
            return answer.status, answer.read()
    except (OSError, HTTPException) as error:  # URLError is an OSError
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
            raise Refused(f"nobody listens at {url}") from error
        raise ShopUnreachable(f"no answer from {url}: {error}") from error
