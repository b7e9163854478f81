"""The expected verdict on every strategy, in the rush and under every fault.

Any other verdict is unexpected, whether a sound strategy breaks, or a flawed one survives the fault
that should break it. The table follows from the algorithms and from measurements.

x exact   O oversold   U undersold   D deadlock   . not tried: the fault does not concern it

`partition-db` is not tried with `lock-then-read` for another reason: the lock of the cut-off holder
ends after `max_hold`, and a second buyer gets it. No unit is oversold. But two holders without a
fence are a finding of the judge, whose verdict would be `unknown`.

A fault with an @ is a variant of the fault before the @. `rush-one-process` is the rush against a
single process (1 node, 1 worker).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Letter in the table -> verdict.
VERDICTS = {"x": "exact", "O": "oversold", "U": "undersold", "D": "deadlock"}
TABLE = """
                      rush
                      | rush-one-process
                      | | crash
                      | | | slow
                      | | | | late-release
                      | | | | | pause
                      | | | | | | pause@acquired
                      | | | | | | | clock
                      | | | | | | | | restart
                      | | | | | | | | | failover
                      | | | | | | | | | | failover@sentinel
                      | | | | | | | | | | | quorum
                      | | | | | | | | | | | | lost-reply
                      | | | | | | | | | | | | | unknown-commit
                      | | | | | | | | | | | | | | busy
                      | | | | | | | | | | | | | | | redis-down
                      | | | | | | | | | | | | | | | | stall
                      | | | | | | | | | | | | | | | | | eviction
                      | | | | | | | | | | | | | | | | | | db-kill
                      | | | | | | | | | | | | | | | | | | | shutdown
                      | | | | | | | | | | | | | | | | | | | | shutdown@short
                      | | | | | | | | | | | | | | | | | | | | | partition
                      | | | | | | | | | | | | | | | | | | | | | | split-brain
                      | | | | | | | | | | | | | | | | | | | | | | | slow-write
                      | | | | | | | | | | | | | | | | | | | | | | | | misconf
                      | | | | | | | | | | | | | | | | | | | | | | | | | partition-db
                      | | | | | | | | | | | | | | | | | | | | | | | | | | db-failover
                      | | | | | | | | | | | | | | | | | | | | | | | | | | | db-failover@sync
