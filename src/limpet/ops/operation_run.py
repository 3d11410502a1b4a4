"""Runs one operation: each chunk is written down, acted on and logged, so that a kill neither loses nor doubles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from limpet.core.errors import LimpetError, StoreError
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Entry, JobView, Term
from limpet.core.operations.operation import LEASE_MS, PROBLEMS, Chunk, Operation, Problem
from limpet.core.redaction.redaction import Redaction
from limpet.core.text.storable import storable
from limpet.ops.bulk import Decision, Progress
from limpet.ops.deeds import Deed, deed_of
from limpet.ops.operation_shelf import Kept, Shelf
from limpet.ops.query import parse_query
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE, exact, guarded
from limpet.ops.shown_jobs import ShownJobs
from limpet.stores.base import Store

LOOK_MS: Final = 200  # how often jobs that were brought back are looked at while it waits for them
BEAT_MS: Final = LEASE_MS // 4  # it never waits longer without a sign of life
FACTS_BYTES: Final = 256 * 1024  # of what is written down of a chunk: edited arguments may be large
LOG_PAGE: Final = 1_000

Sleep = Callable[[float], Awaitable[object]]


class Taken(Exception):
    """Another process runs the operation by now."""


class Found(NamedTuple):
    """The next jobs of an operation."""

    views: Sequence[JobView]
    passed: Mapping[bytes, str]  # named jobs that are in no state for it, and what is said of each
    cursor: str  # "": these were the last


class OperationRun:
    """One operation in the hands of this process, from its claim to its pause or end."""

    def __init__(
        self, store: Store, kept: Kept, runner: str, clock: Callable[[], int] | None, sleep: Sleep | None = None
    ) -> None:
        self.store = store
        self._shelf = Shelf(store)
        self._kept = kept
        self._runner = runner
        self._clock = clock
        self._sleep = sleep  # None: until the time is over or the process stops
        self._stop = asyncio.Event()
        self._redaction = Redaction()  # read when it begins
        self._deed: Deed = deed_of(store, kept.operation, self._redaction, self._asked_ms)
        self._wrote_ms = 0

    @property
    def operation(self) -> Operation:
        """How it stands."""
        return self._kept.operation

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    async def now_ms(self) -> int:
        """The time by the engine's clock."""
        return await self.store.now() if self._clock is None else self._clock()

    async def claim(self) -> bool:
        """Take it; False when it does not run, or another process has it."""
        now_ms = await self.now_ms()
        if not self.operation.wants_runner(now_ms):
            return False
        mine = self.operation.held(self._runner, now_ms)
        written = await self._shelf.put(mine, self._kept.slot, self._kept.version)
        if written is None:
            return False
        self._kept, self._wrote_ms = written, now_ms
        return True

    async def run(self, stop: asyncio.Event, progress: Progress | None = None) -> Operation:
        """Go through its jobs until it ends, pauses or this process shall `stop`; it is let go of then.

        A refusal (arguments that do not fit, a full queue) ends it as failed: a person can continue it.
        """
        self._stop = stop
        try:
            self._redaction = await redaction_of(self.store)
            self._deed = deed_of(self.store, self.operation, self._redaction, self._asked_ms)
            if self.operation.chunk is not None:
                await self._finish(self.operation.chunk, resumed=True)
            while self.operation.state == "running" and not stop.is_set():
                await self._step()
                if progress is not None and self.operation.counted:
                    progress(self.operation.done, self.operation.matched)
        except Taken:
            return self.operation
        except StoreError:
            raise  # it runs on when the store is back, here or elsewhere
        except Exception as error:
            words, now_ms = _refusal(error), await self.now_ms()
            with suppress(Taken):
                await self._save(lambda one: one if one.over else one.ended("failed", now_ms, words))
        await self._let_go()
        return self.operation

    async def _step(self) -> None:
        one, now_ms = self.operation, await self.now_ms()
        if not one.counted:
            await self._count(now_ms)
            return
        if one.watched:
            await self._look(now_ms)
            one = self.operation
        if one.walked:
            await self._save(lambda one: one.ended("done", now_ms) if one.state == "running" else one)
        elif pause := one.pausing():
            await self._save(lambda one: one.paused(pause, _words(one, pause)) if one.state == "running" else one)
        elif wait_ms := self._wait_ms(now_ms):
            await self._rest(wait_ms, now_ms)
        else:
            await self._take(now_ms)

    def _wait_ms(self, now_ms: int) -> int:
        """How long nothing may be touched: by the throttle, or because jobs that run again have to end first."""
        if self.operation.room() == 0:
            return LOOK_MS
        if self.operation.how.per_second is None:
            return 0
        return max(0, -(-self.operation.free_us // 1000) - now_ms)

    async def _rest(self, wait_ms: int, now_ms: int) -> None:
        """Wait, but not longer than to the next sign of life."""
        if now_ms - self._wrote_ms >= BEAT_MS:
            await self._save(lambda one: one)
        wait_s = min(wait_ms, BEAT_MS) / 1000
        if self._sleep is not None:
            await self._sleep(wait_s)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), wait_s)

    # -- what it acts on

    async def _count(self, now_ms: int) -> None:
        """Count one page of its jobs, and see that each could take what is asked; none is touched before all are."""
        found = await self._find(PAGE)
        await self._deed.check([view.id for view in found.views])
        counted = self.operation.counting(len(found.views) + len(found.passed), found.cursor)
        if counted.counted or now_ms - self._wrote_ms >= LEASE_MS // 10:
            await self._save(lambda one: one.counting(counted.matched - one.matched, found.cursor))
        else:
            self._kept = self._kept._replace(operation=counted)  # a kill costs a few pages of counting

    async def _take(self, now_ms: int) -> None:
        """Write down the next jobs, and act on them."""
        room = self.operation.room()
        found = await self._find(room)
        facts = [self._deed.facts(view) for view in found.views]
        while len(found.views) > 1 and len(msgspec.json.encode(facts)) > FACTS_BYTES:
            room = max(1, len(found.views) // 2)
            found = await self._find(room)
            facts = [self._deed.facts(view) for view in found.views]
        newest = await self.store.read("audit", 0, 1, newest=True)
        seq = newest[-1].seq if newest else 0
        first = self.operation.done + len(found.passed)
        chunk = Chunk.make([view.id for view in found.views], facts, first, seq) if found.views else None
        problems = [Problem(id_text(id), word) for id, word in found.passed.items()]

        def begun(one: Operation) -> Operation:
            if one.state != "running":
                return one  # a person has paused or cancelled it meanwhile: nothing more is begun
            return one.acted(found.passed, frozenset(), (), problems).begun(chunk, found.cursor, now_ms * 1000)

        await self._save(begun)
        if chunk is not None and self.operation.chunk is not None:
            await self._finish(chunk, resumed=False)

    async def _find(self, most: int) -> Found:
        """The next jobs of the walk, or of the list of those that were named."""
        one = self.operation
        if one.query is None:
            return await self._named(one, most)
        query = parse_query(one.query)
        # Relative words of the query, too, are meant as of its beginning.
        there = (Term("age", "0", ">="), Term("finished", "0", "<", negated=True))
        query = replace(
            guarded(query, self._deed.states(query), one.verb),
            terms=(*query.terms, *there),
            limit=most,
            cursor=one.cursor or None,
            newest_first=not self._deed.oldest_first,
        )
        shown = ShownJobs(self._redaction, query)
        page = await self.store.find(shown.query, now_ms=one.began_ms)
        views = [view for view in page.jobs if exact(view, query) and shown.match(view)]
        return Found(views, {}, page.cursor or "")

    async def _named(self, one: Operation, most: int) -> Found:
        at = int(one.cursor or 0)
        ids = one.chosen[at : at + most]
        views = await self.store.get(ids)
        wanted = self._deed.states(())
        fit = [view for view in views if view is not None and view.state in wanted]
        known = {view.id for view in fit}
        passed = {id: self._deed.unfit(view) for id, view in zip(ids, views, strict=True) if id not in known}
        return Found(fit, passed, str(at + most) if at + most < len(one.chosen) else "")

    # -- what it does

    async def _finish(self, chunk: Chunk, *, resumed: bool) -> None:
        """Act on what is written down, log it, and write down what came of it.

        When another runner began it, what that one did is found first: in the audit log, and by what has become of
        the jobs. Of a cancelled operation only this is done.
        """
        self._deed.begin(chunk)
        logged = await self._logged(chunk) if resumed else {}
        words = logged | await self._act([id for id in chunk.ids if id not in logged], resumed=resumed)
        now_ms = await self.now_ms()
        if now_ms - self._wrote_ms >= LEASE_MS:
            await self._save(lambda one: one)  # another process may have taken it, which has logged this then
        await self._log(chunk, {id: word for id, word in words.items() if id not in logged}, now_ms)
        problems = await self._problems(words)
        changed = self._deed.changed
        ran = [self._deed.replayed(id) for id in chunk.ids if words.get(id) in changed]
        replayed = [id for id in ran if id is not None]
        await self._save(lambda one: one.acted(words, changed, replayed, problems))

    async def _act(self, ids: Sequence[bytes], *, resumed: bool) -> dict[bytes, str]:
        """Act on those that no runner has acted on; of each what became of it."""
        words = dict(await self._deed.traces(ids)) if resumed else {}
        rest = [id for id in ids if id not in words]
        if not rest or self.operation.state == "cancelled":
            return words
        words |= zip(rest, await self._deed.act(rest), strict=True)
        if resumed:  # the runner before may have lived, and been quicker
            words |= await self._deed.traces([id for id in rest if words[id] not in self._deed.changed])
        return words

    async def _log(self, chunk: Chunk, words: Mapping[bytes, str], now_ms: int) -> None:
        decision, facts = self._decision, chunk.facts_by_id()
        entries = [
            decision.entry(now_ms, id, answer=word, **{**facts[id], **self._deed.made(id)})
            for id, word in words.items()
            if word in self._deed.changed
        ]
        if entries:
            await self.store.append(entries)

    @property
    def _decision(self) -> Decision:
        one = self.operation
        query = {} if one.query is None else {"query": one.query}
        return Decision(f"job.{one.verb}", one.actor, one.reason, {"operation": one.id, **query})

    async def _logged(self, chunk: Chunk) -> dict[bytes, str]:
        """What the audit log has of the chunk already."""
        found: dict[bytes, str] = {}
        seq = chunk.seq
        while entries := await self.store.read("audit", seq, LOG_PAGE):
            for entry in entries:
                if entry.job is not None and (word := self._word_in(entry)):
                    found[entry.job] = word
            seq = entries[-1].seq
        return {id: word for id, word in found.items() if id in chunk.ids}

    def _word_in(self, entry: Entry) -> str:
        if entry.kind != self._decision.kind:
            return ""
        said = msgspec.json.decode(entry.data)
        return str(said["answer"]) if said.get("operation") == self.operation.id else ""

    async def _problems(self, words: Mapping[bytes, str]) -> list[Problem]:
        room = PROBLEMS - len(self.operation.problems)
        bad = [(id, word) for id, word in words.items() if word not in self._deed.changed][: max(0, room)]
        refused = [id for id, word in bad if word == "unique_held"]
        holders = await self._deed.holders(refused) if refused else {}
        return [Problem(id_text(id), word, holders.get(id_text(id), "")) for id, word in bad]

    async def _look(self, now_ms: int) -> None:
        """See how the jobs ended that it has brought back."""
        views = dict(zip(self.operation.watched, await self.store.get(self.operation.watched), strict=True))
        ended = frozenset(id for id, view in views.items() if view is None or view.state in FINISHED)
        if not ended:
            return
        dead = [id_text(id) for id in sorted(ended) if (view := views[id]) is not None and view.state is State.dead]
        await self._save(lambda one: one.looked(ended, dead))

    # -- what is stored

    async def _save(self, change: Callable[[Operation], Operation]) -> None:
        """Write a change over whatever people say meanwhile; Taken when another process runs it."""
        now_ms = await self.now_ms()

        def mine(one: Operation) -> Operation:
            if one.runner != self._runner:
                raise Taken
            changed = change(one)
            works = changed.state == "running" or changed.chunk is not None
            return changed.held(self._runner, now_ms) if works else changed.released()

        kept = await self._shelf.change(self._kept, mine)
        if kept is None:
            raise Taken
        self._kept, self._wrote_ms = kept, now_ms

    async def _let_go(self) -> None:
        kept = await self._shelf.change(self._kept, lambda one: one.released() if one.runner == self._runner else None)
        self._kept = self._kept if kept is None else kept


def _words(one: Operation, pause: str) -> str:
    """Why it pauses by itself."""
    if pause == "sample":
        return f"the sample of {one.how.sample} is done: see how its jobs end, then continue"
    return f"{one.died - one.forgiven} of its jobs died again"


def _refusal(error: Exception) -> str:
    if isinstance(error, LimpetError):
        return storable(f"{error.message} ({error.fix})" if error.fix else error.message)
    return storable(f"{type(error).__name__}: {error}")
