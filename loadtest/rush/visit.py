"""The steps of a buyer as a target's file has them, in place of the locustfile's own.

Locust counts each request by what the target reads in its answer: sold out is no failure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from loadtest.judge.sale_record import OUTCOMES
from loadtest.rush.bounds import name_of
from loadtest.target.answer import NONE, Answer
from loadtest.target.target import Buyer, Target, TargetError, call, excerpt, file_of, wrong

#: What an answer in HTML often means.
HINT = (
    "An HTML page is often a login or an error: does prepare() log in and send the CSRF token? "
    "Where the shop answers with pages, read response.text or response.url. "
)


@dataclass
class Visit:
    """One buyer of another shop, at these addresses.

    client     the buyer's own; from now on it asks no machine but the shop's
    give_up    called where the target is wrong: the rush ends without a verdict
    responses  those that Locust has yet to count, which it does when they are reported, each with
               whether it was asked for with catch_response
    """

    target: Target
    nodes: Iterable[str]
    client: Any
    give_up: Callable[[TargetError], NoReturn]
    responses: list[tuple[Any, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        client = self.client
        self.hosts = {name_of(node) for node in self.nodes}
        self._request, self._urlopen = client.request, client.client._urlopen
        client.request, client.client._urlopen = self.request, self.urlopen

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request of this buyer, and keep its response open."""
        response = self._request(*arguments, **{**options, "catch_response": True})
        self.responses.append((response, bool(options.get("catch_response"))))
        return response

    def urlopen(self, request: Any) -> Any:
        """Called for each request and for each redirect: a full address may lead elsewhere too."""
        host = str(request.url_split.host).strip("[]")
        if host not in self.hosts:
            only = ", ".join(sorted(self.hosts))
            raise TargetError(
                f"a request or a redirect leads to {host}, and only {only} may be asked: pass "
                "allow_redirects=False, or another --host"
            )
        return self._urlopen(request)

    def connect(self, me: Buyer) -> None:
        """All that comes before the barrier: login, cart."""
        try:
            try:
                call(self.target, self.target.prepare, me)
            finally:
                self._require_good()  # an answer that is an error says more than what follows
        except TargetError as error:
            self.give_up(error)

    def buy(self, me: Buyer) -> Answer:
        """Send the purchase once, and read its answer."""
        try:
            response = call(self.target, self.target.buy, me)
            if not self.responses:
                raise TargetError(
                    f"{file_of(self.target)}: buy() sent nothing with buyer.client: send the "
                    "purchase with it"
                )
            answer = read(self.target, response)
        except TargetError as error:
            self.give_up(error)
        for one, _ in self.responses:
            with one:
                answer.count(one) if one is response else one.success()
        self.responses.clear()
        return answer

    def _require_good(self) -> None:
        """Report what prepare() sent. Raises TargetError for the first answer that is an error,
        unless it was sent with catch_response=True."""
        sent, self.responses = self.responses, []
        for response, expects_errors in sent:
            bad = not expects_errors and not 0 < response.status_code < 400
            if not response._entered:
                with response:
                    response.failure(f"{response.status_code}") if bad else response.success()
            if bad:
                asked = f"{response.request_meta['request_type']} {response.request_meta['url']}"
                said = excerpt(response) if response.status_code else response.error
                raise TargetError(
                    f"prepare(): {asked} was answered {said}. Repair that request, or send it with "
                    "catch_response=True if it may fail"
                )


def read(target: Target, response: Any) -> Answer:
    """The meaning of a response to buy(). Nothing is known where none came.

    Raises TargetError when buy() returned no response, or when the target cannot read it; a 5xx
    that it cannot read is an answer that leaves open what happened.
    """
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        raise TargetError(
            f"{file_of(target)}: buy() returned {response!r:.60}; return the response of the "
            "request that buys, as buyer.client.post() returns it"
        )
    if status == 0:
        return NONE
    try:
        answer = target.read(response)
    except Exception as error:  # any: the code is not ours
        if status >= 500:
            return Answer("error", why=excerpt(response), open=True)
        kind = str((response.headers or {}).get("Content-Type", ""))
        note = f"It was to read {excerpt(response)}. {HINT if 'html' in kind else ''}"
        raise wrong(target, "read", error, note) from error
    if not isinstance(answer, Answer) or answer.outcome not in OUTCOMES:
        raise TargetError(
            f"{file_of(target)}: read() returned {answer!r:.60} for {excerpt(response)}; return "
            'sold(), sold_out(), again() or error("why")'
        )
    return answer