none                  O . . . . . . . . . . . . . . . . . . . . . . . . . . .
autocommit            O . . . . . . . . . . . . . . . . . . . . . . . . . . .
process               O x . . . . . . . . . . . . . . . . . . . . . . . . . .
setnx                 x . D x . x . . O O O . D x D x D x x x D D O x D x O x
setnx-expire          x . D O O O . . O O O . D x x x D O x x x O O O x x O x
setnx-expire-repair   x . x O O O . . O O O . x x x x x O x x x O O O x x O x
setnx-expire-lua      x . x O x O . . O O O . x x x x x O x x x O O O x x O x
setnx-timestamp       x . x O O O . O O O O . x x x x x x x x x O O O x x O x
setnx-timestamp-del   x . O O O O . O O O O . x x x x x x x x x O O O x x O x
setpx-del             x . x O O O . . O O O . x x x x x O x x x O O O x x O x
token-get-del         x . x O O O . . O O O . x x x x x O x x x O O O x x O x
token                 x . x O x O O . O O O . x x x x x O x x x O O O x x O x
token-watchdog        x . x x x O O . O O O . x x x x x O x x x O O x x x O x
reentrant             x . x x x O . . O O O . x x x x x O x x x O O x x x O x
redlock               x . x O x O . . O . . x x x . . . . x x x . . O . x O x
zookeeper             x . x x x O . . . . . . . x . . . . x x x . . x . x O x
redis                 x . x x x x x x x x x . x x x x x x x x x x x x x x O x
one-file              x . x x x x x x x x x . x x x x x x x x x x x x x x O x
fence-at-write        x . x x x O O x O O O . x x x x x O x x x O O x x x O x
redis-in-transaction  O . . . . . . . . . . . . . . . . . . . . . . . . . . .
lock-then-read        x . x x x O O . O O O . x x x x x O x x x O O x x . O x
lock-then-claim       x . x x x x x x x x x . x x x x x x x x x x x x x x O x
advisory              x . x x . x . . . . . . . x . x . . x x x . . x . x O x
row-lock              x . x x . x . . . . . . . x . x . . x x x . . x . x O x
version               x . x x . x . . . . . . . x . x . . x x x . . x . x O x
rollback              x . x x . x . . . . . . . x . x . . x x x . . x . x O x
conditional           x . x x . x . . . . . . . x . x . . x x x . . x . x O x
serializable          x . x x . x . . . . . . . x . x . . x x x . . x . x O x
buckets               x . x x . x . . . . . . . x . x . . x x x . . x . x O x
skip-locked           x . x x . x . . . . . . . x . x . . x x x . . x . x O x
counter               x . U . . x . . x x x . x x x x x x x x U x x x x x U x
reserve               x . x . . x . . O O O . x . x O x x . x x x O . x . U x
"""

#: Fault -> the point at which a fence can show its effect: the lock is held, and the fence is not
#: claimed yet.
BEFORE_THE_CLAIM = dict.fromkeys(
    (
        "restart",
        "failover",
        "failover@sentinel",
        "partition",
        "partition-db",
        "split-brain",
        "eviction",
    ),
    "acquired",
)
#: Strategy -> fault -> the point at which the victim stops, if that is not the fault's own point.
VICTIM_POINTS: Mapping[str, Mapping[str, str]] = {
    "setnx-expire": {"crash": "setnx:before_expire"},
    "setnx-expire-repair": {"crash": "setnx:before_expire"},
    "token-get-del": {"late-release": "token-get-del:before_del"},
    "redlock": {"lost-reply": "acquired"},  # the lost reply does not prevent a majority
    "redis": BEFORE_THE_CLAIM,
    "one-file": BEFORE_THE_CLAIM,
    "lock-then-claim": BEFORE_THE_CLAIM,
    "buckets": {"crash": "before_commit", "db-kill": "before_commit"},
    "counter": {"crash": "reserved", "db-kill": "before_commit"},
    "reserve": dict.fromkeys(
        (
            "crash",
            "pause",
            "restart",
            "failover",
            "failover@sentinel",
            "busy",
            "eviction",
            "shutdown",
            "shutdown@short",
            "partition",
            "split-brain",
            "misconf",
        ),
        "reserved",
    ),
}


def parse_table(table: str) -> dict[str, dict[str, str]]:
    """Return the verdicts of the table: strategy -> fault -> verdict.

    Raises ValueError if a row has a wrong length or a strategy has two rows, and KeyError for an
    unknown letter.
    """
    lines = table.strip("\n").splitlines()
    # The lines that begin with a space are the heading: each names the fault of the next column.
    faults = [line.replace("|", " ").strip() for line in lines if line.startswith(" ")]
    verdicts: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith(" "):
            continue
        words = line.split()
        lock = words[0]
        if lock in verdicts:
            raise ValueError(f"the table has two rows for {lock}: delete one of them")
        cells = zip(faults, words[1:], strict=True)
        verdicts[lock] = {fault: VERDICTS[letter] for fault, letter in cells if letter != "."}
    return verdicts


#: Strategy -> fault -> the verdict that is expected of the judge.
EXPECTED = parse_table(TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of a strategy that decide how it is judged.

    GET /strategies has the same fields, which shop/sale/strategy.py describes. The load test does
    not read them there, because a shop that is judged must not choose the rules.
    """

    backend: str = "redis"
    renewed: bool = False
    fenced: bool = False
    takes_over: bool = False
    reserves: bool = False
    deferred: bool = False
    needs: str = ""


