"""Lessons 1, 2, 9 and 10, whose exercises are answers and not code that sells."""

import uuid
from collections.abc import Callable
from types import ModuleType

from loadtest.expected import EXPECTED
from shop.errors import CommitUnknown, ShopError
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from workshop.checks.purchases import PRODUCT, open_sale, told
from workshop.refusal import Refusal

MOVES = 3
#: Of a sale: initial stock, orders, stock left; then how many were oversold, and how many updates
#: were lost.
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
#: Cell -> what somebody believes who answers it wrong.
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
WORDS = ("exact", "oversold", "deadlock")
#: How often a buyer asks at most.
MOST = 6
#: A strategy of the database's own: no lock is needed here.
LOCK = "row-lock"
NextKey = Callable[[str, str], str | None]


def schedules(module: ModuleType) -> Refusal | None:
    """Two schedules without a lock, one that sells twice and one that does not."""
    asked = [getattr(module, name, "") for name in ("SELLS_TWICE", "DOES_NOT")]
    if not any(asked):
        return Refusal("todo")
    twice, once = (_letters(given) for given in asked)
    for given, letters in zip(asked, (twice, once), strict=True):
        if sorted(letters) != sorted("AB" * MOVES):
            return Refusal("not-a-schedule", {"given": given})
    from shop.demo.schedules import run_schedule

    runs = [run_schedule("none", schedule, units=1) for schedule in (twice, once)]
    first, second = (run.violates for run in runs)
    story = tuple(told(run) for run in runs)
    if not first and second:
        return Refusal("swapped", {}, story)
    if not first:
        return Refusal("serial", {"given": twice}, story[:1])
    return Refusal("sells-twice", {"given": once}, story[1:]) if second else None


def _letters(given: object) -> str:
    """A text or a list of letters, however it is spaced, as one word in capitals."""
    text = "".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given)
    return text.translate({ord(each): None for each in " ,-"}).upper()


def tally(module: ModuleType) -> Refusal | None:
    """The first sale that is counted wrong, and how; None if none is."""
    counted = {name: getattr(module, name) for name in ("oversold", "lost_updates")}
    said = {name: [count(*sale) for sale, _ in SALES] for name, count in counted.items()}
    silent = [name for name, answers in said.items() if answers == [None] * len(SALES)]
    if silent:
        missing = Refusal("no-return", {"function": silent[0]})
        return missing if len(silent) == 1 else Refusal("todo")
    if list(said.values()) == [[right[place] for _, right in SALES] for place in (1, 0)]:
        return Refusal("swapped")
    for number, (sale, (over, lost)) in enumerate(SALES):
        facts = dict(zip(("initial", "orders", "left"), sale, strict=True))
        if (got := said["oversold"][number]) != over:
            return _oversold_wrong(counted["oversold"], facts | {"got": got, "right": over})
        if (got := said["lost_updates"][number]) != lost:
            return Refusal("misses-lost-updates", {**facts, "got": got, "right": lost})
    return None


def _oversold_wrong(oversold: Callable[..., object], facts: dict[str, object]) -> Refusal:
    got = facts["got"]
    if isinstance(got, int) and got < 0:
        return Refusal("negative-oversell", facts)
    alone = [oversold(facts["initial"], facts["orders"], left) for left in (-7, 0, 50)]
    return Refusal("looks-at-stock" if alone != alone[:1] * 3 else "counts-wrong", facts)


def table(module: ModuleType) -> Refusal | None:
    """The first wrong answer about which locks keep their promise under which fault, or None."""
    answers = dict(getattr(module, "ANSWERS", None) or {})
    if not any(answers.values()):
        return Refusal("todo")
    for (lock, fault), belief in BELIEFS.items():
        said = answers.get((lock, fault))
        word = said.strip().lower() if isinstance(said, str) else said
        if word not in WORDS:
            return Refusal("not-a-verdict", {"lock": lock, "fault": fault, "said": said})
        if word != EXPECTED[lock][fault]:
            return Refusal(belief, {"said": said})
    return None


class NoKey(Exception):
    """The participant's function returned neither a key nor None."""


def ask_again(module: ModuleType) -> Refusal | None:
    """Lesson 9: the first fault in what a buyer does with each answer, and with none."""

    def next_key(outcome: str, key: str) -> str | None:
        said = module.next_key(outcome, key)
        if said is not None and not (isinstance(said, str) and said):
            raise NoKey(outcome, said)
        return said or None

    try:
        return _two_of_them(next_key) or _answer_lost(next_key) or _others(next_key)
    except NoKey as error:
        outcome, said = error.args
        return Refusal("not-a-key", {"outcome": outcome, "said": repr(said)})


def _answer_lost(next_key: NextKey) -> Refusal | None:
    """The purchase is committed, its answer is lost."""
    sale = open_sale(5)
    outcomes = _shops(next_key)
    orders = PurchaseHistory.objects.filter(sale_id=sale, purchaser="victim")
    numbers = " and ".join(str(order.pk) for order in orders)
    story = tuple(f"asks, is answered {outcome}" for outcome in outcomes)
    if len(orders) > 1:
        return Refusal("new-key", {"orders": numbers}, story)
    if outcomes[-1] != "sold":
        return Refusal("gives-up", {"orders": numbers}, story)
    return Refusal("nags", {"outcome": "sold"}, story) if outcomes.count("sold") > 1 else None


def _two_of_them(next_key: NextKey) -> Refusal | None:
    """Two buyers, both without an answer."""
    first, second = (next_key("unknown", key) for key in ("key-of-ann", "key-of-bob"))
    return Refusal("one-key-for-all", {"key": first}) if first and first == second else None


def _others(next_key: NextKey) -> Refusal | None:
    """Every other outcome: which are final, and which say that asking again makes sense."""
    for outcome in ("sold_out", "sold"):
        if next_key(outcome, "k") is not None:
            return Refusal("nags", {"outcome": outcome})
    if next_key("error", "k") is not None:
        return Refusal("retries-errors")
    for outcome in ("busy", "lost", "unavailable"):
        if next_key(outcome, "k") is None:
            return Refusal("leaves-too-early", {"outcome": outcome})
    return None


def _shops(next_key: NextKey) -> list[str]:
    """The outcomes that the victim sees who goes on as `next_key` says. The first answer gets lost
    after the COMMIT."""
    key: str | None = uuid.uuid4().hex
    outcomes: list[str] = []
    unknown = CommitUnknown.outcome
    while key is not None and len(outcomes) < MOST:
        try:
            check_out(Attempt(product=PRODUCT, buyer="victim", lock=LOCK, key=key))
            outcomes.append("sold" if unknown in outcomes else unknown)
        except ShopError as error:
            outcomes.append(error.outcome)
        key = next_key(outcomes[-1], key)
    return outcomes
