"""The requests of one buyer: how Locust counts them, and that they reach the shop alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadtest.target.errors import TargetError, excerpt


def stay_at_home(client: Any, hosts: set[str]) -> None:
    """Let this client ask no machine but these, neither by a full address nor after a redirect."""
    agent = client.client
    send = agent._urlopen  # it is called for each request and for each redirect

    def send_there(request: Any) -> Any:
        host = str(request.url_split.host).strip("[]")
        if host not in hosts:
            raise TargetError(
                f"a request or a redirect leads to {host}, and only {', '.join(sorted(hosts))} "
                "may be asked: pass allow_redirects=False, or another --host"
            )
        return send(request)

    agent._urlopen = send_there


def keep_open(client: Any) -> list[Any]:
    """From now on every response of the client is added to the list returned, with whether it was
    asked for with catch_response, and Locust counts it when it is reported.

    Once for a buyer, before the barrier: what is done between barrier and request spreads the rush.
    """
    responses: list[Any] = []
    send: Callable[..., Any] = client.request

    def request(*arguments: Any, **options: Any) -> Any:
        expects_errors = bool(options.get("catch_response"))
        options["catch_response"] = True
        response = send(*arguments, **options)
        responses.append((response, expects_errors))
        return response

    client.request = request
    return responses


def report(response: Any, failure: str = "") -> None:
    """Report a response to Locust as a success, or as this failure."""
    with response:
        if failure:
            response.failure(failure)
        else:
            response.success()


def take_off(response: Any, seconds: float) -> None:
    """Let Locust count a response without the time that its request waited at the barrier."""
    response.request_meta["response_time"] -= seconds * 1000
    response.request_meta["start_time"] += seconds


def require_good(responses: list[Any]) -> None:
    """Report what prepare() sent. Raises TargetError for the first answer that is an error, unless
    it was sent with catch_response=True."""
    sent = responses[:]
    responses.clear()
    for response, expects_errors in sent:
        bad = not expects_errors and not 0 < response.status_code < 400
        if not response._entered:
            report(response, f"{response.status_code}" if bad else "")
        if bad:
            asked = f"{response.request_meta['request_type']} {response.request_meta['url']}"
            said = excerpt(response) if response.status_code else response.error
            raise TargetError(
                f"prepare(): {asked} was answered {said}. Repair that request, or send it with "
                "catch_response=True if it may fail"
            )
