"""The checks of lessons 1, 2, 9 and 10, whose exercises are answers instead of code that sells."""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import permutations
from numbers import Real
from types import ModuleType
from unittest.mock import patch

from loadtest.expected import EXPECTED
from shop.errors import CommitUnknown, ShopError
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from workshop.checks.purchases import PRODUCT, describe_run, open_sale
from workshop.checks.watch import restart_step_timer
from workshop.refusal import Refusal

MOVES_PER_BUYER = 3
#: The arguments that the check passes to the functions of lesson 2, in this order.
PARAMETERS = ("initial", "orders", "left")
#: Sales. The first tuple has the initial stock, the orders and the stock left. The second one has
#: the right answers: the number of oversold units and of lost updates.
SALES = [
    ((100, 100, 0), (0, 0)),
    ((100, 200, 97), (100, 197)),
    ((100, 101, 0), (1, 1)),
    ((100, 101, -1), (1, 0)),
    ((10, 9, 1), (0, 0)),
    ((10, 12, 3), (2, 5)),
    ((10, 10, 1), (0, 1)),
    ((10, 5, 5), (0, 0)),
]
#: Strategy and fault -> the code of the refusal that corrects the belief behind a wrong answer.
BELIEFS = {
    ("token", "failover"): "replication-keeps-it",
    ("token-watchdog", "restart"): "a-restart-keeps-it",
    ("redlock", "pause"): "majority-is-a-fence",
    ("redlock", "restart"): "majority-remembers",
    ("zookeeper", "pause"): "consensus-is-a-fence",
    ("redis", "failover"): "fence-needs-redis",
    ("setnx", "eviction"): "eviction-takes-all",
    ("row-lock", "redis-down"): "row-lock-needs-redis",
}
VERDICTS = ("exact", "oversold", "deadlock")
#: Maximum number of requests that the check lets a buyer send.
MAX_REQUESTS = 6
#: The strategy under which the victim buys. Any correct strategy would do.
STRATEGY = "row-lock"
#: The buyer whose answer is lost.
VICTIM = "victim"
#: Outcomes of a request that has sold nothing, after which asking again makes sense.
NOTHING_SOLD = ("busy", "lost", "unavailable")
NextKey = Callable[[str, str], str | None]


def schedules(module: ModuleType) -> Refusal | None:
    """Return a refusal unless the first schedule sells a unit twice and the second does not."""
    texts = [getattr(module, name) for name in ("SELLS_TWICE", "DOES_NOT")]
    if not any(texts):
        return Refusal("todo")
    twice, once = map(_normalize_letters, texts)
    for text, letters in zip(texts, (twice, once), strict=True):
        if sorted(letters) == sorted("AB" * MOVES_PER_BUYER):
            continue
        facts = {"given": text, "letters": len(letters)}
        too_many = len(letters) > 2 * MOVES_PER_BUYER and set(letters) == {"A", "B"}
        return Refusal("too-many-moves" if too_many else "not-a-schedule", facts)
    from shop.schedules.two_buyers import run_schedule

    runs = [run_schedule("none", schedule, units=1) for schedule in (twice, once)]
    first, second = (run.is_wrong for run in runs)
    story = tuple(describe_run(run) for run in runs)
    if not first and second:
        return Refusal("swapped", {}, story)
    if not first:
        return Refusal("serial", {"given": twice}, story[:1])
    return Refusal("sells-twice", {"given": once}, story[1:]) if second else None


def _normalize_letters(answer: object) -> str:
    """Return a text or a list of letters as one word in capitals, without spaces."""
    text = "".join(map(str, answer)) if isinstance(answer, (list, tuple)) else str(answer)
    return re.sub("[ ,-]", "", text).upper()


