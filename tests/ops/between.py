"""Lets something happen to a store between two steps of one caller, as when another process is faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from limpet.stores.base import Store


class Between:
    """A store to which something happens right before the first call of some verbs: another process was faster."""

    def __init__(self, store: Store, verbs: set[str], act: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._verbs = verbs
        self._act: Callable[[], Awaitable[object]] | None = act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self._verbs:
            return found

        async def after(*given: Any, **named: Any) -> Any:
            act, self._act = self._act, None
            if act is not None:
                await act()
            return await found(*given, **named)

        return after