_REDIS = Traits()
_TAKEN_OVER = Traits(takes_over=True)
_RENEWED = Traits(renewed=True)
_FENCED = Traits(renewed=True, fenced=True)
_DATABASE = Traits(backend="postgresql")
#: Strategy -> its traits. A strategy is available if the nodes have the setting that it `needs`.
TRAITS: Mapping[str, Traits] = {
    "none": Traits(backend="none"),
    "autocommit": Traits(backend="none"),
    "process": Traits(backend="process"),
    "setnx": _REDIS,
    "setnx-expire": _REDIS,
    "setnx-expire-repair": _REDIS,
    "setnx-expire-lua": _REDIS,
    "setnx-timestamp": _TAKEN_OVER,
    "setnx-timestamp-del": _TAKEN_OVER,
    "setpx-del": _REDIS,
    "token-get-del": _REDIS,
    "token": _REDIS,
    "token-watchdog": _RENEWED,
    "reentrant": _RENEWED,
    "redlock": Traits(backend="redlock", needs="REDLOCK_URLS"),
    "zookeeper": Traits(backend="zookeeper", renewed=True, needs="ZOOKEEPER_HOSTS"),
    "redis": _FENCED,
    "one-file": _FENCED,
    "fence-at-write": _FENCED,
    "redis-in-transaction": _RENEWED,
    "lock-then-read": _RENEWED,
    "lock-then-claim": _FENCED,
    "advisory": _DATABASE,
    "row-lock": _DATABASE,
    "version": _DATABASE,
    "rollback": _DATABASE,
    "conditional": _DATABASE,
    "serializable": _DATABASE,
    "buckets": _DATABASE,
    "skip-locked": _DATABASE,
    "counter": Traits(reserves=True),
    "reserve": Traits(reserves=True, deferred=True),
}


#: Verdicts of the rush on databases where no other transaction can write between a transaction's
#: read and its commit. `unknown` means that the sale is right, but the record shows that the lock
#: let two buyers in.
_NOT_OVERTAKEN = {"none": "exact", "process": "unknown", "redis-in-transaction": "unknown"}
#: Database -> strategy -> the verdict of the rush, if it differs from that on PostgreSQL.
RUSH_VERDICTS_ON: Mapping[str, Mapping[str, str]] = {
    "sqlite": _NOT_OVERTAKEN,
    "sqlite@deferred": _NOT_OVERTAKEN,
    "mysql@repeatable-read": {"lock-then-read": "oversold"},
    "mariadb@repeatable-read": {"lock-then-read": "oversold"},
    "mariadb@snapshot": _NOT_OVERTAKEN,
}
#: Strategy whose buyers take their snapshot before they wait for the lock -> its lowest deadline.
#: The databases below refuse a write whose snapshot is older than the wait, so that the buyer asks
#: again.
_DEADLINES_WITH_STALE_SNAPSHOTS = {"lock-then-read": 240.0, "lock-then-claim": 240.0}
#: Database -> strategy -> the lowest deadline of a rush, in seconds, that gives buyers enough time.
LOWEST_DEADLINES_ON = {
    "mariadb@snapshot": _DEADLINES_WITH_STALE_SNAPSHOTS,
    "sqlite@deferred": _DEADLINES_WITH_STALE_SNAPSHOTS,
}
#: Strategy that works with some databases only -> Django's names of these databases.
SUPPORTED_DATABASES = {"advisory": ("postgresql", "mysql"), "reserve": ("postgresql",)}

