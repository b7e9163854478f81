"""Targets: third-party shops under load test, each described by a subclass of Target.

This module has the base class, the loader of the file with the subclass, and its errors.
"""

import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import Answer

T = TypeVar("T")
#: Characters of an answer that a message quotes.
EXCERPT_LENGTH = 120
#: Each method that a target has to override -> its task, for a message.
REQUIRED_METHODS = {
    "open": "put up `stock` units for sale",
    "buy": "send the request that buys, and return its response",
    "read": "return what a response means: sold(), sold_out(), again() or error()",
    "orders": "return how many orders there are, or a list of Order",
}
#: The end of several error messages.
SEE_DOCS = "docs/your-shop.md shows how to write such a file"


@dataclass
class Buyer:
    """One buyer of a rush."""

    number: int  # 0, 1, 2, ...
    key: str  # new in every rush: to be used as an idempotency key, or as the name of a customer
    client: Any  # a Locust FastHttpSession with the buyer's own cookies: get, post, ...
    #: For values that prepare() hands over to buy(), such as a CSRF token or the id of a cart.
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the buyer, the same in every rush: buyer-0, buyer-1, ..."""
        return f"buyer-{self.number}"


@dataclass(frozen=True, slots=True)
class Order:
    """One order of the shop.

    buyer  the `name` or the `key` of the Buyer
    """

    number: int | str
    buyer: str


#: What orders() may return.
Orders = int | Sequence[Order | Mapping[str, Any]]


class Target:
    """A third-party shop to test: how to buy from it, and how to read its orders.

    A subclass has to override the four methods that raise NotImplementedError, and may override
    other methods and attributes.

    host  the address of the shop, without a slash at its end
    """

    name: str = ""  # the name of the shop in tables; by default the name of the file
    #: Whether a buyer may repeat a request after a lost answer without buying twice; the shop needs
    #: idempotency keys for that.
    repeatable: bool = False
    warm_up: str = "/"  # each buyer requests this path before the rush, to connect; "": none
    #: Seconds that all buyers together may take for prepare(), in addition to 50 ms per buyer.
    prepare_s: float = 30.0
    #: Seconds after the last answer in which the shop may still write orders and stock, for example
    #: from a queue.
    settles_s: float = 10.0
    file: str = ""  # the file that defines this class, set by load_target_file()
    # Only this project's shop uses the following attributes.
    is_own_shop: bool = False  # True only for this project's shop (ours.py)
    product: str = "unit"
    hold_ms: int = 0
    sale: int = 0

    def __init__(self, host: str) -> None:
        self.host = host.rstrip("/")

    def open(self, stock: int) -> None:
        """Put `stock` units up for sale. Earlier orders may stay: they are not counted."""
        raise NotImplementedError

    def prepare(self, buyer: Buyer) -> None:
        """Send the requests that come before the purchase: login, CSRF token, cart.

        This method is called before the rush begins. An answer with a status of 400 or above ends
        the run with a message, unless the request was sent with catch_response=True.
        """
        if self.warm_up:
            buyer.client.get(self.warm_up, name="warm-up", catch_response=True)

    def buy(self, buyer: Buyer) -> Any:
        """Send the one request that buys, through buyer.client, and return its response.

        This method is called before the buyers are released. Its first request is built at once,
        but waits for the release before it is sent. If read() returns again(), buy() is called
        again.
        """
        raise NotImplementedError

    def read(self, response: Any) -> Answer:
        """Return the meaning of the response to buy(): sold(), sold_out(), again() or error("why").

        After again() the buyer sends the same request again.

        response  a response with any status; it has status_code, headers, text, json() and url
        """
        raise NotImplementedError

    def orders(self) -> Orders:
        """Return a list of all orders of the shop, or only how many there are.

        With a list, the judge compares each buyer's answer with the buyer's order.
        """
        raise NotImplementedError

    def stock(self) -> int | None:
        """Return the units left, or None if the shop does not show them."""
        return None

    def unsettled(self) -> int | None:
        """Return how many promised orders are not written yet: the length of a queue, for instance.

        After the rush, the load test calls this method until it returns 0, for at most `settles_s`
        seconds. Only this project's shop may return None, which means that the number is unknown.
        """
        return 0


def load_target_file(path: Path | str, host: str) -> Target:
    """Return the target that a file defines, for a shop at `host`. Raises TargetError."""
    file = Path(path)
    if not file.is_file():
        raise TargetError(
            f"there is no file {path}: give the path of your target's file; {SEE_DOCS}"
        )
    target_class = _find_target_class(file)
    missing_methods = [
        name for name in REQUIRED_METHODS if getattr(target_class, name) is getattr(Target, name)
    ]
    if missing_methods:
        advice = "; ".join(f"{name}() has to {REQUIRED_METHODS[name]}" for name in missing_methods)
        raise TargetError(
            f"{file.name}: {target_class.__name__} has no {' and no '.join(missing_methods)}. "
            f"{advice}. {SEE_DOCS}"
        )
    target_class.file = str(file)
    try:
        target = target_class(host)
    except (Exception, SystemExit) as error:  # the user's code may raise any error
        raise build_target_error(target_class, "__init__", error) from error
    for attribute in ("prepare_s", "settles_s"):
        seconds = getattr(target, attribute)
        if not (isinstance(seconds, int | float) and 0 <= seconds < inf):
            raise TargetError(
                f"{file.name}: {attribute} is {seconds!r:.60}: give a number of seconds"
            )
    target.name = target.name or file.stem
    return target


def _find_target_class(file: Path) -> type[Target]:
    """Run a file and return its only subclass of Target. Raises TargetError."""
    module_name = f"target_{file.stem}"
    try:
        module_globals = runpy.run_path(str(file), run_name=module_name)
    except (Exception, SystemExit) as error:  # the user's code may raise any error
        problem = f"{type(error).__name__}: {error}"
        raise TargetError(f"{file.name} cannot be imported: {problem}. Repair it first") from error
    # A class with another __module__ was only imported into the file, for example Target itself.
    classes = [
        member
        for member in module_globals.values()
        if isinstance(member, type)
        and issubclass(member, Target)
        and member.__module__ == module_name
    ]
    if len(classes) != 1:
        names = ", ".join(target_class.__name__ for target_class in classes) or "none"
        raise TargetError(
            f"{file.name} has to define one subclass of loadtest.target.Target, but defines "
            f"{names}. {SEE_DOCS}"
        )
    return classes[0]


class TargetError(ShopUnreachable):
    """A target cannot be used, or its shop does not answer. The message says what to do."""


def call_target_method(target: object, method: Callable[..., T], *arguments: Any) -> T:
    """Call a method that the author of a target wrote, and return its return value.

    A ShopUnreachable, such as a TargetError, is raised unchanged. Any other exception is raised as
    a TargetError, which gives the line in the target's file.
    """
    try:
        return method(*arguments)
    except ShopUnreachable:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise any error
        raise build_target_error(target, method.__name__, error) from error


def build_target_error(
    target: object, method: str, error: BaseException, note: str = ""
) -> TargetError:
    """Return the TargetError for an exception of a target's method.

    Its message gives the line of the target's file that raised the exception, and advice.

    target  the target, or its class
    note    sentences to insert before the advice
    """
    file = get_target_file(target)
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    location = Path(file).name
    if lines:
        location += f", line {lines[-1]}"
    problem = type(error).__name__
    if str(error):
        problem += f": {error}"
    advice = "Repair it, and run again"
    if _is_connection_error(error):
        advice = "Does the shop still run? Its own log says why it stopped; start it, and run again"
    return TargetError(f"{location}: {method}() raised {problem}. {note}{advice}")


def _is_connection_error(error: BaseException) -> bool:
    """Return whether an error was raised because a server does not answer."""
    reason = getattr(error, "reason", None)  # a URLError wraps the error of the connection
    return isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(reason, BaseException) and _is_connection_error(reason)
    )


def get_target_file(target: object) -> str:
    """Return the file of a target or of its class, for messages.

    A target that load_target_file() has not loaded has no `file`: then return its module's name.
    """
    return str(getattr(target, "file", "")) or type(target).__module__


def summarize_response(response: Any) -> str:
    """Return the status, the content type and the beginning of the text of a response, on one line.

    If the text cannot be decoded, because of an unknown charset or a broken gzip, the line has the
    error in place of the text.
    """
    headers = response.headers or {}
    content_type = str(headers.get("Content-Type", "no type")).partition(";")[0]
    try:
        text = " ".join(str(response.text or "").split())
    except Exception as error:  # which exception it is depends on the encoding
        text = f"unreadable, {type(error).__name__}: {error}"
    if len(text) > EXCERPT_LENGTH:
        text = text[:EXCERPT_LENGTH] + " ..."
    return f"{response.status_code}, {content_type}: {text!r}"
