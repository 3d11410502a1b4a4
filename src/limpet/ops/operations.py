"""Starts, shows, pauses, continues and cancels operations: actions on many jobs that outlive their process."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import ValidationError, convert
from msgspec.structs import replace

from limpet.core.errors import InvalidOption, UsageError
from limpet.core.jobs.ids import IdMaker, id_bytes, id_text
from limpet.core.jobs.state import FINISHED
from limpet.core.jobs.view import JobView, Query
from limpet.core.operations.operation import VERBS, How, Operation
from limpet.core.records.bulk import BulkReport
from limpet.core.records.job import JobRecord
from limpet.core.records.operation import OperationRecord, Sample
from limpet.core.tasks.codec import MAX_BYTES, too_large
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.storable import checked_text
from limpet.ops.bulk import Decision, Progress
from limpet.ops.deeds import deed_of
from limpet.ops.edits import Edit, encoded, refuse_masks
from limpet.ops.operation_run import LOOK_MS, OperationRun, Sleep
from limpet.ops.operation_shelf import Kept, Shelf
from limpet.ops.query import query_text
from limpet.ops.redaction import redaction_of
from limpet.ops.scope import queues_of, scoped
from limpet.ops.select import Which, chosen, counted, definite, guarded, named_ids, refuse_unknown_steps
from limpet.ops.shown_jobs import ShownJobs
from limpet.stores.base import Store

MOST_NAMED: Final = 1_000  # jobs that are named one by one; more are found by a query
MOST_SAMPLED: Final = 200  # jobs of a sample: a person looks at them
MOST_DEATHS: Final = 1_000_000
FASTEST: Final = 10_000.0  # jobs a second: a limit above it would not slow anything
OF_VERB: Final[dict[str, frozenset[str]]] = {
    "cancel": frozenset({"force"}),
    "retry": frozenset({"delay_ms", "args", "patch", "forget", "sample", "stop_after"}),
    "rerun": frozenset({"unique", "sample", "stop_after"}),
    "discard": frozenset(),
}


class OperationOver(UsageError):
    """The operation is done or cancelled: it can neither be paused nor continued."""

    code = "operation_over"


class Operations:
    """The operations of one namespace, in the name of `actor`.

    >>> one = await operator.operations.start("retry", "state:dead", per_second=10, sample=20)  # doctest: +SKIP
    >>> await operator.operations.run(one.id)                                                   # doctest: +SKIP
    """

    def __init__(
        self, store: Store, actor: str, clock: Callable[[], int] | None = None, *, sleep: Sleep | None = None
    ) -> None:
        self.store = store
        self.actor = actor
        self._shelf = Shelf(store)
        self._clock = clock
        self._sleep = sleep
        self._runner = runner_name()

    async def now_ms(self) -> int:
        """The instant by the engine's clock."""
        return await self.store.now() if self._clock is None else self._clock()

    # -- asking

    async def preview(self, verb: str, which: Which, **options: Any) -> BulkReport:
        """What `start` would act on: how many jobs, and three of them."""
        operation = await self._made(verb, which, "", None, options)
        redaction = await redaction_of(self.store)
        deed = deed_of(self.store, operation, redaction, self._asked_ms)
        which = definite(which, verb) if isinstance(which, str) else which
        edit = Edit(operation.how.args, operation.how.patch)
        if operation.counted and isinstance(which, Query):
            query, matched = replace(guarded(which, deed.states(which), verb), limit=3), operation.matched
            samples: Sequence[JobView] = (await self.store.find(query, now_ms=self._asked_ms)).jobs
        else:
            ids, samples = await chosen(self.store, which, deed.states(which), verb, redaction, now_ms=self._asked_ms)
            await deed.check(ids)
            matched = len(ids)
        return BulkReport(
            verb,
            matched,
            tuple(JobRecord.of(redaction.job(edit.of(view))) for view in samples),
            dry_run=True,
            edits=tuple(edit.changes(view, redaction) for view in samples) if edit else (),
        )

    async def list(self, *, finished: bool = True, limit: int = 50) -> tuple[OperationRecord, ...]:
        """Operations, newest first; finished ones are kept for seven days."""
        now_ms = await self.now_ms()
        found = [one.operation for one in await self._shelf.all(now_ms) if finished or not one.operation.over]
        return await self._records(found[:limit], now_ms)

    async def get(self, id: str) -> OperationRecord:
        """One operation, by its id or the unique end of it, with how its sample stands now."""
        now_ms = await self.now_ms()
        return await self._record((await self._shelf.find(id, now_ms)).operation, now_ms)

    # -- saying what becomes of it

    async def start(
        self, verb: str, which: Which, *, reason: str = "", id: str | None = None, **options: Any
    ) -> OperationRecord:
        """Store an operation, which waits then for a process that runs it: `run`, or `run_operations` of a server.

        It acts on the jobs that match now and still do when it comes to them; jobs that are enqueued or end after this
        instant are left alone. `per_second`: the most jobs a second. `sample`: pause after that number, until a
        person continues. `stop_after`: pause when that number died again. The same `id` again is the same operation.
        """
        operation = await self._made(verb, which, reason, id, options)
        if operation.how.forget and operation.chosen:
            await refuse_unknown_steps(self.store, operation.chosen, operation.how.forget)
        kept = await self._shelf.add(operation)
        if not kept.operation.asks_as(operation):
            raise InvalidOption(
                f"there is an operation {operation.id}, which asks for other things", fix="take a new id"
            )
        if kept.operation is operation:
            await self._log("start", operation, operation.began_ms, reason)
        return await self._record(kept.operation, operation.began_ms)

    async def pause(self, id: str, *, reason: str = "") -> OperationRecord:
        """Let it stop after the jobs that it is at; it can be continued."""
        return await self._say("pause", id, reason, lambda one: one.paused("asked", reason, self.actor))

    async def resume(self, id: str, *, reason: str = "") -> OperationRecord:
        """Let a paused or failed one continue: after a sample with all other jobs, after deaths with a new count."""
        return await self._say("continue", id, reason, lambda one: one.continued(self.actor))

    async def cancel(self, id: str, *, reason: str = "") -> OperationRecord:
        """Let it touch no more jobs. What it has done stays."""
        now_ms = await self.now_ms()
        record = await self._say("cancel", id, reason, lambda one: one.ended("cancelled", now_ms, reason, self.actor))
        kept = await self._shelf.find(record.id, now_ms)
        if kept.operation.wants_runner(now_ms):  # what a dead runner had begun is found out and logged
            await self.run(record.id)
        return await self.get(record.id)

    async def run(
        self, id: str, *, progress: Progress | None = None, stop: asyncio.Event | None = None
    ) -> OperationRecord:
        """Run it here until it is done or pauses; one that another process runs is followed. `stop` lets it go."""
        stop = asyncio.Event() if stop is None else stop
        while True:
            now_ms = await self.now_ms()
            kept = await self._shelf.find(id, now_ms)
            if kept.operation.wants_runner(now_ms):
                await self.run_here(kept, stop, progress)
                if stop.is_set():
                    return await self.get(kept.operation.id)
                continue
            if kept.operation.state != "running" or stop.is_set():
                return await self._record(kept.operation, now_ms)
            if progress is not None and kept.operation.counted:
                progress(kept.operation.done, kept.operation.matched)
            await (asyncio.sleep if self._sleep is None else self._sleep)(LOOK_MS / 1000)

    async def run_here(self, kept: Kept, stop: asyncio.Event, progress: Progress | None = None) -> None:
        """Run one that was read, if no other process takes it first."""
        store = scoped(self.store, kept.operation.queues)
        run = OperationRun(store, kept, self._runner, self._clock, self._sleep)
        if await run.claim():
            await run.run(stop, progress)

    async def waiting(self) -> Sequence[Kept]:
        """Those that want a process, oldest first."""
        now_ms = await self.now_ms()
        return [one for one in reversed(await self._shelf.all(now_ms)) if one.operation.wants_runner(now_ms)]

    # -- parts

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    async def _made(
        self, verb: str, which: Which, reason: str, id: str | None, options: Mapping[str, Any]
    ) -> Operation:
        if verb not in VERBS:
            raise InvalidOption(f"{verb!r} is no action on jobs", fix=did_you_mean(str(verb), VERBS))
        checked_text(reason, what="reason")
        how, now_ms = checked_how(verb, options), await self.now_ms()
        operation = Operation(
            id=id_text(IdMaker().make(now_ms)) if id is None else id_text(id_bytes(id)),
            verb=verb,
            began_ms=now_ms,
            actor=self.actor,
            reason=reason,
            how=how,
            queues=None if (queues := queues_of(self.store)) is None else tuple(sorted(queues)),
        )
        if isinstance(which, str | Query):
            query = definite(which, verb) if isinstance(which, str) else replace(which, cursor=None)
            redaction = await redaction_of(self.store)
            query = guarded(query, deed_of(self.store, operation, redaction).states(query), verb)
            ShownJobs(redaction, query)  # which refuses a question about what is hidden
            # An edit is checked with each job, so its jobs are counted one by one before the first is changed.
            matched = None if how.args is not None or how.patch is not None else await counted(self.store, query)
            text = which if isinstance(which, str) else query_text(replace(which, cursor=None))
            return replace(operation, query=text, counted=matched is not None, matched=matched or 0)
        if len(which) > MOST_NAMED:
            raise InvalidOption(
                f"{len(which):,} jobs are named, and {MOST_NAMED:,} is the most", fix="name them by a query"
            )
        return replace(operation, chosen=tuple(await named_ids(self.store, which)))

    async def _say(self, verb: str, id: str, reason: str, change: Callable[[Operation], Operation]) -> OperationRecord:
        checked_text(reason, what="reason")
        now_ms = await self.now_ms()
        kept = await self._shelf.find(id, now_ms)

        def said(one: Operation) -> Operation | None:
            if one.over and not (verb == "cancel" and one.state == "cancelled"):
                raise _over(one, verb)
            same = {"pause": "paused", "continue": "running", "cancel": "cancelled"}[verb]
            return None if one.state == same else change(one)

        changed = await self._shelf.change(kept, said)
        if changed is None:
            raise _over(kept.operation, verb)
        if changed.version != kept.version:
            await self._log(verb, changed.operation, now_ms, reason)
        return await self._record(changed.operation, now_ms)

    async def _log(self, verb: str, one: Operation, at_ms: int, reason: str) -> None:
        facts: dict[str, object] = {"operation": one.id, "verb": one.verb, "query": one.query, "queues": one.queues}
        facts["jobs"] = len(one.chosen) or None
        shown = OperationRecord.of(one, at_ms)
        facts |= {"per_second": shown.per_second, "stop_after": shown.stop_after, "sample": one.how.sample or None}
        said = {name: value for name, value in (facts | shown.options).items() if value is not None}
        await self.store.append([Decision(f"operation.{verb}", self.actor, reason, said).entry(at_ms)])

    async def _record(self, one: Operation, now_ms: int) -> OperationRecord:
        return (await self._records([one], now_ms))[0]

    async def _records(self, found: Sequence[Operation], now_ms: int) -> tuple[OperationRecord, ...]:
        ids = list(dict.fromkeys(id for one in found for id in one.sampled))
        views = dict(zip(ids, await self.store.get(ids), strict=True)) if ids else {}
        return tuple(OperationRecord.of(one, now_ms, _sample([views[id] for id in one.sampled])) for one in found)


