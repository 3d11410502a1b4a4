"""Walks over everything that a namespace keeps beside its records, a page at a time, and has it set by them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from limpet.core.errors import StoreError
from limpet.core.jobs.job import LEAST_URGENT
from limpet.core.jobs.repair import Difference, Kind, count_name, tenant_name, wrong
from limpet.core.jobs.state import STATES
from limpet.stores.redis.keys import K
from limpet.stores.redis.scripts import call_name, script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

SCANNED: Final = 1_000  # keys of the server that one step passes
ENDED: Final = (b"4", b"5", b"6")
TOTALS: Final = {10: "enqueued", 13: "discarded"}

_WORDS: Final[dict[str, tuple[Kind, str]]] = {
    "unreadable": ("unreadable", "jobs whose records cannot be read"),
    "vanished": ("vanished", "jobs that left traces and no record"),
    "lease": ("lease", "leases that do not say what runs under them"),
    "blocked": ("index", "blocked jobs that are not listed"),
    "scheduled": ("index", "scheduled jobs that are not listed"),
    "ready": ("index", "ready jobs that are in no list"),
    "unseen": ("index", "lists of ready jobs that no claim sees"),
    "finished": ("index", "finished jobs that are not listed"),
    "unblocked": ("index", "blocked jobs that wait for no parent"),
    "parents": ("index", "jobs that count other parents than they wait for"),
    "children": ("index", "dependents that their parents do not know"),
    "record": ("index", "records that do not say what is kept beside them"),
    "ledger": ("index", "jobs that the list of all jobs does not show"),
    "chunk": ("index", "parts of the list of all jobs that count other jobs than they show"),
    "key": ("index", "unique keys that their jobs do not hold"),
    "flow": ("index", "jobs that their flows do not show"),
    "expiring": ("index", "jobs that would not expire"),
    "listed": ("index", "entries of lists that stand for no job"),
    "leftover": ("index", "jobs that are gone and left notes, attempts or parents"),
    "lane": ("index", "lists that count other jobs than they hold"),
    "kept": ("index", "queues that count other finished jobs than they keep"),
    "unknown": ("index", "queues whose depth or drain is not known"),
    "cause": ("index", "origins that count other dead jobs than there are"),
}


class _Walk:
    """One repair, or one look."""

    def __init__(self, client: Client, key: bytes, dry_run: bool, now_ms: int | None) -> None:
        self.client, self.key, self.dry_run, self.now_ms = client, key, dry_run, now_ms
        self.name = call_name()
        self.wrong: dict[str, dict[bytes, None]] = {}
        self.counts: dict[str, int] = {}

    async def stage(self, stage: str, name: bytes | str | int = "") -> Any:
        """All pages of one stage; what the last one answered beside its findings."""
        cursor: bytes | str = "0"
        while True:
            now = "" if self.now_ms is None else self.now_ms
            args = (now, self.name, 0 if self.dry_run else 1, stage, cursor, name)
            answer: list[Any] = await self.client.script("repair", script("repair"), self.key, args)
            if answer[0] == b"busy":
                raise StoreError("another repair is counting the jobs of this store", verb="repair", fix="wait for it")
            cursor, found, more = answer
            for word, id in zip(found[::2], found[1::2], strict=True):
                self.counts[word.decode()] = self.counts.get(word.decode(), 0) + 1
                if id:
                    self.wrong.setdefault(word.decode(), {})[id] = None
            if cursor == b"0":
                return more

    def entries(self) -> list[Difference]:
        """What was found so far, but for numbers."""
        found: list[Difference] = []
        for word, meaning in _WORDS.items():
            if count := self.counts.get(word, 0):
                ids = self.wrong.get(word, {})
                found += wrong(*meaning, ids, len(ids) or count)
        return found


async def repair(client: Client, key: bytes, *, dry_run: bool, now_ms: int | None) -> list[Difference]:
    """What differs; without `dry_run` it is put right on the way. What a stage changes is seen by those after it."""
    walk = _Walk(client, key, dry_run, now_ms)
    for stage in ("running", "leases", "keys"):
        await walk.stage(stage)
    former = {bare async for page in _scan(client, K.former_holders.under(key)) for bare in page}
    for bare in former:  # other jobs held these keys before: few have any
        await walk.stage("former", bare)
    await walk.stage("records")
    for kept in (K.notes, K.attempts, K.parents):
        async for ids in _scan(client, kept.under(key)):
            await walk.stage("leftovers", b"".join(ids))
    for stage in ("blocked", "expiring"):
        await walk.stage(stage)
    for level in range(LEAST_URGENT + 1):
        await walk.stage("scheduled", level)
    for queue in await client.call("repair", "SMEMBERS", K.queues.under(key)):
        for state in ENDED:
            await walk.stage("filed", state + queue)
    for stage in ("results", "large_args", "flows"):
        await walk.stage(stage)
    counters, total = await walk.stage("count")
    if not dry_run:  # those that were held by jobs which have vanished
        await walk.stage("leases")
    numbers: list[Difference] = []
    for gate, used, held, stuck in await walk.stage("gates"):
        if used != held:
            numbers.append(Difference("slots", gate.decode(), used, held))
        if stuck:
            numbers.append(Difference("probe", gate.decode(), 1))
    for field, found, right in sorted(counters):
        queue, task, state = field.decode().rsplit("\0", 2)
        name = count_name(queue, task, STATES[int(state)]) if state else tenant_name(queue, task)
        numbers.append(Difference("count", name, found, right))
    if total:
        what, found, right = total
        numbers.append(Difference("total", TOTALS[what], found, right))
    return [*walk.entries(), *numbers]


async def _scan(client: Client, prefix: bytes) -> AsyncIterator[list[bytes]]:
    """What follows the prefix in the names of keys of which no list is kept, a page of the server's keys at a time."""
    pattern = re.sub(rb"([\\*?\[\]])", rb"\\\1", prefix) + b"*"
    cursor: bytes | str = "0"
    while cursor != b"0":
        cursor, names = await client.call("repair", "SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
        if names:
            yield [name[len(prefix) :] for name in names]
