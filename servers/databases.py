"""The databases of the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from urllib.parse import quote

import psycopg
from psycopg import sql

from servers.errors import EmbeddedError
from servers.postgres import Postgres


class Databases:
    """Created, renamed and dropped by its superuser. Each method raises EmbeddedError where
    PostgreSQL does not answer."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    def url(self, name: str) -> str:
        """The URL of a database, whether it is there or not."""
        folder = quote(str(self._postgres.socket_folder()), safe="")
        return f"postgresql://postgres@/{name}?host={folder}"

    def names(self) -> set[str]:
        """The names of all databases."""
        with self._superuser() as connection:
            return {str(row[0]) for row in connection.execute("SELECT datname FROM pg_database")}

    def create(self, name: str, *, template: str) -> None:
        """Create a database as a copy of `template`, unless it is there."""
        if name not in self.names():
            self._run("CREATE DATABASE {} TEMPLATE {}", name, template)

    def rename(self, name: str, to: str) -> None:
        """Rename a database, which nobody may use at the time."""
        self._run("ALTER DATABASE {} RENAME TO {}", name, to)

    def drop(self, name: str) -> None:
        """Drop a database if it is there, with the connections to it."""
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _run(self, statement: LiteralString, *names: str) -> None:
        with self._superuser() as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    @contextmanager
    def _superuser(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            folder = str(self._postgres.socket_folder())
            connection = psycopg.connect(
                host=folder, user="postgres", dbname="postgres", autocommit=True
            )
        except (OSError, psycopg.OperationalError) as error:
            raise EmbeddedError(
                f"PostgreSQL does not answer ({error}); see {self._postgres.data / 'log'}, and "
                "unset PGSERVICE, PGOPTIONS and the like"
            ) from error
        with connection:
            yield connection
