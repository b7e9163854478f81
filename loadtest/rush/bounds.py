"""The bounds of a rush: of its options, of the files that its buyers need, and which machines may
be rushed: this one, and those that the user has said yes for."""

import re
import resource
import socket
from argparse import ArgumentTypeError
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from loadtest.stack.node import StackError
from loadtest.target.target import TargetError

Parse = Callable[[str], Any]


def number(least: float, most: float, kind: type = float) -> Parse:
    """A parser of numbers. It raises ArgumentTypeError, naming the bounds."""
    form = r"[0-9]{1,12}" if kind is int else r"[0-9]{1,9}(\.[0-9]{1,9})?"
    words = "a whole number" if kind is int else "a number"

    def parse(text: str) -> Any:
        if not re.fullmatch(form, text) or not least <= kind(text) <= most:
            raise ArgumentTypeError(
                f"{text[:64]!r} is not {words} from {least:.12g} to {most:.12g}"
            )
        return kind(text)

    return parse


whole = partial(number, kind=int)


def name(text: str) -> str:
    """The name of a product or a lock. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text):
        raise ArgumentTypeError(f"{text[:64]!r} is not 1 to 64 letters, digits, - and _")
    return text


BUYERS = whole(1, 20_000)
#: The options of a rush. The shop has the same bounds for the stock, the hold and the product.
RUSH: dict[str, Parse] = {
    "lock": name,
    "stock": whole(0, 1_000_000),
    "hold_ms": whole(0, 5_000),
    "product": name,
    "deadline": number(0.1, 3_600),
}
#: Files that a process has open besides its connections, of which each buyer is one: log, sockets,
#: libraries.
SPARE = 200
#: The option with which a user says yes to rushing another machine.
FLAG = "--i-may-load"


def allow(connections: int, *, what: str, otherwise: str) -> None:
    """Let this process, and those that it starts, open this many connections.

    what       whose they are, for the message
    otherwise  what to do instead of allowing more

    Raises StackError where this machine allows fewer.
    """
    needed = connections + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise StackError(
            f"{what} needs {needed} open files, and {hard} are allowed: {otherwise}, "
            f"or allow more (ulimit -n {needed})"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def name_of(url: str) -> str:
    """The name or address of the machine in a URL. Raises TargetError where there is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TargetError(f"{url!r} is no address of a shop: give one like http://127.0.0.1:8001")
    return parts.hostname


def is_loopback(name: str) -> bool:
    """Whether a name means this machine alone. One that nobody knows does not."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ip_address(str(one).partition("%")[0]).is_loopback for one in found)


def require_permission(url: str, allowed: str, *, buyers: int) -> str:
    """Raise TargetError unless this shop may be rushed: it is on this machine, or `allowed` is the
    name of its machine. Returns a warning to print, empty for this machine."""
    name = name_of(url)
    if is_loopback(name):
        return ""
    if allowed.lower() == name.lower():
        return (
            f"{buyers} buyers will rush {name} at one instant: stop it with Ctrl-C if you must not"
        )
    but = f"; {FLAG} names {allowed}" if allowed else ""
    raise TargetError(
        f"{name} is not this machine{but}. {buyers} buyers at one instant may take a shop "
        f"down, and against one that is not yours it is an attack. If you may: {FLAG} {name}"
    )
