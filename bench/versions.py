"""Says which releases a system is made of.

Peers' adapters run in environments of their own and use this too, so it needs nothing but Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

Versions = Mapping[str, str]

DRIVERS: Final = {"sqlite": "pysqlite3", "redis": "hiredis", "postgres": "psycopg"}


def installed(*packages: str) -> dict[str, str]:
    """The releases of those of these packages that are here."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def beneath(engine: str) -> dict[str, str]:
    """What ours stands on."""
    found = installed("uvloop", DRIVERS[engine])
    if engine == "sqlite":
        from limpet.stores.sqlite.library import version as of_sqlite  # it is in our environment alone

        found["SQLite"] = ".".join(map(str, of_sqlite()))
    return found
