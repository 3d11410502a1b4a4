"""The records of live events as they travel: what one process has changed since its last message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.jobs.state import State

MOST_BYTES: Final = 7_900  # of a message: PostgreSQL carries fewer than 8,000 in a notification
ABOUT: Final = 100  # changes and counts that usually fit into one message

Scope = tuple[str, str]  # queue and task
UNKNOWN: Final[Scope] = ("", "")  # of a job that the publisher did not know


class Moved(Struct, frozen=True):
    """One job that has moved: what happened to it, and the state that it is in now."""

    id: bytes
    scope: Scope
    kind: str
    state: State
    attempt: int
    at_ms: int


class Counted(Struct, frozen=True):
    """How many jobs of one queue and task have come to a state."""

    scope: Scope
    state: State
    count: int


class Change(Struct, frozen=True, array_like=True):
    """A move as it travels."""

    id: bytes
    scope: int  # the place in the list of the bulletin
    kind: str
    state: State
    attempt: int
    after_ms: int  # counted from the bulletin's instant


class Count(Struct, frozen=True, array_like=True):
    """A count as it travels."""

    scope: int
    state: State
    count: int


class Bulletin(Struct, frozen=True, array_like=True):
    """A message of one publisher. `number` grows by one: a reader that misses one knows that it has lost something."""

    publisher: str
    number: int
    at_ms: int
    scopes: tuple[Scope, ...] = ()
    changes: tuple[Change, ...] = ()
    counts: tuple[Count, ...] = ()
    lost: int = 0  # changes that fitted nowhere, before this message

    @property
    def news(self) -> Iterator[Moved | Counted]:
        """What it says."""
        scopes, at_ms = self.scopes, self.at_ms
        for id, scope, kind, state, attempt, after_ms in map(_fields, self.changes):
            yield Moved(id, scopes[scope], kind, state, attempt, at_ms + after_ms)
        for each in self.counts:
            yield Counted(scopes[each.scope], each.state, each.count)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Bulletin).decode
_fields = msgspec.structs.astuple


def read_bulletin(text: str) -> Bulletin | None:
    """The message; None for text that is none: other programs may write where we listen."""
    try:
        found = _decode(text)
    except msgspec.MsgspecError:
        return None
    most = len(found.scopes)
    places = [each.scope for each in found.changes] + [each.scope for each in found.counts]
    return found if all(0 <= place < most for place in places) else None


def write_bulletins(publisher: str, number: int, news: Sequence[Moved | Counted], at_ms: int, lost: int) -> list[str]:
    """The news as messages that fit, the first one numbered `number`; it also says how much was lost before."""
    found: list[str] = []
    pending = [news[at : at + ABOUT] for at in range(0, max(1, len(news)), ABOUT)][::-1]
    while pending:
        part = pending.pop()
        text = _encode(_bulletin(publisher, number + len(found), part, at_ms, 0 if found else lost))
        if len(text) > MOST_BYTES and len(part) > 1:
            pending += [part[len(part) // 2 :], part[: len(part) // 2]]
        else:
            found.append(text.decode())
    return found


def _bulletin(publisher: str, number: int, news: Sequence[Moved | Counted], at_ms: int, lost: int) -> Bulletin:
    scopes: dict[Scope, int] = {}
    changes: list[Change] = []
    counts: list[Count] = []
    for each in news:
        scope = scopes.setdefault(each.scope, len(scopes))
        if isinstance(each, Moved):
            changes.append(Change(each.id, scope, each.kind, each.state, each.attempt, each.at_ms - at_ms))
        else:
            counts.append(Count(scope, each.state, each.count))
    return Bulletin(publisher, number, at_ms, tuple(scopes), tuple(changes), tuple(counts), lost)
