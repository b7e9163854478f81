"""Which machines may be rushed: this one, and those that the user has said yes for."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from loadtest.target.errors import TargetError

#: The option with which a user says yes.
FLAG = "--i-may-load"


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
