"""Decides what the arguments of jobs that run again become, and refuses what their tasks cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.flows.refs import REF, REFS
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import JobView
from limpet.core.redaction.redaction import Redaction
from limpet.core.redaction.rule import MASK, holds_mask
from limpet.core.tasks.agent_type import refuse_arguments
from limpet.core.tasks.codec import MAX_BYTES, too_large
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.schema import Schema, fault_in, names_of
from limpet.ops.declared import declared_tasks
from limpet.ops.select import PAGE
from limpet.stores.base import Store


class Edit:
    """New arguments: all of them (`args`), or some changed (`patch`)."""

    def __init__(self, args: Mapping[str, Any] | None = None, patch: Mapping[str, Any] | None = None) -> None:
        if args is not None and patch is not None:
            raise InvalidOption("args and patch exclude each other", fix="args replaces all, patch changes some")
        self.args = None if args is None else dict(args)
        self.patch = None if patch is None else dict(patch)

    def __bool__(self) -> bool:
        return self.args is not None or self.patch is not None

    def of(self, view: JobView) -> JobView:
        """The job as it will run."""
        if not self:
            return view
        return replace(view, args=encoded({**_args(view), **(self.patch or {})} if self.args is None else self.args))

    def changes(self, view: JobView, redaction: Redaction) -> dict[str, object]:
        """For the audit log: the arguments that change, as they were and as they are to be, without hidden ones."""
        before, after = _args(view), _args(self.of(view))
        names = [name for name in {**before, **after} if name not in before or before[name] != after.get(name, before)]
        if redaction:
            old, new = redaction.of(view), redaction.of(self.of(view))
            before, after = new.value(_args(old.view)), old.value(_args(new.view))
        return {
            "before": {name: before[name] for name in names if name in before},
            "after": {name: after[name] for name in names if name in after},
        }

    async def check(self, store: Store, ids: Sequence[bytes], redaction: Redaction) -> tuple[str, ...]:
        """Refuse the edit if one of these jobs could not take it; answers what could not be checked, in words.

        All are looked at before the first is touched. Of arguments that stay as they are only the names are looked at:
        a task may take more than its schema says, such as "5" for 5.
        """
        refuse_masks(self.patch if self.args is None else self.args)
        declared = {task.name: task for task in await declared_tasks(store)}
        unknown: set[str] = set()
        for start in range(0, len(ids), PAGE):
            for view in await store.get(ids[start : start + PAGE]):
                if view is None:
                    continue
                task = declared.get(view.lane.task)
                if task is None:
                    unknown.add(view.lane.task)
                self._refuse_unfit(view, task, redaction)
        return tuple(f"the arguments of {name} are not checked: no worker has published it" for name in sorted(unknown))

    def _refuse_unfit(self, view: JobView, task: Declaration | None, redaction: Redaction) -> None:
        edited = self.of(view)
        most = MAX_BYTES if task is None else task.max_payload_bytes
        if len(edited.args) > most:
            raise too_large(len(edited.args), most, "the arguments", "store it elsewhere and pass where it is")
        said = self.patch if self.args is None else self.args
        schema: Schema = {} if task is None else names_of(task.schema, but=said or ())
        if task is not None and (type := task.agent_type()) is not None:
            refuse_arguments(task.name, type.table.arguments, _args(edited), refers=True)
            return
        fault = fault_in(_args(edited), schema, open_at=_is_ref)
        if fault is not None:
            raise InvalidArguments(
                f"{view.lane.task} cannot take these arguments (job {id_text(view.id)}): "
                f"{redaction.of(edited).text(fault)}",
                fix="nothing was changed; correct the arguments",
            )


def refuse_masks(args: Mapping[str, Any] | None, what: str = "the argument") -> None:
    """Refuse what was shown with a mask and comes back: it would be stored in the place of the hidden value."""
    for name, value in (args or {}).items():
        if holds_mask({name: value}):
            raise InvalidArguments(
                f"{what} {name!r} holds {MASK!r}, which stands for a hidden value and is none",
                fix=f"leave {name!r} out of a patch to keep what it is, or write the whole value",
            )


def _args(view: JobView) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(view.args)
    return found


def encoded(args: Mapping[str, Any]) -> bytes:
    """Arguments as they are stored."""
    try:
        return msgspec.json.encode(args)
    except (UnicodeEncodeError, TypeError) as error:
        raise InvalidArguments(
            f"the arguments are not JSON: {error}", fix="pass text, numbers, lists, objects"
        ) from error


def _is_ref(value: Any) -> bool:
    """True for what stands for the result of a parent."""
    return isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint((REF, REFS))
