"""Remembers requests that came with an idempotency key, so that a second one is answered as the first was.

What it promises: requests with one key and one body have one effect, if that is jobs that are stored under the ids
which follow from the key (`Begun.ids`). For other effects: one after another they have one; a process that is killed
between an effect and its record leaves a key that a later try runs again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.access.request_key import (
    ANSWER_BYTES,
    KEPT_MS,
    MOST_KEYS,
    SHELVES,
    Request,
    Shelf,
    control_of,
    hash_of,
    kind_at,
    kind_of,
    new_job_ids,
    read_shelf,
)
from limpet.core.errors import InvalidOption
from limpet.stores.base import Store

HOLD_MS: Final = 60_000  # a try that is not answered for so long is taken for dead
KEY_CHARS: Final = 255


class Begun(Struct, frozen=True):
    """The request is new, or its last try died: do it, and say then what it was answered."""

    request: Request
    again: bool  # an earlier try died, and may have had its effect

    def ids(self, count: int) -> list[bytes]:
        """Ids for the jobs that it asks for, in order: the same in each try."""
        return new_job_ids(self.request.key, self.request.at_ms, count)


class Answered(Struct, frozen=True):
    """The request was answered before."""

    status: int
    answer: bytes | None  # None: it was too long to be kept
    request: Request

    def ids(self, count: int) -> list[bytes]:
        """The ids of the jobs that it asked for."""
        return new_job_ids(self.request.key, self.request.at_ms, count)


class Refused(Struct, frozen=True):
    """The request cannot be done under this key: another one came with it, or an earlier try is not answered yet."""

    why: Literal["other_request", "in_progress", "too_many_keys"]
    retry_after_ms: int = 0  # when an earlier try is taken for dead, or a key is free


class Idempotency:
    """The requests with keys of one namespace, for 24 hours each.

    >>> found = await idempotency.begin(caller, key, "POST", "/jobs", body)     # doctest: +SKIP
    >>> if isinstance(found, Begun): await idempotency.finish(found, 201, answer)  # doctest: +SKIP
    """

    def __init__(self, store: Store, clock: Callable[[], int] | None = None) -> None:
        self._store = store
        self._clock = clock
        self._pruned = secrets.randbelow(SHELVES)

    async def begin(
        self, caller: str, key: str, method: str, path: str, body: bytes, *, hold_ms: int = HOLD_MS
    ) -> Begun | Answered | Refused:
        """What to do with a request: do it, answer as before, or refuse it. Each `caller` has keys of its own."""
        name, now_ms = hash_of(caller, checked_key(key)), await self._now_ms()
        asked = Request(name, hash_of(method, path, body), now_ms, secrets.token_hex(8), now_ms + hold_ms)
        answer: Begun | Answered | Refused = Refused("too_many_keys")

        def change(shelf: Shelf) -> Shelf | None:
            nonlocal answer
            shelf = _fresh(shelf, now_ms)
            known = next((each for each in shelf if each.key == name), None)
            answer, added = _answer(known, asked, now_ms)
            if added is None:
                return None
            if known is None and len(shelf) >= MOST_KEYS:
                answer = Refused("too_many_keys", min(each.at_ms for each in shelf) + KEPT_MS - now_ms)
                return None
            return (*(each for each in shelf if each.key != name), added)

        await self._change(kind_of(name), change)
        if isinstance(answer, Begun):
            await self.prune()
        return answer

    async def finish(self, begun: Begun, status: int, answer: bytes) -> bool:
        """Remember what the request was answered; False when a later try has taken its place."""
        kept = answer if len(answer) <= ANSWER_BYTES else None
        return await self._put(begun.request, replace(begun.request, status=status, answer=kept))

    async def forget(self, begun: Begun) -> bool:
        """The request had no effect, such as one that was refused: its key is free."""
        return await self._put(begun.request, None)

    async def prune(self, shelves: int = 1) -> int:
        """Remove old requests from the next records, one after another; how many went."""
        now_ms, gone = await self._now_ms(), 0
        for _ in range(shelves):
            self._pruned = (self._pruned + 1) % SHELVES

            def change(shelf: Shelf) -> Shelf | None:
                nonlocal gone
                fresh = _fresh(shelf, now_ms)
                gone += len(shelf) - len(fresh)
                return None if len(fresh) == len(shelf) else fresh

            await self._change(kind_at(self._pruned), change)
        return gone

    async def _put(self, before: Request, after: Request | None) -> bool:
        is_ours = False

        def change(shelf: Shelf) -> Shelf | None:
            nonlocal is_ours
            is_ours = any(each.key == before.key and each.run == before.run for each in shelf)
            if not is_ours:
                return None
            rest = tuple(each for each in shelf if each.key != before.key)
            return rest if after is None else (*rest, after)

        await self._change(kind_of(before.key), change)
        return is_ours

    async def _change(self, kind: str, change: Callable[[Shelf], Shelf | None]) -> None:
        """Write a change over the version that was read; None changes nothing."""
        while True:
            found = await self._store.controls(kind)
            shelf, version = (read_shelf(found[0]), found[0].version) if found else ((), 0)
            changed = change(shelf)
            if changed is None or await self._store.put_control(control_of(kind, changed), expect=version) is not None:
                return

    async def _now_ms(self) -> int:
        return await self._store.now() if self._clock is None else self._clock()


def checked_key(key: str) -> str:
    """A key as a client may choose it."""
    if isinstance(key, str) and 0 < len(key) <= KEY_CHARS and key.isascii() and key.isprintable():
        return key
    raise InvalidOption(
        f"the idempotency key {key!r:.80} is none",
        fix=f"1 to {KEY_CHARS} printable characters of ASCII, such as a UUID",
    )


def _answer(known: Request | None, asked: Request, now_ms: int) -> tuple[Begun | Answered | Refused, Request | None]:
    """What a request is answered, and what is stored of it; None: all stays as it is."""
    if known is None:
        return Begun(asked, False), asked
    if known.body != asked.body:
        return Refused("other_request"), None
    if known.status:
        return Answered(known.status, known.answer, known), None
    if now_ms < known.until_ms:
        return Refused("in_progress", known.until_ms - now_ms), None
    again = replace(asked, at_ms=known.at_ms)
    return Begun(again, True), again


def _fresh(shelf: Shelf, now_ms: int) -> Shelf:
    return tuple(each for each in shelf if not each.is_old(now_ms))
