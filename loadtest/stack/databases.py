"""The databases that a run may choose with --database, each with a name to show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Database:
    """A database of --database.

    title       its name in tables
    vendor      what Django calls it
    parameters  parameters of its DATABASE_URL
    """

    title: str
    vendor: str
    parameters: Mapping[str, str] = field(default_factory=dict)


POSTGRES = "postgres"
#: After the @ comes what differs from the shop's own settings.
DATABASES = {
    POSTGRES: Database("PostgreSQL", "postgresql"),
    "sqlite": Database("SQLite", "sqlite"),
    "sqlite@deferred": Database(
        "SQLite, BEGIN DEFERRED", "sqlite", {"transaction_mode": "DEFERRED"}
    ),
    "mariadb": Database("MariaDB, READ COMMITTED", "mysql"),
    "mariadb@repeatable-read": Database(
        "MariaDB, REPEATABLE READ", "mysql", {"isolation_level": "repeatable-read"}
    ),
    "mariadb@snapshot": Database(
        "MariaDB, REPEATABLE READ with snapshot isolation",
        "mysql",
        {"isolation_level": "repeatable-read", "snapshot": "on"},
    ),
}


def sqlite_url(file: Path, database: Database) -> str:
    """Return the DATABASE_URL of a file."""
    url = f"sqlite:///{file}"
    if database.parameters:
        url += "?" + "&".join(f"{name}={text}" for name, text in database.parameters.items())
    return url
