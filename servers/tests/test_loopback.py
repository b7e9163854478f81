"""find_free_port(): ports that no other program of this machine uses."""

import socket

import pytest

from servers import loopback
from servers.loopback import SERVER_PORTS, find_free_port


def test_free_port_is_outside_the_outgoing_range() -> None:
    """SERVER_PORTS has no port that the system gives to outgoing connections."""
    assert all(find_free_port() in SERVER_PORTS for _ in range(20))


def test_preferred_port_is_returned_if_it_is_free() -> None:
    preferred_port = find_free_port()
    assert find_free_port(preferred_port) == preferred_port


def test_port_that_is_in_use_is_not_returned() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", find_free_port()))
        server.listen()
        port = server.getsockname()[1]
        assert find_free_port(port) != port


def test_port_of_the_range_is_chosen_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No port is returned twice. If SERVER_PORTS has no other port, the system chooses one."""
    first_port = find_free_port()
    monkeypatch.setattr(loopback, "SERVER_PORTS", range(first_port, first_port + 1))
    assert find_free_port() != first_port
