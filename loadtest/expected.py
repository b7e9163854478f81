"""The expected verdict on every strategy, in the rush and under every fault.

A strategy is a way to guard the stock, such as a lock. Any other verdict than the expected one is
unexpected: a sound strategy that breaks, and also a flawed one that survives the fault that should
break it. The table follows from the algorithms and from measurements.

x exact   O oversold   U undersold   D deadlock   . not tried: the fault cannot affect the strategy

`partition-db` is not tried with `lock-then-read` for another reason. The lock of the holder that is
cut off from the database ends after `max_hold`, and a second buyer gets the lock. No unit is
oversold, but the judge would report two holders of a lock without a fence, and its verdict would be
`unknown`.

A fault with an @ is a variant of the fault before the @. `rush-one-process` is the rush against a
single process of the shop (1 node, 1 worker).
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

#: Fault -> the point of the purchase at which the victim of the fault stops, for strategies that
#: claim their fence in the database before they read the stock. At this point the victim has the
#: lock, but has not claimed the fence, so the claim fails if a rival has got the lock meanwhile.
BEFORE_FENCE_CLAIM = dict.fromkeys(
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
#: Strategy -> fault -> the point of the purchase at which the victim stops, if it differs from the
#: point at which the fault stops the victims of other strategies.
VICTIM_POINTS: Mapping[str, Mapping[str, str]] = {
    "setnx-expire": {"crash": "setnx:before_expire"},
    "setnx-expire-repair": {"crash": "setnx:before_expire"},
    "token-get-del": {"late-release": "token-get-del:before_del"},
    "redlock": {"lost-reply": "acquired"},  # the lost reply does not prevent a majority
    "redis": BEFORE_FENCE_CLAIM,
    "one-file": BEFORE_FENCE_CLAIM,
    "lock-then-claim": BEFORE_FENCE_CLAIM,
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
    """Return the verdicts in a table like TABLE: strategy -> fault -> verdict.

    Raises ValueError if a row has a wrong length or a strategy has two rows, and KeyError for an
    unknown letter.
    """
    lines = table.strip("\n").splitlines()
    # The lines that begin with a space are the heading. Each has the fault of one column, from left
    # to right.
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


#: Strategy -> fault -> the expected verdict.
EXPECTED = parse_table(TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of a strategy that decide how it is judged.

    GET /strategies of the shop has the same fields. The load test does not read them there, because
    the shop that is judged must not decide how.

    backend     the server that guards the stock, or `process` or `none`
    renewed     whether the lock is renewed for as long as its holder lives
    fenced      whether the database refuses a holder whose fence is old
    takes_over  whether contenders take over an expired lock, which Redis does not delete
    reserves    whether Redis reserves a unit for each attempt, instead of a lock
    deferred    whether orders are written after the answer, by `manage.py settle`
    needs       a setting without which the strategy is unavailable; empty if it needs none
    """

    backend: str = "redis"
    renewed: bool = False
    fenced: bool = False
    takes_over: bool = False
    reserves: bool = False
    deferred: bool = False
    needs: str = ""


