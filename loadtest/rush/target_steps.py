"""The steps of a buyer as a target's file defines them, in place of the locustfile's own steps.

Locust counts a purchase as a failure by the meaning that the target's read() gives it: `sold_out`
is no failure. A request of prepare() is counted by its status, and any other as a success.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from loadtest.judge.outcomes import OUTCOMES
from loadtest.rush.http_client_private import check_each_host, is_counted
from loadtest.rush.permission import get_hostname
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import NO_ANSWER, Answer
from loadtest.target.target import (
    Buyer,
    Target,
    TargetError,
    build_target_error,
    call_target_method,
    get_target_file,
    summarize_response,
)

#: The usual reason for an answer in HTML.
HTML_HINT = (
    "An HTML page is often a login or an error: does prepare() log in and send the CSRF token? "
    "Where the shop answers with pages, read response.text or response.url. "
)


@dataclass
class TargetSteps:
    """The steps of one buyer of a target's shop.

    They replace the `request` of the buyer's client, through which the target's code sends.

    addresses  the addresses of the shop: the buyer may send requests to their hosts only
    client     the buyer's HTTP client
    give_up    called with an error in the target's file, or of a shop that does not answer; it ends
               the rush without a verdict
    responses  the responses that Locust has not counted yet, each with whether its request may fail
               (because the target's code has passed catch_response=True)
    """

    target: Target
    addresses: Iterable[str]
    client: Any
    give_up: Callable[[ShopUnreachable], NoReturn]
    responses: list[tuple[Any, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Replace request() of the client by that of this object, and check each request's host."""
        self.hosts = {get_hostname(address) for address in self.addresses}
        self._send_request = self.client.request
        self.client.request = self.request
        check_each_host(self.client, self._require_own_host)

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request of this buyer. Locust counts it later, when its meaning is known."""
        response = self._send_request(*arguments, **{**options, "catch_response": True})
        # With catch_response=True the target's code says that the request may fail.
        may_fail = bool(options.get("catch_response"))
        self.responses.append((response, may_fail))
        return response

    def connect(self, buyer: Buyer) -> None:
        """Make the requests before the barrier, such as login and cart.

        If one fails, give_up() ends the rush and does not return.
        """
        try:
            try:
                call_target_method(self.target, self.target.prepare, buyer)
            finally:
                # If a request failed, an exception of prepare() is only a consequence: the
                # TargetError on the request replaces it.
                self._count_and_require_success()
        except ShopUnreachable as error:
            self.give_up(error)
        except Exception as error:  # if this raised, the rush would wait for this buyer
            self.give_up(build_target_error(self.target, "prepare", error))

    def buy(self, buyer: Buyer) -> Answer:
        """Send the purchase once, and return the meaning of its answer.

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
        """Let Locust count the requests of buy(): the purchase as `answer`, others as successes."""
        for response, _ in self.responses:
            with response:
                if response is purchase_response:
                    answer.count(response)
                else:
                    response.success()
        self.responses.clear()

    def _require_own_host(self, host: str) -> None:
        """Raise TargetError unless a request or a redirect to this host goes to the shop."""
        if host not in self.hosts:
            own_hosts = ", ".join(sorted(self.hosts))
            raise TargetError(
                f"a request or a redirect leads to {host}, and only {own_hosts} may be asked: pass "
                "allow_redirects=False, or another --host"
            )

    def _count_and_require_success(self) -> None:
        """Let Locust count the requests of prepare(). Raises TargetError for the first that failed.

        A request that was sent with catch_response=True may fail.
        """
        responses = self.responses
        self.responses = []
        for response, may_fail in responses:
            # The status is 0 if there was no answer.
            failed = not may_fail and not 0 < response.status_code < 400
            if not is_counted(response):
                _count(response, failed)
            if failed:
                sent_request = response.request_meta
                reason = summarize_response(response) if response.status_code else response.error
                raise TargetError(
                    f"prepare(): {sent_request['request_type']} {sent_request['url']} was answered "
                    f"{reason}. Repair that request, or send it with catch_response=True if it may "
                    "fail"
                )


def _count(response: Any, failed: bool) -> None:
    """Let Locust count a response, as a failure or as a success."""
    with response:
        if failed:
            response.failure(str(response.status_code))
        else:
            response.success()


def read_answer(target: Target, response: Any) -> Answer:
    """Return the meaning of a response to buy(). Return NO_ANSWER if the shop did not answer.

    If read() fails on a response with a status of 500 or above, the purchase may have happened, so
    the answer is an open `error`. Raises TargetError if read() fails on any other response, if it
    returns no Answer, or if buy() returned no response.
    """
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        raise TargetError(
            f"{get_target_file(target)}: buy() returned {response!r:.60}; return the response of "
            "the request that buys, as buyer.client.post() returns it"
        )
    if status == 0:  # there was no answer
        return NO_ANSWER
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
