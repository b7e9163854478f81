"""The errors of the shop. api/answers.py turns each into an HTTP answer.

The tree shows the status code and the outcome of each answer. If one is missing, it is the same as
that of the parent:

    ShopError                       500 error
    ├── BadInput                    400
    ├── Forbidden                   403
    ├── UnknownProduct              404
    ├── UnknownSale                 404 (shop/sale/reports.py)
    ├── TooSlow                     408
    ├── WrongStrategy               409
    ├── SoldOut                     409 sold_out
    ├── SaleOver                    410 closed
    ├── LengthRequired              411
    ├── TooLarge                    413
    ├── KeyReused                   422
    ├── Throttled                   429 throttled
    │   └── WaitingRoomFull             full
    └── RetryLater                  503
        ├── LockBusy                    busy
        │   └── SettlementBehind
        ├── Lost                        lost
        │   ├── DatabaseFenceAhead
        │   └── SaleClosed
        ├── Unavailable                 unavailable
        └── CommitUnknown               unknown

`text` is the default message: what happened, then what to do. It is not the docstring, because
python -OO removes docstrings. After any of these errors nothing was sold, except after
CommitUnknown, when the order may exist.
"""

from collections.abc import Iterable


class ShopError(Exception):
    """The shop could not process the request.

    status       status code of the answer
    outcome      outcome in the answer's body
    retry_after  seconds after which a retry makes sense; None if it does not
    allowed      the values that the shop would have accepted; None if they are not listed
    """

    text = "The shop could not process the request."
    status = 500
    outcome = "error"
    retry_after: int | None = None

    def __init__(self, message: str | None = None, *, allowed: Iterable[str] | None = None) -> None:
        super().__init__(message or self.text)
        self.allowed = None if allowed is None else list(allowed)


class BadInput(ShopError):
    text = "The shop cannot read the request."
    status = 400


class Forbidden(ShopError):
    text = "The bearer token is missing or wrong. Send SHOP_RESTOCK_TOKEN along."
    status = 403


class UnknownProduct(ShopError):
    text = "This product is not on sale. Open a sale for it with POST /restock."
    status = 404


class TooSlow(ShopError):
    text = "The body did not arrive in time. Send the request again."
    status = 408


class WrongStrategy(ShopError):
    text = "This sale was opened for another lock. Open one for this lock with POST /restock."
    status = 409


class SoldOut(ShopError):
    text = "No unit is left."
    status = 409
    outcome = "sold_out"


class SaleOver(ShopError):
    text = "The sale in the request is over; nothing was sold. Buy in the sale that is open."
    status = 410
    outcome = "closed"


class LengthRequired(ShopError):
    text = "A chunked body is not accepted. Send the body with a Content-Length."
    status = 411


class TooLarge(ShopError):
    text = "The body is too large."
    status = 413


class KeyReused(ShopError):
    text = (
        "This Idempotency-Key was already used for a different request. Use a new key for a new "
        "request."
    )
    status = 422


class Throttled(ShopError):
    text = "Too many attempts. Retry after the seconds in Retry-After."
    status = 429
    outcome = "throttled"

    def __init__(self, *, seconds: int) -> None:
        super().__init__()
        self.retry_after = seconds


class WaitingRoomFull(Throttled):
    text = "Too many purchases are under way; nothing was sold. Retry with the same key."
    outcome = "full"


class RetryLater(ShopError):
    text = "The shop could not sell just now. Retry with the same key."
    status = 503
    retry_after = 1


class LockBusy(RetryLater):
    text = "The lock was not free in time; nothing was sold. Retry with the same key."
    outcome = "busy"


class SettlementBehind(LockBusy):
    text = "Too many promised orders wait to be written; nothing was sold. Retry with the same key."


class Lost(RetryLater):
    text = "The lock was lost before the write; nothing was sold. Retry with the same key."
    outcome = "lost"


class DatabaseFenceAhead(Lost):
    text = (
        "The fence in the database is higher than the next fence of the locks' Redis. Nothing is "
        "sold until an operator corrects the clock of Redis or the fence (docs/production.md)."
    )


class SaleClosed(Lost):
    text = "The sale was closed during the purchase; nothing was sold. Retry with the same key."


class Unavailable(RetryLater):
    text = (
        "A server that the sale needs does not answer; nothing was sold. Retry with the same key."
    )
    outcome = "unavailable"


class CommitUnknown(RetryLater):
    text = "The connection broke during the commit; the order may exist. Retry with the same key."
    outcome = "unknown"
