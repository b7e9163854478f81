"""Permission for a rush, in which many buyers send requests to a shop at the same instant.

A rush on this machine is always allowed. A rush on another machine is allowed only if the user
gives the machine's host name with PERMISSION_FLAG.
"""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from loadtest.target.target import TargetError

#: The option with which a user allows a rush on another machine.
PERMISSION_FLAG = "--i-may-load"


def get_hostname(url: str) -> str:
    """Return the name or address of the machine in a URL. Raises TargetError if there is none."""
    try:
        parts = urlsplit(url)
        hostname = parts.hostname
    except ValueError:  # for example, a bracket of an IPv6 address is missing
        hostname = None
    if not hostname or parts.scheme not in ("http", "https"):
        raise TargetError(
            f"{url!r} is not the address of a shop: give one like http://127.0.0.1:8001"
        )
    return hostname


def is_loopback(hostname: str) -> bool:
    """Return whether a name resolves to loopback addresses only; False for an unknown name."""
    try:
        address_infos = socket.getaddrinfo(hostname, None)
    except (OSError, UnicodeError):
        return False
    # An IPv6 address may end in a zone: fe80::1%eth0.
    addresses = {str(socket_address[0]).partition("%")[0] for *_, socket_address in address_infos}
    return bool(addresses) and all(ip_address(address).is_loopback for address in addresses)


def require_permission(url: str, allowed_hostname: str, *, buyers: int) -> str:
    """Raise TargetError unless the shop is on this machine or on the allowed one.

    Return a warning to print, which is empty for this machine.

    allowed_hostname  the value of PERMISSION_FLAG; empty without it
    """
    hostname = get_hostname(url)
    if is_loopback(hostname):
        return ""
    if allowed_hostname.lower() == hostname.lower():
        return (
            f"{buyers} buyers will send requests to {hostname} at one instant: press Ctrl-C if you "
            "are not allowed to do this"
        )
    flag_phrase = f"; {PERMISSION_FLAG} allows {allowed_hostname}" if allowed_hostname else ""
    raise TargetError(
        f"{hostname} is not this machine{flag_phrase}. {buyers} buyers at one instant may take a "
        "shop down, and against a shop that is not yours this is an attack. If you are allowed to "
        f"do it, add {PERMISSION_FLAG} {hostname}"
    )
