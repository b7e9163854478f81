"""The checks of lessons 1, 2, 9 and 10, whose exercises are answers instead of code that sells.

The checks are check_schedules(), check_tally(), check_ask_again() and check_table(). lessons.toml
lists them as `answers.schedules` and so on. A check returns a Refusal, the reason why the
participant's answers are not accepted, or None. lessons.toml explains the codes of the refusals,
such as "swapped".
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import permutations
from numbers import Real
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

from loadtest.expected import EXPECTED
from shop.errors import CommitUnknown, ShopError
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from shop.schedules import two_buyers
from shop.schedules.two_buyers import MOVES_PER_BUYER
from workshop.checks.purchases import PRODUCT, describe_run, open_sale
from workshop.checks.watch import restart_step_timer
from workshop.refusal import Refusal

#: The arguments that the check passes to the functions of lesson 2, in this order.
PARAMETERS = ("initial", "orders", "left")


class CountedSale(NamedTuple):
    """A sale in lesson 2, with the right answers.

    arguments     the initial stock, the orders and the stock left: the values of PARAMETERS
    oversold      the right number of oversold units
    lost_updates  the right number of lost updates
    """

    arguments: tuple[int, int, int]
    oversold: int
    lost_updates: int


SALES = [
    CountedSale((100, 100, 0), oversold=0, lost_updates=0),
    CountedSale((100, 200, 97), oversold=100, lost_updates=197),
    CountedSale((100, 101, 0), oversold=1, lost_updates=1),
    CountedSale((100, 101, -1), oversold=1, lost_updates=0),
    CountedSale((10, 9, 1), oversold=0, lost_updates=0),
    CountedSale((10, 12, 3), oversold=2, lost_updates=5),
    CountedSale((10, 10, 1), oversold=0, lost_updates=1),
    CountedSale((10, 5, 5), oversold=0, lost_updates=0),
]
#: A cell of the table in lesson 10, a strategy under a fault -> the code of the refusal for a wrong
#: answer. The refusal's texts correct the belief behind this answer.
REFUSAL_CODE_BY_CELL = {
    ("token", "failover"): "replication-keeps-it",
    ("token-watchdog", "restart"): "a-restart-keeps-it",
    ("redlock", "pause"): "majority-is-a-fence",
    ("redlock", "restart"): "majority-remembers",
    ("zookeeper", "pause"): "consensus-is-a-fence",
    ("redis", "failover"): "fence-needs-redis",
    ("setnx", "eviction"): "eviction-takes-all",
    ("row-lock", "redis-down"): "row-lock-needs-redis",
}
#: The verdicts that a participant may enter in the table.
VERDICTS = ("exact", "oversold", "deadlock")
#: Maximum number of requests that the check lets a buyer send. A correct buyer sends two.
MAX_REQUESTS = 6
#: The initial stock in lesson 9. A correct buyer buys one unit; a wrong buyer may buy several.
UNITS_ON_SALE = 5
#: The strategy with which the shop sells in lesson 9. Any correct strategy would do.
STRATEGY = "row-lock"
#: The buyer in lesson 9. It does not get the shop's answer to one of its requests.
VICTIM = "victim"
#: Outcomes of a request that has sold nothing, after which the buyer should try again.
NOTHING_SOLD = ("busy", "lost", "unavailable")
#: The participant's function next_key(outcome, key). It gets the outcome of a buyer's request, and
#: the request's Idempotency-Key. It returns the key of the next request, or None to stop.
NextKey = Callable[[str, str], str | None]


def check_schedules(module: ModuleType) -> Refusal | None:
    """Return a refusal unless both schedules that the participant wrote down are right.

    SELLS_TWICE must be an order of two buyers' moves in which both get the only unit. DOES_NOT must
    be an order in which only one buyer gets it. In lessons.toml, the name of this check is
    `answers.schedules`.
    """
    answers = [module.SELLS_TWICE, module.DOES_NOT]
    if not any(answers):
        return Refusal("todo")
    for answer in answers:
        if refusal := _check_letters(answer):
            return refusal
    first_run, second_run = [
        two_buyers.run_schedule("none", _normalize_letters(answer), units=1) for answer in answers
    ]
    # A run is wrong if it oversold or lost an update: here, if both buyers got the only unit.
    first_story = describe_run(first_run)
    second_story = describe_run(second_run)
    if not first_run.is_wrong and second_run.is_wrong:
        return Refusal("swapped", {}, (first_story, second_story))
    if not first_run.is_wrong:
        return Refusal("serial", {"schedule": first_run.schedule}, (first_story,))
    if second_run.is_wrong:
        return Refusal("sells-twice", {"schedule": second_run.schedule}, (second_story,))
    return None


def _check_letters(answer: object) -> Refusal | None:
    """Return a refusal unless the answer has three letters A and three letters B."""
    letters = _normalize_letters(answer)
    if sorted(letters) == sorted("AB" * MOVES_PER_BUYER):
        return None
    details = {"schedule": answer, "letters": len(letters)}
    if len(letters) > 2 * MOVES_PER_BUYER and set(letters) == {"A", "B"}:
        return Refusal("too-many-moves", details)
    return Refusal("not-a-schedule", details)


def _normalize_letters(answer: object) -> str:
    """Return the letters of a participant's answer in capitals, without separators.

    answer  a text or a list of letters, if the participant made no mistake
    """
    text = "".join(map(str, answer)) if isinstance(answer, (list, tuple)) else str(answer)
    return re.sub("[ ,-]", "", text).upper()


def check_tally(module: ModuleType) -> Refusal | None:
    """Return a refusal unless the participant's two functions count every sale correctly.

    A mistake that affects all sales, such as swapping the two functions, takes precedence over a
    wrong count of one sale. In lessons.toml, the name of this check is `answers.tally`.
    """
    functions = {name: getattr(module, name) for name in ("oversold", "lost_updates")}
    right_answers = {
        "oversold": [sale.oversold for sale in SALES],
        "lost_updates": [sale.lost_updates for sale in SALES],
    }
    answers = {
        name: [function(*sale.arguments) for sale in SALES] for name, function in functions.items()
    }
    names_without_return = [
        name for name, numbers in answers.items() if numbers == [None] * len(SALES)
    ]
    if len(names_without_return) == len(functions):
        return Refusal("todo")
    if names_without_return:
        return Refusal("no-return", {"function": names_without_return[0]})
    for name, numbers in answers.items():
        if refusal := _check_numbers(name, numbers):
            return refusal
        if refusal := _check_parameter_order(name, functions[name], right_answers[name]):
            return refusal
    swapped_answers = {
        "oversold": right_answers["lost_updates"],
        "lost_updates": right_answers["oversold"],
    }
    if answers == swapped_answers:
        return Refusal("swapped")
    for index, sale in enumerate(SALES):
        details = dict(zip(PARAMETERS, sale.arguments, strict=True))
        answer = answers["oversold"][index]
        if answer != sale.oversold:
            details |= {"result": answer, "right": sale.oversold}
            return _refuse_wrong_count(functions["oversold"], details)
        answer = answers["lost_updates"][index]
        if answer != sale.lost_updates:
            details |= {"result": answer, "right": sale.lost_updates}
            return Refusal("misses-lost-updates", details)
    return None


def _check_numbers(function_name: str, answers: Sequence[object]) -> Refusal | None:
    """Return a refusal for the first answer that is not a number, or None.

    answers  what the participant's function returned for each of SALES
    """
    for sale, answer in zip(SALES, answers, strict=True):
        # False counts as 0, because an expression such as `a > b and a - b` can return it.
        is_true = isinstance(answer, bool) and answer
        if is_true or not isinstance(answer, Real):
            details = {
                "function": function_name,
                "sale": ", ".join(map(str, sale.arguments)),
                "result": repr(answer),
                "kind": _describe_type(answer),
            }
            return Refusal("not-a-number", details)
    return None


def _check_parameter_order(
    name: str, function: Callable[..., object], right_answers: Sequence[int]
) -> Refusal | None:
    """Return a refusal if the function would be right with its parameters in another order.

    name           the name of the function
    function       the participant's `oversold` or `lost_updates`
    right_answers  the right number for each of SALES
    """
    # permutations() yields PARAMETERS itself first, so a correct function is not refused.
    for parameters in permutations(PARAMETERS):
        positions = [PARAMETERS.index(parameter) for parameter in parameters]
        with suppress(Exception):  # the function may fail with values that it does not expect
            answers = [
                function(*(sale.arguments[position] for position in positions)) for sale in SALES
            ]
            if answers == right_answers and parameters == PARAMETERS:
                return None
            if answers == right_answers:
                details = {"function": name, "sequence": ", ".join(parameters)}
                return Refusal("arguments-swapped", details)
    return None


def _describe_type(answer: object) -> str:
    """Return the type of an answer in words, such as `a text`.

    The messages in lessons.toml have these words in the place of `{kind}`, as in "{function}()
    returns {result}, which is {kind}".
    """
    match answer:
        case None:
            return "nothing"
        case bool():
            return "a yes or no, and does not say how many"
        case str():
            return "a text"
        case bytes():
            return "bytes"
    return f"a {type(answer).__name__}"


def _refuse_wrong_count(oversold: Callable[..., object], details: Mapping[str, object]) -> Refusal:
    """Return the refusal for a wrong result of the participant's function `oversold`.

    details  the arguments of the call, by the names in PARAMETERS; its wrong `result`; the `right`
             count
    """
    count = details["result"]
    if isinstance(count, Real) and count < 0:
        return Refusal("negative-oversell", details)
    # The right count does not depend on the stock that is left. So call the function with three
    # different stocks (any would do), and see whether the count changes.
    counts = [oversold(details["initial"], details["orders"], left) for left in (-7, 0, 50)]
    depends_on_stock = counts.count(counts[0]) < len(counts)
    return Refusal("looks-at-stock" if depends_on_stock else "counts-wrong", details)


def check_table(module: ModuleType) -> Refusal | None:
    """Check the participant's table of verdicts, and return a refusal for the first wrong cell.

    Return None if every cell is right. A cell has the verdict of a strategy (`lock`) under a fault.
    In lessons.toml, the name of this check is `answers.table`.
    """
    answers = module.ANSWERS or {}
    if not isinstance(answers, Mapping):
        return Refusal("not-a-table", {"kind": _describe_type(answers)})
    if not any(answers.values()):
        return Refusal("todo")
    for (lock, fault), refusal_code in REFUSAL_CODE_BY_CELL.items():
        answer = answers.get((lock, fault))
        if answer in (None, ""):
            return Refusal("no-answer", {"lock": lock, "fault": fault})
        verdict = answer.strip().lower() if isinstance(answer, str) else answer
        if verdict not in VERDICTS:
            return Refusal("not-a-verdict", {"lock": lock, "fault": fault, "answer": answer})
        if verdict != EXPECTED[lock][fault]:
            return Refusal(refusal_code, {"answer": answer})
    return None


class InvalidKey(Exception):
    """The participant's next_key() returned neither a key nor None."""

    def __init__(self, outcome: str, return_value: object) -> None:
        super().__init__(f"next_key({outcome!r}, key) returned {return_value!r}")
        self.outcome = outcome
        self.return_value = return_value


