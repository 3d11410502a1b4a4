"""The engine for many machines that keeps jobs next to your data: PostgreSQL 15 or newer, with or without PgBouncer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> Any:
    """Load the driver with the store and not before: reading a URL needs none."""
    if name == "PostgresStore":
        from limpet.stores.postgres.store import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
