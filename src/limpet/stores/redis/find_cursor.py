"""Says where in an index of stored jobs to begin, in which direction to go, and how many to read at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from limpet.stores.redis.fields import ID_BYTES, SEQ_BYTES
from limpet.stores.redis.keys import Key

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

BATCH: Final = 512  # candidates per step of a scan
BLANK: Final = bytes(ID_BYTES)  # an erased slot

Candidate = tuple[bytes, bytes]  # position and id
Batches = AsyncIterator[list[Candidate]]


class Cursor(Struct, frozen=True):
    """A place in an index of one namespace, and a direction."""

    client: Client
    key: bytes  # the first of the namespace
    newest_first: bool = True
    after: bytes | None = None
    batch: int = BATCH
    verb: str = "find"

    async def call(self, *command: bytes | str | int) -> Any:
        return await self.client.call(self.verb, *command)

    async def by_lex(self, key: bytes, after: bytes | None, count: int) -> list[bytes]:
        """Members of a sorted set whose scores are equal, in their byte order, from behind one of them."""
        if self.newest_first:
            start: bytes | str = "+" if after is None else b"(" + after
            found: list[bytes] = await self.call("ZREVRANGEBYLEX", key, start, "-", "LIMIT", 0, count)
        else:
            start = "-" if after is None else b"(" + after
            found = await self.call("ZRANGEBYLEX", key, start, "+", "LIMIT", 0, count)
        return found

    async def by_score(self, key: bytes, after: int | None, count: int, *, inclusive: bool = False) -> list[Any]:
        """(member, score) pairs of a sorted set, flat, from behind a score (or from it)."""
        bound = "" if after is None else f"{'' if inclusive else '('}{after}"
        command = ("ZREVRANGEBYSCORE", key, bound or "+inf", "-inf")
        if not self.newest_first:
            command = ("ZRANGEBYSCORE", key, bound or "-inf", "+inf")
        found: list[Any] = await self.call(*command, "WITHSCORES", "LIMIT", 0, count)
        return found


async def by_arrival(cursor: Cursor, index: Key, rest: bytes = b"") -> Batches:
    """The members of a sorted set whose scores are arrival numbers."""
    after = None if cursor.after is None else int.from_bytes(cursor.after, "big")
    while found := await cursor.by_score(index.under(cursor.key, rest), after, cursor.batch):
        pairs = [(int(float(score)), id) for id, score in zip(found[::2], found[1::2], strict=True)]
        yield [(seq.to_bytes(SEQ_BYTES, "big"), id) for seq, id in pairs]
        after = pairs[-1][0]