def check_ask_again(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first wrong result of the participant's next_key(), or None.

    next_key(outcome, key) gets the outcome of a buyer's request and the request's key. It must
    return the key of the next request, or None if the buyer should stop.

    In lessons.toml, the name of this check is `answers.ask_again`.
    """

    def next_key(outcome: str, key: str) -> str | None:
        restart_step_timer()
        with _skip_sleeps(module):
            new_key = module.next_key(outcome, key)
        if new_key is not None and not (isinstance(new_key, str) and new_key):
            raise InvalidKey(outcome, new_key)
        return new_key

    try:
        return (
            _check_two_buyers(next_key)
            or _check_lost_answer(next_key)
            or _check_other_outcomes(next_key)
            or _check_refusals_after_lost_answer(next_key)
        )
    except InvalidKey as error:
        details = {"outcome": error.outcome, "returned": repr(error.return_value)}
        return Refusal("not-a-key", details)


@contextmanager
def _skip_sleeps(module: ModuleType) -> Iterator[None]:
    """Make time.sleep() return at once, because a participant's next_key() may sleep.

    module  the participant's file
    """
    sleep = time.sleep

    def return_immediately(seconds: float) -> None:
        """Do not sleep."""

    imported_names = [name for name, value in vars(module).items() if value is sleep]
    with patch.object(time, "sleep", return_immediately), ExitStack() as patches:
        for name in imported_names:  # the file has imported it by `from time import sleep`
            patches.enter_context(patch.object(module, name, return_immediately))
        yield


def _check_lost_answer(next_key: NextKey) -> Refusal | None:
    """Return a refusal unless a buyer who gets no answer learns by a retry that it has an order.

    The buyer must not buy a second unit, and must stop after the outcome `sold`.

    next_key  returns the key of the buyer's next request, or None to stop
    """
    sale = open_sale(UNITS_ON_SALE)
    outcomes = _buy_until_done(next_key)
    order_numbers = _read_order_numbers(sale)
    details = {"orders": " and ".join(order_numbers)}
    story = tuple(f"sends a request, is answered {outcome}" for outcome in outcomes)
    if len(order_numbers) > 1:
        return Refusal("new-key", details, story)
    if outcomes[-1] != "sold":
        return Refusal("gives-up", details, story)
    if outcomes.count("sold") > 1:
        return Refusal("nags", {"outcome": "sold"}, story)
    return None


def _read_order_numbers(sale: int) -> list[str]:
    """Return the numbers of the orders of VICTIM, the buyer in lesson 9, the oldest first.

    sale  the number of the sale
    """
    orders = PurchaseHistory.objects.filter(sale_id=sale, purchaser=VICTIM).order_by("pk")
    return [str(order.pk) for order in orders]


def _buy_with(key: str) -> None:
    """Let VICTIM, the buyer in lesson 9, send a purchase with this Idempotency-Key.

    A repeated key does not sell a second unit.
    """
    check_out(Attempt(product=PRODUCT, buyer=VICTIM, lock=STRATEGY, key=key))


def _check_two_buyers(next_key: NextKey) -> Refusal | None:
    """Return a refusal if next_key() returns the same key for two buyers who got no answer."""
    key_of_ann = next_key("unknown", "key-of-ann")
    key_of_bob = next_key("unknown", "key-of-bob")
    if key_of_ann is not None and key_of_ann == key_of_bob:
        return Refusal("one-key-for-all", {"key": key_of_ann})
    return None


def _check_other_outcomes(next_key: NextKey) -> Refusal | None:
    """Return a refusal if a buyer repeats its request too often, or gives up too early.

    After the outcomes sold_out, sold and error a buyer must stop. After the outcomes in
    NOTHING_SOLD it must try again.

    next_key  returns the key of the buyer's next request, or None to stop
    """
    for outcome in ("sold_out", "sold"):
        if next_key(outcome, f"key-{outcome}") is not None:
            return Refusal("nags", {"outcome": outcome})
    if next_key("error", "key-error") is not None:
        return Refusal("retries-errors")
    for outcome in NOTHING_SOLD:
        if next_key(outcome, f"key-{outcome}") is None:
            return Refusal("leaves-too-early", {"outcome": outcome})
    return None


def _check_refusals_after_lost_answer(next_key: NextKey) -> Refusal | None:
    """Return a refusal if a buyer changes its key, or gives up, after a retry was refused.

    The first request sells a unit, but the buyer gets no answer. The shop then refuses each retry,
    which does not mean that the first request sold nothing.

    next_key  returns the key of the buyer's next request, or None to give up
    """
    sale = open_sale(UNITS_ON_SALE)
    first_key = uuid.uuid4().hex
    _buy_with(first_key)
    story = ["sends a request with a key: sold, but the answer is lost"]
    for outcome in (CommitUnknown.outcome, *NOTHING_SOLD):  # the lost answer, then the refusals
        key = next_key(outcome, first_key)
        if outcome != CommitUnknown.outcome:
            story.append(f"sends a request with the same key, is answered {outcome}")
        if key is None:
            details = {"orders": " and ".join(_read_order_numbers(sale))}
            return Refusal("gives-up", details, tuple(story))
        if key != first_key:
            _buy_with(key)
            story.append("sends a request with a new key, is answered sold")
            details = {"outcome": outcome, "orders": " and ".join(_read_order_numbers(sale))}
            return Refusal("new-key-after-refusal", details, tuple(story))
    return None


def _buy_until_done(next_key: NextKey) -> list[str]:
    """Let a buyer send requests until it should stop, and return the outcomes that it gets.

    The answer to the first request that sells a unit is lost: the buyer gets the outcome `unknown`
    instead of `sold`. The buyer stops when `next_key` returns None, or after MAX_REQUESTS.

    next_key  gets an outcome and the request's key; returns the key of the next request, or None
    """
    key: str | None = uuid.uuid4().hex
    outcomes: list[str] = []
    unknown = CommitUnknown.outcome
    while key is not None and len(outcomes) < MAX_REQUESTS:
        try:
            _buy_with(key)
            outcomes.append("sold" if unknown in outcomes else unknown)
        except ShopError as error:
            outcomes.append(error.outcome)
        key = next_key(outcomes[-1], key)
    return outcomes
