"""A schema of a test's own with the engine's tables and functions, asked without the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg

from limpet.stores.postgres import layout
from limpet.stores.postgres.wire import in_schema
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import PostgresServer, shared

_numbers = count(1)


class Schema:
    """One namespace on a server; `lp.` in what is asked means it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"rooms{next(_numbers)}"
        self.line = self.connect(autocommit=True)

    def sql(self, text: str) -> bytes:
        return in_schema(text, self.name).encode()

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url, autocommit=autocommit)

    def run(self, text: str) -> None:
        """Statements without values."""
        self.line.execute(self.sql(text))

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """One statement, committed by itself."""
        return self.line.execute(self.sql(query), values or None).fetchall()


@contextlib.contextmanager
def fresh_schema(flavour: PostgresFlavour, *, rooms: str) -> Iterator[Schema]:
    """A schema with the tables and the verbs of all rooms up to one, by the number that begins its file's name."""
    schema = Schema(shared(flavour))
    with contextlib.closing(schema.line):
        schema.run(f"CREATE SCHEMA {schema.name}")
        for migration in layout.migrations():
            schema.run(migration.text)
        for name, text in layout.verbs().files:
            if name[:2] <= rooms:
                schema.run(text)
        yield schema
        schema.run(f"DROP SCHEMA {schema.name} CASCADE")