def tally(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first sale that the functions count wrong, or None."""
    functions = {name: getattr(module, name) for name in ("oversold", "lost_updates")}
    answers = {name: [count(*sale) for sale, _ in SALES] for name, count in functions.items()}
    silent = [name for name, numbers in answers.items() if numbers == [None] * len(SALES)]
    if silent:
        missing = Refusal("no-return", {"function": silent[0]})
        return missing if len(silent) == 1 else Refusal("todo")
    for place, (name, numbers) in enumerate(answers.items()):
        if refusal := _check_numbers(name, numbers):
            return refusal
        if refusal := _check_parameter_order(name, functions[name], place):
            return refusal
    right_oversold = [oversold for _, (oversold, _) in SALES]
    right_lost_updates = [lost_updates for _, (_, lost_updates) in SALES]
    if answers == {"oversold": right_lost_updates, "lost_updates": right_oversold}:
        return Refusal("swapped")
    for number, (sale, (over, lost)) in enumerate(SALES):
        facts = dict(zip(PARAMETERS, sale, strict=True))
        counted_over = answers["oversold"][number]
        if counted_over != over:
            facts |= {"got": counted_over, "right": over}
            return _refuse_wrong_count(functions["oversold"], facts)
        counted_lost = answers["lost_updates"][number]
        if counted_lost != lost:
            return Refusal("misses-lost-updates", {**facts, "got": counted_lost, "right": lost})
    return None


def _check_numbers(function: str, answers: Sequence[object]) -> Refusal | None:
    """Return a refusal for the first answer that is not a number, or None."""
    for (sale, _), answer in zip(SALES, answers, strict=True):
        # False counts as 0: `a > b and a - b` returns it.
        is_true = isinstance(answer, bool) and answer
        if is_true or not isinstance(answer, Real):
            facts = {"function": function, "sale": ", ".join(map(str, sale))}
            return Refusal(
                "not-a-number", {**facts, "got": repr(answer), "kind": _describe_type(answer)}
            )
    return None


def _check_parameter_order(
    name: str, function: Callable[..., object], place: int
) -> Refusal | None:
    """Return a refusal if the function is right only with its arguments in another sequence.

    Args:
        name: The name of the function.
        function: The participant's `oversold` or `lost_updates`.
        place: The index of the function's number in the right answers on a sale.
    """
    right = [numbers[place] for _, numbers in SALES]
    for sequence in permutations(range(len(PARAMETERS))):  # the first one is the exercise's
        with suppress(Exception):  # the function was made for its own sequence
            answers = [function(*(sale[number] for number in sequence)) for sale, _ in SALES]
            if answers == right:
                break
    else:
        return None
    if sequence == (0, 1, 2):
        return None
    parameters = ", ".join(PARAMETERS[number] for number in sequence)
    return Refusal("arguments-swapped", {"function": name, "taken": parameters})


def _describe_type(value: object) -> str:
    """Return the type of a value as a phrase for a participant."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a yes or no, and does not say how many"
        case str():
            return "a text"
        case bytes():
            return "bytes"
    return f"a {type(value).__name__}"


def _refuse_wrong_count(oversold: Callable[..., object], facts: Mapping[str, object]) -> Refusal:
    """Return the refusal for a wrong result of the participant's function `oversold`."""
    count = facts["got"]
    if isinstance(count, Real) and count < 0:
        return Refusal("negative-oversell", facts)
    # A right count does not depend on the stock left; these are any three different stocks.
    counts = [oversold(facts["initial"], facts["orders"], left) for left in (-7, 0, 50)]
    depends_on_stock = counts.count(counts[0]) < len(counts)
    return Refusal("looks-at-stock" if depends_on_stock else "counts-wrong", facts)


def table(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first wrong verdict in the participant's table, or None."""
    answers = module.ANSWERS or {}
    if not isinstance(answers, Mapping):
        return Refusal("not-a-table", {"kind": _describe_type(answers)})
    if not any(answers.values()):
        return Refusal("todo")
    for (lock, fault), belief in BELIEFS.items():
        answer = answers.get((lock, fault))
        if answer in (None, ""):
            return Refusal("no-answer", {"lock": lock, "fault": fault})
        word = answer.strip().lower() if isinstance(answer, str) else answer
        if word not in VERDICTS:
            return Refusal("not-a-verdict", {"lock": lock, "fault": fault, "said": answer})
        if word != EXPECTED[lock][fault]:
            return Refusal(belief, {"said": answer})
    return None


class NoKey(Exception):
    """The participant's function returned neither a key nor None."""


def ask_again(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first wrong result of the participant's next_key(), or None."""

    def next_key(outcome: str, key: str) -> str | None:
        restart_step_timer()
        with _skip_sleeps(module):
            new_key = module.next_key(outcome, key)
        if new_key is not None and not (isinstance(new_key, str) and new_key):
            raise NoKey(outcome, new_key)
        return new_key or None

    try:
        return (
            _check_two_buyers(next_key)
            or _check_lost_answer(next_key)
            or _check_other_outcomes(next_key)
            or _check_refusals_after_lost_answer(next_key)
        )
    except NoKey as error:
        outcome, answer = error.args
        return Refusal("not-a-key", {"outcome": outcome, "said": repr(answer)})


@contextmanager
def _skip_sleeps(module: ModuleType) -> Iterator[None]:
    """Replace time.sleep() in the participant's code, where a buyer may obey Retry-After."""
    sleep = time.sleep

    def return_immediately(seconds: float) -> None:
        """Do not sleep."""

    imported_names = [name for name, value in vars(module).items() if value is sleep]
    with patch.object(time, "sleep", return_immediately), ExitStack() as undo:
        for name in imported_names:  # by `from time import sleep`
            undo.enter_context(patch.object(module, name, return_immediately))
        yield


def _check_lost_answer(next_key: NextKey) -> Refusal | None:
    """Return a refusal unless a buyer whose answer is lost gets the order of that request."""
    sale = open_sale(5)
    outcomes = _buy_until_done(next_key)
    numbers = _victims_order_numbers(sale)
    story = tuple(f"asks, is answered {outcome}" for outcome in outcomes)
    if " and " in numbers:
        return Refusal("new-key", {"orders": numbers}, story)
    if outcomes[-1] != "sold":
        return Refusal("gives-up", {"orders": numbers}, story)
    return Refusal("nags", {"outcome": "sold"}, story) if outcomes.count("sold") > 1 else None


def _victims_order_numbers(sale: int) -> str:
    """Return the numbers of the victim's orders, joined by `and`."""
    orders = PurchaseHistory.objects.filter(sale_id=sale, purchaser=VICTIM).order_by("pk")
    return " and ".join(str(order.pk) for order in orders)


def _buy_with(key: str) -> None:
    """Let the victim buy with this key. A key that has bought gets its order again."""
    check_out(Attempt(product=PRODUCT, buyer=VICTIM, lock=STRATEGY, key=key))


def _check_two_buyers(next_key: NextKey) -> Refusal | None:
    """Return a refusal if two buyers without an answer get the same key."""
    first, second = (next_key("unknown", key) for key in ("key-of-ann", "key-of-bob"))
    return Refusal("one-key-for-all", {"key": first}) if first and first == second else None


def _check_other_outcomes(next_key: NextKey) -> Refusal | None:
    """Return a refusal if a buyer repeats a request after a final outcome, or gives up early."""
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
    """Return a refusal if a buyer changes its key, or gives up, after its retry was refused.

    The answer to the retry says that the retry sold nothing. The first request, whose answer is
    lost, has an order all the same.
    """
    sale = open_sale(5)
    first_key = uuid.uuid4().hex
    _buy_with(first_key)
    story = ["asks with a key: sold, but the answer is lost"]
    for outcome in (CommitUnknown.outcome, *NOTHING_SOLD):
        key = next_key(outcome, first_key)
        if outcome != CommitUnknown.outcome:
            story.append(f"asks with the same key, is answered {outcome}")
        if key is None:
            return Refusal("gives-up", {"orders": _victims_order_numbers(sale)}, tuple(story))
        if key != first_key:
            _buy_with(key)
            story.append("asks with a new key, is answered sold")
            facts = {"outcome": outcome, "orders": _victims_order_numbers(sale)}
            return Refusal("new-key-after-refusal", facts, tuple(story))
    return None


def _buy_until_done(next_key: NextKey) -> list[str]:
    """Let the victim buy with the keys of `next_key`, and return the outcomes that it sees.

    The answer to the first request is lost after its COMMIT.
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
