"""Acts on a chunk of jobs, by verb: cancel, retry, rerun, discard; and says what of it a runner that died has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import JobView
from limpet.core.operations.operation import Chunk, Operation, new_job_id
from limpet.core.redaction.redaction import Redaction
from limpet.ops.causes import facts_of
from limpet.ops.edits import Edit
from limpet.ops.rerun import FINAL, Rerun
from limpet.ops.retry import DEAD, Retry, retried_states
from limpet.ops.select import Which, key_holders
from limpet.stores.base import Store

CANCELLED: Final = frozenset({"cancelled", "cancelling"})
RETRIED: Final = frozenset({"retried"})
RERUN: Final = frozenset({"rerun"})
DISCARDED: Final = frozenset({"discarded"})


class Deed(Protocol):
    """What an operation does to its jobs."""

    changed: frozenset[str]  # answers that mean that a job was changed
    oldest_first: bool

    def states(self, which: Which) -> frozenset[State]:
        """The states of the jobs that it acts on."""

    async def check(self, ids: Sequence[bytes]) -> object:
        """Refuse before the first job is touched what one of these could not take."""

    def facts(self, view: JobView) -> Mapping[str, Any]:
        """What the audit log keeps of a job, as it is before."""

    def begin(self, chunk: Chunk) -> None:
        """These are the next jobs."""

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        """Act on jobs of the chunk; of each what became of it, in a word."""

    async def traces(self, ids: Sequence[bytes]) -> Mapping[bytes, str]:
        """Those of these jobs that a runner which died has changed before, with its answer."""

    def replayed(self, id: bytes) -> bytes | None:
        """The job that runs because of this one; None when none does."""

    def made(self, id: bytes) -> Mapping[str, Any]:
        """What the audit log keeps of a job beside, as it is after."""

    def unfit(self, view: JobView | None) -> str:
        """The answer about a job that was named, and is in another state or gone."""

    async def holders(self, ids: Sequence[bytes]) -> Mapping[str, str]:
        """Which jobs hold the unique keys of these."""


@dataclass
class _Plain:
    """What most deeds have in common."""

    store: Store
    asked_ms: int | None
    oldest_first = False

    async def check(self, ids: Sequence[bytes]) -> object:
        return None

    def facts(self, view: JobView) -> Mapping[str, Any]:
        return {}

    def begin(self, chunk: Chunk) -> None:
        pass

    def replayed(self, id: bytes) -> bytes | None:
        return None

    def made(self, id: bytes) -> Mapping[str, Any]:
        return {}

    def unfit(self, view: JobView | None) -> str:
        return "gone" if view is None else "not_dead"

    async def holders(self, ids: Sequence[bytes]) -> Mapping[str, str]:
        return {}


@dataclass
class Cancelling(_Plain):
    """Cancels waiting jobs with their dependents, asks running ones to stop."""

    reason: str = ""
    force: bool = False
    changed = CANCELLED

    def states(self, which: Which) -> frozenset[State]:
        return LIVE

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        return await self.store.cancel(ids, self.reason, force=self.force, now_ms=self.asked_ms)

    async def traces(self, ids: Sequence[bytes]) -> Mapping[bytes, str]:
        views = [view for view in await self.store.get(ids) if view is not None]
        cancelled = {view.id: "cancelled" for view in views if view.state is State.cancelled}
        asked = {} if self.force else {view.id: "cancelling" for view in views if view.cancel_requested}
        return asked | cancelled

    def unfit(self, view: JobView | None) -> str:
        return "gone" if view is None else "finished"


@dataclass
class Discarding(_Plain):
    """Removes dead jobs; what they were is known before."""

    causes: dict[bytes, dict[str, object]] = field(default_factory=dict)  # of what it has removed
    changed = DISCARDED

    def states(self, which: Which) -> frozenset[State]:
        return DEAD

    def facts(self, view: JobView) -> Mapping[str, Any]:
        return facts_of(view)

    def begin(self, chunk: Chunk) -> None:
        self.causes.clear()

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        views = [view for view in await self.store.get(ids) if view is not None and view.state is State.dead]
        dead = [view.id for view in views]
        self.causes |= {view.id: facts_of(view) for view in views}
        await self.store.discard(dead, now_ms=self.asked_ms)
        left = {view.id for view in await self.store.get(dead) if view is not None}
        gone = set(dead) - left
        return ["discarded" if id in gone else "not_dead" for id in ids]

    async def traces(self, ids: Sequence[bytes]) -> Mapping[bytes, str]:
        views = await self.store.get(ids)
        return {id: "discarded" for id, view in zip(ids, views, strict=True) if view is None}


@dataclass
class Retrying(_Plain):
    """Runs dead jobs again, under their own ids, with the same or other arguments."""

    retry: Retry
    wanted: frozenset[State] = DEAD
    changed = RETRIED

    def states(self, which: Which) -> frozenset[State]:
        self.wanted = retried_states(which)
        return self.wanted

    async def check(self, ids: Sequence[bytes]) -> object:
        return await self.retry.edit.check(self.store, ids, self.retry.redaction) if self.retry.edit else None

    def facts(self, view: JobView) -> Mapping[str, Any]:
        causes = facts_of(view) if view.state is State.dead else {}
        return causes | self.retry.edit.changes(view, self.retry.redaction) if self.retry.edit else causes

    def begin(self, chunk: Chunk) -> None:
        self.retry.refused.clear()

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        return await self.retry.act(ids)

    async def traces(self, ids: Sequence[bytes]) -> Mapping[bytes, str]:
        views = [view for view in await self.store.get(ids) if view is not None]
        return {view.id: "retried" for view in views if view.state not in self.wanted or self.retry.died_since(view)}

    def replayed(self, id: bytes) -> bytes | None:
        return id

    async def holders(self, ids: Sequence[bytes]) -> Mapping[str, str]:
        return await key_holders(self.store, ids)


@dataclass
class Rerunning(_Plain):
    """Makes new jobs of finished ones, under ids that follow from the operation and the place of the old one in it."""

    rerun: Rerun
    operation: Operation | None = None
    changed = RERUN
    oldest_first = True  # the new jobs queue in the order of the old ones
    _new: dict[bytes, bytes] = field(default_factory=dict)

    def states(self, which: Which) -> frozenset[State]:
        return FINAL

    def begin(self, chunk: Chunk) -> None:
        assert self.operation is not None
        one, places = self.operation, range(chunk.first, chunk.first + len(chunk.ids))
        self._new = {id: new_job_id(one.id, one.began_ms, place) for id, place in zip(chunk.ids, places, strict=True)}
        self.rerun.new_ids = self._new
        self.rerun.made.clear()
        self.rerun.holders.clear()

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        return await self.rerun.act(ids)

    async def traces(self, ids: Sequence[bytes]) -> Mapping[bytes, str]:
        made = await self.store.get([self._new[id] for id in ids])
        return {id: "rerun" for id, view in zip(ids, made, strict=True) if view is not None}

    def replayed(self, id: bytes) -> bytes | None:
        return self._new[id]

    def made(self, id: bytes) -> Mapping[str, Any]:
        return {"new": id_text(self._new[id])}

    def unfit(self, view: JobView | None) -> str:
        return "gone" if view is None else "dead" if view.state is State.dead else "not_finished"

    async def holders(self, ids: Sequence[bytes]) -> Mapping[str, str]:
        return {id_text(id): self.rerun.holders.get(id_text(id), "") for id in ids}


def deed_of(store: Store, operation: Operation, redaction: Redaction, asked_ms: int | None = None) -> Deed:
    """What the operation does; `redaction` is what the audit log does not keep of it."""
    how = operation.how
    if operation.verb == "cancel":
        return Cancelling(store, asked_ms, operation.reason, how.force)
    if operation.verb == "discard":
        return Discarding(store, asked_ms)
    if operation.verb == "retry":
        edit = Edit(how.args, how.patch)
        ended_ms = operation.began_ms + 1  # what dies later was brought back, by this operation or another
        who = operation.actor, operation.reason
        retry = Retry(store, *who, edit, redaction, how.delay_ms, how.forget, asked_ms, before_ms=ended_ms)
        return Retrying(store, asked_ms, retry)
    return Rerunning(store, asked_ms, Rerun(store, how.unique, operation.began_ms, asked_ms), operation)
