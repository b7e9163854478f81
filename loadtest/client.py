"""What the load test asks of a running shop, over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


class ShopUnreachable(RuntimeError):
    """The shop does not answer, or not as it should. The message says what to do."""


class Shop:
    """One running shop.

    url    where it listens, for instance http://127.0.0.1:8000
    token  the bearer token of POST /restock (SHOP_RESTOCK_TOKEN)
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout

    def strategies(self) -> list[dict[str, Any]]:
        """Every strategy: name, title, article, summary, expected verdicts."""
        return list(self._ask("GET", "/strategies")["strategies"])

    def restock(self, *, product: str, stock: int) -> dict[str, Any]:
        """Open a new sale; its report."""
        return self._ask("POST", "/restock", {"product": product, "stock": stock})

    def sale(self, number: int) -> dict[str, Any]:
        """The report of a sale."""
        return self._ask("GET", f"/sales/{number}")

    def orders(self, sale: int) -> list[dict[str, Any]]:
        """The orders of a sale, oldest first."""
        return list(self._ask("GET", f"/sales/{sale}/orders")["orders"])

    def ready(self) -> dict[str, Any]:
        """What /readyz says when everything answers."""
        return self._ask("GET", "/readyz")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urlopen(request, timeout=self.timeout) as response:
                return dict(json.load(response))
        except HTTPError as error:
            with error:
                said = error.read(2000).decode(errors="replace")
            raise ShopUnreachable(f"{method} {path}: {error.code}: {said}") from error
        except (URLError, OSError, ValueError) as error:
            raise ShopUnreachable(
                f"no shop answers at {self.url} ({error}): start one with make serve, "
                "or name another with --host"
            ) from error