#: Faults of the database, which are also made on other databases than PostgreSQL.
DATABASE_FAULTS = ("pause", "unknown-commit", "db-kill")
#: Django's name of a database -> fault -> why the fault cannot happen there.
IMPOSSIBLE_FAULTS = {
    "sqlite": {
        "unknown-commit": "SQLite commits inside the buyer's process: no reply can be lost",
        "db-kill": "SQLite has no server that could end a connection",
    },
}
#: Verdicts under `pause` on the databases of _NOT_OVERTAKEN. A rival that gets the lock while the
#: victim is stopped does not oversell there: it waits for the victim's transaction, or the database
#: refuses the victim's write.
_PAUSE_NOT_OVERTAKEN = {
    lock: "exact" for lock, verdicts in EXPECTED.items() if verdicts.get("pause") == "oversold"
}
#: Database -> fault -> strategy -> the verdict, if it differs from that on PostgreSQL.
FAULT_VERDICTS_ON: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"pause": _PAUSE_NOT_OVERTAKEN},
    "sqlite@deferred": {"pause": _PAUSE_NOT_OVERTAKEN},
    # The buyers after the victim take their snapshot before they wait for the lock, so they sell
    # from the stock that was left before other orders.
    "mariadb@repeatable-read": {"db-kill": {"lock-then-read": "oversold"}},
    "mariadb@snapshot": {"pause": _PAUSE_NOT_OVERTAKEN},
}


def find_reason_not_to_inject(fault: str, vendor: str) -> str:
    """Return why a fault is not made on a database; empty if it is made.

    vendor  Django's name of the database
    """
    if vendor == "postgresql":
        return ""
    if fault not in DATABASE_FAULTS:
        return "made on PostgreSQL only"
    return IMPOSSIBLE_FAULTS.get(vendor, {}).get(fault, "")


def get_verdicts_on_database(lock: str, database: str) -> Mapping[str, str]:
    """Return the expected verdicts on a strategy on a database, by fault.

    The verdict on `rush` is that of PostgreSQL: use get_expected_rush_verdict() for it instead.

    database  a name in loadtest/stack/databases.py, such as `mariadb` or `mariadb@snapshot`
    """
    verdicts = dict(EXPECTED[lock])
    for fault, verdict_by_lock in FAULT_VERDICTS_ON.get(database, {}).items():
        if fault in verdicts:
            verdicts[fault] = verdict_by_lock.get(lock, verdicts[fault])
    return verdicts


def get_expected_rush_verdict(lock: str, fault: str, database: str) -> str:
    """Return the expected verdict of a rush on a database.

    fault     `rush`, or `rush-one-process`, whose verdict is the same on every database
    database  a name in loadtest/stack/databases.py
    """
    if fault == "rush" and lock in RUSH_VERDICTS_ON.get(database, {}):
        return RUSH_VERDICTS_ON[database][lock]
    return EXPECTED[lock][fault]


def get_lowest_deadline_seconds(lock: str, database: str) -> float:
    """Return the shortest deadline that a rush may have on a database; 0 if any deadline will do.

    database  a name in loadtest/stack/databases.py
    """
    return LOWEST_DEADLINES_ON.get(database, {}).get(lock, 0.0)


def supports_database(lock: str, vendor: str) -> bool:
    """Return whether a strategy can sell on a database, which Django names `vendor`."""
    return lock not in SUPPORTED_DATABASES or vendor in SUPPORTED_DATABASES[lock]


def get_expected_verdicts(strategy: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the expected verdicts on a strategy, by fault.

    They are in the strategy's field `verdicts` if the database is not PostgreSQL, or if the
    strategy is not in EXPECTED, as in the workshop. Otherwise they are in EXPECTED.

    strategy  the facts about the strategy (StrategyFacts)
    """
    verdicts: Mapping[str, str] = strategy.get("verdicts") or EXPECTED[strategy["name"]]
    return verdicts


#: Faults that no strategy survives without another setting of the servers. Their variants
#: (`db-failover@sync`) show the remedy.
FAULTS_BEYOND_LOCKS = frozenset({"db-failover"})
#: Strategy -> its verdicts under the faults that a strategy can survive.
SURVIVABLE_VERDICTS = {
    lock: {verdict for fault, verdict in row.items() if fault not in FAULTS_BEYOND_LOCKS}
    for lock, row in EXPECTED.items()
}
#: The strategies that are exact under every survivable fault that concerns them.
UNBROKEN_STRATEGIES = [
    lock for lock, verdicts in SURVIVABLE_VERDICTS.items() if verdicts == {"exact"}
]
