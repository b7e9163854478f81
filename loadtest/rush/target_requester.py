"""The requests of a buyer of a target, a third-party shop that a file of the user describes.

For this project's shop, the locustfile itself makes the requests.

In its statistics, Locust counts a purchase as a success or a failure according to the Answer that
the target's read() returned: `sold_out` is a success. A request of prepare() is a failure if its
status is 400 or above. Further requests of buy() are successes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from loadtest.judge.outcomes import OUTCOMES
from loadtest.rush.http_client_private import check_each_host, is_counted
from loadtest.rush.permission import get_hostname
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import UNKNOWN_OUTCOME, Answer
from loadtest.target.target import (
    Buyer,
    Target,
    TargetError,
    build_target_error,
    call_target_method,
    get_target_file,
    summarize_response,
)

#: A hint in the error message if read() fails on a page in HTML.
HTML_HINT = (
    "An HTML page is often a login or an error: does prepare() log in and send the CSRF token? "
    "Where the shop answers with pages, read response.text or response.url. "
)


@dataclass
class TargetRequester:
    """Sends the requests of one buyer: connect() before the barrier, and then buy().

    The target's code sends requests through `client`, whose method request() is replaced by that of
    this object.

    addresses  the addresses of the shop: the buyer may send requests to these hosts only
    client     the buyer's HTTP client
    give_up    ends the rush without a verdict. It is called with the error if the target's code
               fails, or if the shop does not answer
    responses  the responses that Locust has not counted yet, each with True if its request may fail
               (because the target's code has passed catch_response=True)
    """

    target: Target
    addresses: Iterable[str]
    client: Any
    give_up: Callable[[ShopUnreachable], NoReturn]
    responses: list[tuple[Any, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Replace the client's request(), and let the client check the host of each request."""
        self.allowed_hosts = {get_hostname(address) for address in self.addresses}
        self._send_request = self.client.request
        self.client.request = self.request
        check_each_host(self.client, self._require_allowed_host)

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request of this buyer. Locust counts it later, when its meaning is known."""
        response = self._send_request(*arguments, **{**options, "catch_response": True})
        # The target's code itself passes catch_response=True for a request that may fail.
        may_fail = bool(options.get("catch_response"))
        self.responses.append((response, may_fail))
        return response

    def connect(self, buyer: Buyer) -> None:
        """Send the requests that come before the barrier, such as login and cart.

        If a request fails, give_up() ends the rush and does not return.
        """
        try:
            try:
                call_target_method(self.target, self.target.prepare, buyer)
            finally:
                # If a request failed, this raises a TargetError on that request. It replaces an
                # exception of prepare(), which was probably caused by the failed request.
                self._count_and_require_success()
        except ShopUnreachable as error:
            self.give_up(error)
        except Exception as error:  # if this raised, the rush would wait for this buyer
            self.give_up(build_target_error(self.target, "prepare", error))

    def buy(self, buyer: Buyer) -> Answer:
        """Send the purchase once, and return the meaning of the shop's answer.

        If the target's code fails, give_up() ends the rush and does not return.
        """
        try:
            purchase_response = call_target_method(self.target, self.target.buy, buyer)
            if not self.responses:
                raise TargetError(
                    f"{get_target_file(self.target)}: buy() sent nothing with buyer.client: send "
                    "the purchase with it"
                )
            answer = read_answer(self.target, purchase_response)
            self._count_purchase(purchase_response, answer)
        except ShopUnreachable as error:
            self.give_up(error)
        except Exception as error:  # if this raised, the rush would wait for this buyer
            self.give_up(build_target_error(self.target, "buy", error))
        return answer

    def _count_purchase(self, purchase_response: Any, answer: Answer) -> None:
        """Let Locust count the requests of buy().

        The purchase is counted according to its answer, any other request as a success.
        """
        for response, _ in self.responses:
            with response:
                if response is purchase_response:
                    answer.let_locust_count(response)
                else:
                    response.success()
        self.responses.clear()

    def _require_allowed_host(self, host: str) -> None:
        """Raise TargetError unless this is a host of the shop."""
        if host not in self.allowed_hosts:
            allowed_hosts = ", ".join(sorted(self.allowed_hosts))
            raise TargetError(
                f"a request or a redirect leads to {host}, but only {allowed_hosts} may get "
                "requests: pass allow_redirects=False, or another --host"
            )

    def _count_and_require_success(self) -> None:
        """Let Locust count the requests of prepare().

        Raises TargetError for the first request that failed, unless it was sent with
        catch_response=True.
        """
        responses = self.responses
        self.responses = []
        for response, may_fail in responses:
            # The status is 0 if there was no answer.
            failed = not may_fail and not 0 < response.status_code < 400
            if not is_counted(response):
                _count_response(response, failed)
            if failed:
                sent_request = response.request_meta
                reason = summarize_response(response) if response.status_code else response.error
                raise TargetError(
                    f"prepare(): {sent_request['request_type']} {sent_request['url']} was answered "
                    f"{reason}. Repair that request, or send it with catch_response=True if it may "
                    "fail"
                )


def _count_response(response: Any, failed: bool) -> None:
    """Let Locust count a response, as a failure or as a success."""
    with response:
        if failed:
            response.failure(str(response.status_code))
        else:
            response.success()


def read_answer(target: Target, response: Any) -> Answer:
    """Return the meaning of a purchase's response; UNKNOWN_OUTCOME if the shop did not answer.

    If the target's read() fails on a response with a status of 500 or above, the Answer is an
    `error` that may have sold a unit. Raises TargetError if read() fails on any other response, if
    it returns no Answer, or if buy() returned no response.

    response  what the target's buy() returned
    """
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        raise TargetError(
            f"{get_target_file(target)}: buy() returned {response!r:.60}; return the response of "
            "the request that buys, as buyer.client.post() returns it"
        )
    if status == 0:  # there was no answer
        return UNKNOWN_OUTCOME
    try:
        answer = target.read(response)
    except (Exception, SystemExit) as error:  # the user's code may raise any error
        if status >= 500:
            return Answer("error", why=summarize_response(response), may_have_sold=True)
        content_type = str((response.headers or {}).get("Content-Type", ""))
        hint = HTML_HINT if "html" in content_type else ""
        note = f"The response was {summarize_response(response)}. {hint}"
        raise build_target_error(target, "read", error, note) from error
    if not isinstance(answer, Answer) or answer.outcome not in OUTCOMES:
        raise TargetError(
            f"{get_target_file(target)}: read() returned {answer!r:.60} for "
            f"{summarize_response(response)}; return sold(), sold_out(), again() or "
            'error("why")'
        )
    return answer