_REDIS = Traits()
_TAKES_OVER = Traits(takes_over=True)
_RENEWED = Traits(renewed=True)
_FENCED = Traits(renewed=True, fenced=True)
_DATABASE = Traits(backend="postgresql")
#: Strategy -> its traits.
TRAITS: Mapping[str, Traits] = {
    "none": Traits(backend="none"),
    "autocommit": Traits(backend="none"),
    "process": Traits(backend="process"),
    "setnx": _REDIS,
    "setnx-expire": _REDIS,
    "setnx-expire-repair": _REDIS,
    "setnx-expire-lua": _REDIS,
    "setnx-timestamp": _TAKES_OVER,
    "setnx-timestamp-del": _TAKES_OVER,
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


#: Strategy -> the verdict of the rush on databases where no other transaction can write between a
#: transaction's read and its commit. `unknown`: no unit is oversold, but the record shows that two
#: buyers held the lock at the same time.
_RUSH_VERDICTS_IF_SERIALIZED = {
    "none": "exact",
    "process": "unknown",
    "redis-in-transaction": "unknown",
}
#: Database -> strategy -> the verdict of the rush, if it is another one than on PostgreSQL.
RUSH_VERDICTS_ON: Mapping[str, Mapping[str, str]] = {
    "sqlite": _RUSH_VERDICTS_IF_SERIALIZED,
    "sqlite@deferred": _RUSH_VERDICTS_IF_SERIALIZED,
    "mysql@repeatable-read": {"lock-then-read": "oversold"},
    "mariadb@repeatable-read": {"lock-then-read": "oversold"},
    "mariadb@snapshot": _RUSH_VERDICTS_IF_SERIALIZED,
}
#: Strategy whose transaction takes its snapshot before it waits for the lock -> the lowest deadline
#: on databases that refuse a write if the snapshot is too old. There many buyers have to repeat
#: their request, so the rush takes longer.
_DEADLINES_WITH_STALE_SNAPSHOTS = {"lock-then-read": 240.0, "lock-then-claim": 240.0}
#: Database -> strategy -> the lowest deadline of a rush, in seconds, that gives buyers enough time.
LOWEST_DEADLINES_ON = {
    "mariadb@snapshot": _DEADLINES_WITH_STALE_SNAPSHOTS,
    "sqlite@deferred": _DEADLINES_WITH_STALE_SNAPSHOTS,
}
#: Strategy that works only with some databases -> Django's names of these databases.
SUPPORTED_DATABASES = {"advisory": ("postgresql", "mysql"), "reserve": ("postgresql",)}

#: The faults that are also injected on other databases than PostgreSQL.
DATABASE_FAULTS = ("pause", "unknown-commit", "db-kill")
#: Django's name of a database -> fault -> why the fault cannot happen there.
IMPOSSIBLE_FAULTS = {
    "sqlite": {
        "unknown-commit": "SQLite commits inside the buyer's process: no reply can be lost",
        "db-kill": "SQLite has no server that could end a connection",
    },
}
#: Strategy -> the verdict under the fault `pause`, on the databases of
#: _RUSH_VERDICTS_IF_SERIALIZED. There a rival that gets the lock while the victim is stopped does
#: not oversell: the rival waits for the victim's transaction, or the database refuses the victim's
#: write.
_PAUSE_VERDICTS_IF_SERIALIZED = {
    lock: "exact" for lock, verdicts in EXPECTED.items() if verdicts.get("pause") == "oversold"
}
#: Database -> fault -> strategy -> the verdict, if it is another one than on PostgreSQL.
FAULT_VERDICTS_ON: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"pause": _PAUSE_VERDICTS_IF_SERIALIZED},
    "sqlite@deferred": {"pause": _PAUSE_VERDICTS_IF_SERIALIZED},
    # The buyers who wait for the victim's lock have taken their snapshots before, so the stock that
    # they read does not include the orders that were committed during their wait.
    "mariadb@repeatable-read": {"db-kill": {"lock-then-read": "oversold"}},
    "mariadb@snapshot": {"pause": _PAUSE_VERDICTS_IF_SERIALIZED},
}


def find_reason_not_to_inject(fault: str, vendor: str) -> str:
    """Return why a fault is not injected on a database; empty if it is injected.

    vendor  Django's name of the database
    """
    if vendor == "postgresql":
        return ""
    if fault not in DATABASE_FAULTS:
        return "injected on PostgreSQL only"
    return IMPOSSIBLE_FAULTS.get(vendor, {}).get(fault, "")


def get_verdicts_on_database(lock: str, database: str) -> Mapping[str, str]:
    """Return fault -> the expected verdict on a strategy, if the shop uses this database.

    The entry for `rush` is the verdict on PostgreSQL. get_expected_rush_verdict() returns the
    verdict of a rush on other databases.

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
    """Return the shortest deadline of a rush that gives all buyers enough time, in seconds.

    Return 0 if LOWEST_DEADLINES_ON has no entry for the strategy on this database.

    database  a name in loadtest/stack/databases.py
    """
    return LOWEST_DEADLINES_ON.get(database, {}).get(lock, 0.0)


def supports_database(lock: str, vendor: str) -> bool:
    """Return whether a strategy can sell on a database, which Django names `vendor`."""
    return lock not in SUPPORTED_DATABASES or vendor in SUPPORTED_DATABASES[lock]


def get_expected_verdicts(strategy: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the expected verdicts on a strategy, by fault.

    They are in the strategy's field `verdicts` if the database is not PostgreSQL, or if EXPECTED
    does not have the strategy, such as an exercise of the workshop. Otherwise they are in EXPECTED.

    strategy  the shop's description of the strategy, with added fields (StrategyFacts)
    """
    verdicts: Mapping[str, str] = strategy.get("verdicts") or EXPECTED[strategy["name"]]
    return verdicts


#: Faults that no strategy survives with the usual settings of the servers. Their variants, such as
#: `db-failover@sync`, have the settings that help.
FAULTS_BEYOND_LOCKS = frozenset({"db-failover"})
#: Strategy -> its verdicts, without those under FAULTS_BEYOND_LOCKS.
SURVIVABLE_VERDICTS = {
    lock: {verdict for fault, verdict in row.items() if fault not in FAULTS_BEYOND_LOCKS}
    for lock, row in EXPECTED.items()
}
#: The strategies that are exact in the rush and under every fault, except FAULTS_BEYOND_LOCKS.
UNBROKEN_STRATEGIES = [
    lock for lock, verdicts in SURVIVABLE_VERDICTS.items() if verdicts == {"exact"}
]
