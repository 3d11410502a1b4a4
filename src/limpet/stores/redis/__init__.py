"""The engine for many machines: Redis 6.2 or newer, or Valkey; alone, behind Sentinel, or in a Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.stores.redis.store import RedisStore

__all__ = ["RedisStore"]


def __getattr__(name: str) -> Any:
    """Load the driver with the store and not before: reading a URL needs none."""
    if name == "RedisStore":
        from limpet.stores.redis.store import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
