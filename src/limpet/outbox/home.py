"""Knows which of several databases of one name on PostgreSQL is the outbox's own, by asking it once where it is."""

from __future__ import annotations

import asyncio
import logging

from limpet.outbox.log import outbox_log
from limpet.outbox.place import Place


class Home:
    """Where the outbox's URL leads. A server that was restarted is another home, and so is asked again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._home: str | None = None
        self._trusted: set[str] = set()  # homes of callers from a time when nobody could be asked

    async def is_at(self, home: str, *, block: bool) -> bool:
        """False when a caller's connection leads to another home than the URL. `block`: as all its calls do.

        Where the URL cannot be asked from here, as with a password that only the relay has, the name has to do.
        """
        if home == self._home or home in self._trusted:
            return True
        try:
            self._home = await self._ask(block)
        except Exception as error:
            why = str(error).strip() or type(error).__name__
            outbox_log(logging.WARNING, "not asked where it is, told by its name", outbox=self._place.shown, why=why)
            self._trusted.add(home)
            return True
        return home == self._home

    async def _ask(self, block: bool) -> str:
        # Lazy: a caller over another driver may not have this one; then that is why.
        from limpet.outbox.postgres import home_of

        return home_of(self._place) if block else await asyncio.to_thread(home_of, self._place)
