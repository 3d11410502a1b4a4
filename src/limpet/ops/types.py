"""Lists types, and changes them at run time: visible to all, and every change in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from limpet.core.access.refusal import OutOfScope
from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control
from limpet.core.records.agent_type import TypeChange, TypeRecord
from limpet.core.tasks.agent_type import AgentType, TypeSource, changed
from limpet.core.tasks.declaration import KIND, Declaration, read_declaration
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.bulk import Decision
from limpet.ops.names import UnknownName
from limpet.stores.base import Store

FRESH_S: Final = 10.0  # a change reaches servers and producers within this time
_TRIES: Final = 5
_REMOVED: Final = b""


class Types:
    """The types of a namespace, in the name of `actor`."""

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None = None) -> None:
        self._store = store
        self._actor = actor
        self._clock = clock

    async def list(self) -> tuple[TypeRecord, ...]:
        """Every type, by name."""
        found = [_read(control) for control in await self._store.controls(KIND)]
        return tuple(TypeRecord.of(*each) for each in found if each is not None)

    async def get(self, name: str) -> TypeRecord:
        """One type."""
        records = {record.type: record for record in await self.list()}
        if name not in records:
            raise UnknownName(f"there is no type {name!r:.80}", fix=did_you_mean(name, records))
        return records[name]

    async def set(self, name: str, changes: Mapping[str, Any], *, reason: str = "") -> TypeChange:
        """Make a type, or change some of its keys, for jobs that are enqueued from now on; contracts for all jobs.

        A key that is null is as the file says again.
        """
        where = f"the type {name}"
        return await self._change("type.set", name, lambda source: changed(source, changes, where), reason)

    async def reset(self, name: str, *, reason: str = "") -> TypeChange:
        """Take back what operators have changed: the type is as its file says."""

        def as_filed(source: TypeSource) -> TypeSource:
            if source.file is None:
                raise UnknownName(f"no file declares the type {name!r}", fix=f"limpet types remove {name}")
            return TypeSource(source.file)

        await self.get(name)
        return await self._change("type.reset", name, as_filed, reason)

    async def remove(self, name: str, *, reason: str = "") -> TypeRecord:
        """Forget a type: its jobs stay, without a contract. A file that declares it makes it again."""
        record = await self.get(name)
        await self._store.put_control(Control(KIND, name, _REMOVED))
        await self._log("type.remove", name, record.queue, {"keys": [*record.set_by]}, reason)
        return record

    async def _change(
        self, kind: str, name: str, change: Callable[[TypeSource], TypeSource], reason: str
    ) -> TypeChange:
        for _ in range(_TRIES):
            control = next((each for each in await self._store.controls(KIND) if each.name == name), None)
            there = None if control is None else read_declaration(control)
            if there is not None and there.type is None:
                raise InvalidOption(f"code declares the task {name!r}", fix="change its code, or choose another name")
            before = TypeSource() if there is None or there.type is None else there.type
            after = change(before)
            declared = Declaration.of_type(name, after, f"the type {name}")
            record = TypeRecord.of(AgentType(name, after.table()), after)
            keys = _differing(before.table(), after.table())
            if there is not None and before == after:
                return TypeChange(**_fields(record), changed=())
            version = 0 if control is None else control.version
            if await self._store.put_control(declared.control(), expect=version) is None:
                continue
            facts = {
                "before": {key: before.table().get(key) for key in keys},
                "after": {key: after.table().get(key) for key in keys},
            }
            await self._log(kind, name, record.queue, facts, reason)
            return TypeChange(**_fields(record), changed=keys)
        raise OutOfScope(
            f"the type {name!r:.80} cannot be changed: others change it, or it belongs to another queue",
            fix="try again, or use a token for its queue",
        )

    async def _log(self, kind: str, name: str, queue: str, facts: Mapping[str, Any], reason: str) -> None:
        decision = Decision(kind, self._actor, reason, {"type": name, "queue": queue, **facts})
        await self._store.append([decision.entry(None if self._clock is None else self._clock())])


class KnownTypes:
    """The types of a store as agents need them at each claim and end; read again when they may have changed."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._types: dict[str, AgentType] = {}
        self._read_at_s: float | None = None

    async def of(self, task: str) -> AgentType | None:
        """The type of that name; None for a task with code, or one that is not declared."""
        if self._read_at_s is None or self._clock() - self._read_at_s > FRESH_S:
            declared = [read_declaration(control) for control in await self._store.controls(KIND)]
            found = [one.agent_type() for one in declared if one is not None]
            self._types = {one.name: one for one in found if one is not None}
            self._read_at_s = self._clock()
        return self._types.get(task)


def _read(control: Control) -> tuple[AgentType, TypeSource] | None:
    declared = read_declaration(control)
    if declared is None or declared.type is None:
        return None
    return AgentType(declared.name, declared.type.table()), declared.type


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in {**before, **after} if before.get(key) != after.get(key))


def _fields(record: TypeRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in TypeRecord.__struct_fields__}
