"""The databases on which a run can take place, chosen by --database or by DATABASE_URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from loadtest.stack.node import StackError


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that --database can choose.

    server      the name of the server, as the shop's /readyz has it
    mode        a setting of the connections, such as the isolation level; in tables it follows the
                server's name
    vendor      Django's name for the kind of database: postgresql, sqlite or mysql
    parameters  parameters of the database's URL
    needs_url   whether DATABASE_URL must name the server, because a run cannot start it
    """

    server: str
    mode: str = ""
    vendor: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    needs_url: bool = False

    @property
    def title(self) -> str:
        """The database's name in tables."""
        return self.make_title(self.server)

    def make_title(self, server: str) -> str:
        """Return the database's name in tables if `server`, such as `MySQL 9.7.4`, serves it."""
        return ", ".join(filter(None, (server, self.mode)))


POSTGRES = "postgres"
#: The values of --database. The mode after an @ replaces a default of the shop, such as its
#: isolation level.
DATABASES = {
    POSTGRES: Database(server="PostgreSQL", vendor="postgresql"),
    "sqlite": Database(server="SQLite", vendor="sqlite"),
    "sqlite@deferred": Database(
        server="SQLite",
        mode="BEGIN DEFERRED",
        vendor="sqlite",
        parameters={"transaction_mode": "DEFERRED"},
    ),
    "mysql": Database(server="MySQL", mode="READ COMMITTED", vendor="mysql", needs_url=True),
    "mysql@repeatable-read": Database(
        server="MySQL",
        mode="REPEATABLE READ",
        vendor="mysql",
        parameters={"isolation_level": "repeatable-read"},
        needs_url=True,
    ),
    "mariadb": Database(server="MariaDB", mode="READ COMMITTED", vendor="mysql"),
    "mariadb@repeatable-read": Database(
        server="MariaDB",
        mode="REPEATABLE READ",
        vendor="mysql",
        # Since MariaDB 11.6.2 the default is `on`.
        parameters={"isolation_level": "repeatable-read", "snapshot": "off"},
    ),
    "mariadb@snapshot": Database(
        server="MariaDB",
        mode="REPEATABLE READ with snapshot isolation",
        vendor="mysql",
        parameters={"isolation_level": "repeatable-read", "snapshot": "on"},
    ),
}
#: Parameters of a DATABASE_URL that distinguish these databases -> the shop's defaults.
DEFAULT_PARAMETERS = {
    "isolation_level": "read-committed",
    "snapshot": "",
    "transaction_mode": "IMMEDIATE",
}


def get_vendor(url: str) -> str:
    """Return Django's vendor name, such as `mysql`, for the database of a DATABASE_URL.

    Raises StackError if the text is not a URL.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        # `from None`, because the message of the ValueError may contain the password.
        raise StackError(
            "DATABASE_URL is not a URL: set it like postgres://user:password@127.0.0.1:5432/shop"
        ) from None
    return scheme if scheme in ("mysql", "sqlite") else "postgresql"


def choose_database(name: str, url: str) -> str:
    """Return the key in DATABASES of the run's database.

    name  the value of --database: a key of DATABASES. If it is the default POSTGRES, the database
          of `url` is chosen
    url   DATABASE_URL; empty if it is not set

    Raises StackError if the option contradicts the URL. The message says what the user can do.
    """
    database = DATABASES[name]
    if not url:
        if database.needs_url:
            raise StackError(
                f"--database {name} needs a server of yours: set "
                "DATABASE_URL=mysql://user:password@127.0.0.1:3306/shop"
            )
        return name
    if name == POSTGRES:
        return _find_database_key(url)
    if get_vendor(url) != database.vendor:
        raise StackError(
            f"--database {name} is {database.title}, and DATABASE_URL leads to another database: "
            "unset DATABASE_URL, or leave --database out"
        )
    return name


def _find_database_key(url: str) -> str:
    """Return the key in DATABASES of the database to which a DATABASE_URL leads.

    Raises StackError if no entry of DATABASES has the parameters of the URL.
    """
    vendor = get_vendor(url)
    if vendor == "postgresql":
        return POSTGRES
    # The entries of DATABASES differ in parameters such as the isolation level. An entry does not
    # list a parameter that has the shop's default value, so such parameters of the URL are left
    # out here as well.
    parameters = {
        name: text
        for name, text in parse_qsl(urlsplit(url).query)
        if name in DEFAULT_PARAMETERS and text != DEFAULT_PARAMETERS[name]
    }
    candidates = {
        name: database for name, database in DATABASES.items() if database.vendor == vendor
    }
    for name, database in candidates.items():
        if database.parameters == parameters:
            return name
    raise StackError(
        "DATABASE_URL has unsupported parameters, "
        f"{urlencode(parameters)}: remove them, or choose one of {', '.join(candidates)} "
        "with --database"
    )


def set_parameters(url: str, database: Database) -> str:
    """Return a DATABASE_URL with the parameters of `database`, such as the isolation level.

    These replace the parameters of the URL that distinguish databases. Other parameters of the URL,
    such as the path of a socket, are kept.
    """
    address, _, query = url.partition("?")
    parameters = {name: text for name, text in parse_qsl(query) if name not in DEFAULT_PARAMETERS}
    parameters.update(database.parameters)
    if not parameters:
        return address
    return f"{address}?{urlencode(parameters, safe='/')}"
