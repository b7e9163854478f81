"""Every refusal of the shop, with its status and its outcome.

`text` says what happened and what to do. Nothing is sold where one of these is raised, except
CommitUnknown: there it may have been.
"""

from collections.abc import Iterable


class ShopError(Exception):
    """The shop could not do what was asked."""

    #: The default message. Not the docstring, because python -OO removes docstrings.
    text = "The shop could not do what was asked."
    status = 500
    outcome = "error"
    #: Seconds after which asking again makes sense; None where it does not.
    retry_after: int | None = None

    def __init__(self, message: str | None = None, *, allowed: Iterable[str] | None = None) -> None:
        super().__init__(message or self.text)
        self.allowed = None if allowed is None else list(allowed)


class BadInput(ShopError):
    text = "The request is not one that the shop understands."
    status = 400


class LengthRequired(ShopError):
    text = "A body in chunks is not read. Send it with a Content-Length."
    status = 411


class UnknownProduct(ShopError):
    text = "There is no such product. Open a sale for it with POST /restock."
    status = 404


class KeyReused(ShopError):
    text = (
        "This Idempotency-Key came with another request before. Use a new key for a new purchase."
    )
    status = 422


class SoldOut(ShopError):
    text = "No unit is left."
    status = 409
    outcome = "sold_out"


class OpenedForAnother(ShopError):
    text = "This sale was opened for another lock. Open one with POST /restock that names this one."
    status = 409


class AskAgain(ShopError):
    text = "The shop could not sell just now. Ask again with the same key."
    status = 503
    retry_after = 1


class Busy(AskAgain):
    text = "The lock was not free in time; nothing was sold. Ask again with the same key."
    outcome = "busy"


class Behind(Busy):
    text = "Too many promised orders wait to be written; nothing was sold. Ask again, same key."


class Lost(AskAgain):
    text = "The right to write was lost before the write; nothing was sold. Ask again, same key."
    outcome = "lost"


class SaleOver(ShopError):
    text = "The sale that you came for is over; nothing was sold. Buy in the one that is open."
    status = 410
    outcome = "closed"


class FenceAhead(Lost):
    text = "The database's fence is ahead of the locks' Redis; nothing is sold until it is raised."


class SaleClosed(Lost):
    text = "The sale was closed meanwhile; nothing was sold. Ask again with the same key."


class Unavailable(AskAgain):
    text = "A server that the sale needs does not answer; nothing was sold. Ask again, same key."
    outcome = "unavailable"


class CommitUnknown(AskAgain):
    text = (
        "The connection broke while committing; the order may exist. Ask again with the same key."
    )
    outcome = "unknown"


class Throttled(ShopError):
    text = "Too many attempts. Come back when the window is over."
    status = 429
    outcome = "throttled"

    def __init__(self, *, seconds: int) -> None:
        super().__init__()
        self.retry_after = seconds


class Full(Throttled):
    text = "Too many buyers wait for this product; nothing was sold. Ask again with the same key."
    outcome = "full"


class Forbidden(ShopError):
    text = "The bearer token is missing or wrong. Send SHOP_RESTOCK_TOKEN along."
    status = 403
