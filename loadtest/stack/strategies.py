"""The strategies of a run, described by loadtest/expected.py and not by the shop.

The shop under test must not define the criteria by which it is judged. If GET /strategies differs
from the expected facts, the strategy has a complaint, and none of its verdicts counts as expected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from loadtest.expected import EXPECTED, TRAITS, get_verdicts_on_database, supports_database
from loadtest.stack.client import StrategyFacts
from loadtest.stack.databases import DATABASES, POSTGRES


def describe_strategies(
    names: Sequence[str],
    listing: Sequence[Mapping[str, Any]],
    environment: Mapping[str, str],
    *,
    missing: Mapping[str, str],
    database: str = POSTGRES,
) -> list[StrategyFacts]:
    """Return the traits and expected verdicts of strategies, and whether they are available.

    The traits and the verdicts are those in loadtest/expected.py. If the entry of a strategy in
    GET /strategies differs from them, the strategy has a `complaint`.

    names        names of strategies in loadtest/expected.py
    listing      the strategies of GET /strategies
    environment  the variables of the nodes, which decide which strategies are available
    missing      setting, such as REDLOCK_URLS -> why its servers did not start
    database     the key in DATABASES of the nodes' database (loadtest/stack/databases.py)
    """
    entries_by_name = {str(entry.get("name")): entry for entry in listing}
    return [
        _describe_strategy(name, entries_by_name.get(name), environment, missing, database)
        for name in names
    ]


def _describe_strategy(
    name: str,
    entry: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    missing: Mapping[str, str],
    database: str,
) -> StrategyFacts:
    """Return the traits and the expected verdict of one strategy, and whether it is available.

    The traits and the verdict are those in loadtest/expected.py. If the shop's entry in
    GET /strategies differs from them, the result has a `complaint`.

    entry        the strategy's entry in GET /strategies; None if it has none
    environment  the variables of the nodes; the strategy is available if its setting is among them
    missing      setting, such as REDLOCK_URLS -> why its servers did not start
    database     the key in DATABASES of the nodes' database
    """
    database_of_nodes = DATABASES[database]
    why_not_on_database = ""
    if not supports_database(name, database_of_nodes.vendor):
        why_not_on_database = f"{name} does not work with {database_of_nodes.title}"
    needed_setting = TRAITS[name].needs
    has_server = not needed_setting or bool(environment.get(needed_setting))
    facts = {
        "name": name,
        "expected": {"rush": EXPECTED[name]["rush"]},
        **asdict(TRAITS[name]),
        "available": has_server and not why_not_on_database,
    }
    if entry is None:
        complaint = f"GET /strategies does not list {name}"
        facts |= {"available": False, "missing": complaint, "complaint": complaint}
        return cast(StrategyFacts, facts)
    # Compare first: the shop's entry lacks the fields that are added below.
    differences = [
        f"{field} is {entry.get(field)!r}, not {expected_fact!r}"
        for field, expected_fact in facts.items()
        if entry.get(field) != expected_fact
    ]
    if differences:
        facts["complaint"] = f"GET /strategies describes {name} wrongly: {'; '.join(differences)}"
    if database != POSTGRES:
        facts["verdicts"] = get_verdicts_on_database(name, database)
    if why_not_on_database:
        facts |= {"missing": why_not_on_database, "exists": False}
    elif needed_setting in missing:
        facts |= {"available": False, "missing": missing[needed_setting]}
    return cast(StrategyFacts, facts)


def list_complaints(strategies: Sequence[StrategyFacts]) -> list[str]:
    """Return the complaints about the shop's listing of these strategies."""
    return [strategy["complaint"] for strategy in strategies if "complaint" in strategy]