def checked_how(verb: str, options: Mapping[str, Any]) -> How:
    """What was asked for, or a refusal of what the verb does not have or no operation could do."""
    said = dict(options)
    if "delay" in said:
        delay: Duration = said.pop("delay")
        said["delay_ms"] = to_ms(delay, what="delay")
    allowed = OF_VERB[verb] | {"per_second"}
    for name, value in said.items():
        if name not in How.__struct_fields__:
            raise InvalidOption(f"{name}= is no option of an operation", fix=did_you_mean(name, sorted(allowed)))
        if name not in allowed and value != getattr(How(), name):
            raise InvalidOption(f"{verb} takes no {name}=", fix=f"it takes {', '.join(sorted(allowed))}")
    _check_edit(said.get("args"), said.get("patch"))
    try:
        how = convert(said, How)
    except ValidationError as error:
        raise InvalidOption(f"{verb}: {error}", fix="see `limpet operations --help`") from error
    if how.per_second is not None and not 0 < how.per_second <= FASTEST:
        raise InvalidOption(f"per_second={how.per_second} is no rate", fix=f"more than 0, at most {FASTEST:,.0f}")
    for name, value, most in (("sample", how.sample, MOST_SAMPLED), ("stop_after", how.stop_after, MOST_DEATHS)):
        if not 0 <= value <= most:
            raise InvalidOption(f"{name}={value} is no number of jobs", fix=f"1 to {most:,}; leave it out for none")
    return how


def _check_edit(args: Mapping[str, Any] | None, patch: Mapping[str, Any] | None) -> None:
    Edit(args, patch)
    for given in (args, patch):
        refuse_masks(given)
        if given is not None and len(raw := encoded(given)) > MAX_BYTES:
            raise too_large(len(raw), MAX_BYTES, "the arguments", "store it elsewhere and pass where it is")


def runner_name() -> str:
    """What this process is called while it runs operations."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _sample(views: Sequence[JobView | None]) -> Sample:
    """How the jobs of a sample stand."""
    states = Counter(
        "gone" if view is None else str(view.state) if view.state in FINISHED else "unfinished" for view in views
    )
    return Sample(**states)


def _over(one: Operation, verb: str) -> OperationOver:
    return OperationOver(f"operation {one.id} is {one.state}: there is nothing to {verb}", fix="start another one")
