"""Lists the names of queues, tasks, limits, breakers and schedules that a store knows, to catch typing errors."""

from __future__ import annotations

from typing import Literal, cast

from limpet.core.errors import UnknownQueue, UsageError
from limpet.core.limits.budget import base_of
from limpet.core.schedules import schedule
from limpet.core.schedules.schedule import read_schedule
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.declared import declared_queues, declared_rule, declared_tasks
from limpet.stores.asking import gate_of
from limpet.stores.base import Store

Kind = Literal["queue", "task", "limit", "breaker", "schedule"]


class UnknownName(UsageError):
    """No task, limit or breaker of that name is known to the store."""

    code = "unknown_name"


class UnknownTask(UsageError):
    """The app at hand declares no task of that name."""

    code = "unknown_task"


async def known_names(store: Store, kind: Kind) -> set[str]:
    """Every name of that kind that jobs, gates, live workers or published tasks mention."""
    names = {gate.key.partition(":")[2] for gate in await store.gates(f"{kind}:")}
    if kind == "queue":
        names.update(view.queue for view in (await store.count(queues=True)).queues)
        names.update(await declared_queues(store))
    if kind == "task":
        names.update(task for (_, task, _) in (await store.count()).now)
        names.update(control.name for control in await store.controls("task"))
        for session in await store.sessions():
            names.update(session.serves.tasks or ())
    if kind == "schedule":
        names.update(control.name for control in await store.controls(schedule.KIND) if read_schedule(control))
    if kind in ("limit", "breaker"):
        declared = (rule.key.partition(":") for task in await declared_tasks(store) for rule in task.constant_rules())
        names.update(name for kind_of, _, name in declared if kind_of == kind)
    return names


async def unknown_gate_note(store: Store, gate: str) -> str:
    """A warning if no task declares this gate and no job has used it yet, else an empty string."""
    kind, _, name = gate.partition(":")
    template = base_of(name)[2] if kind == "limit" else ""
    if "{" in template and template in {
        ceiling.key for task in await declared_tasks(store) for ceiling in task.spec().ceilings
    }:
        return f"{template!r} is a template, which no job has as its key: name one that it makes"
    if await gate_of(store, gate) is not None or await declared_rule(store, gate) is not None:
        return ""
    names = await known_names(store, cast(Kind, kind))
    if name in names:
        return ""
    return f"no task or job uses {kind} {name!r} yet; {did_you_mean(name, names)}"


async def require(store: Store, kind: Kind, name: str) -> None:
    """Refuse a name that the store has never met."""
    if kind != "schedule" and await gate_of(store, f"{kind}:{name}") is not None:
        return  # of very many limits not all are listed
    if kind == "breaker" and await declared_rule(store, f"{kind}:{name}") is not None:
        return  # one by key has a record only while something is to be noted of it
    names = await known_names(store, kind)
    if name in names:
        return
    error = UnknownQueue if kind == "queue" else UnknownName
    raise error(f"no {kind} is called {name!r}", fix=await _meant(store, kind, name, names))


async def _meant(store: Store, kind: Kind, name: str, names: set[str]) -> str:
    """What was meant; limits and tasks that opened as a breaker does have their kind in front, queues not."""
    if kind == "breaker":
        shut = [gate.key for gate in await store.gates(keys=[f"limit:{name}", f"task:{name}"]) if gate.breaker_open]
        if shut:
            return f"did you mean {shut[0]!r}?"
    said, _, rest = name.partition(":")
    if kind == "queue" and rest and said in ("queue", "task"):
        return f"a {said} is named without its kind: {'--task ' if said == 'task' else ''}{rest}"
    return did_you_mean(name, names)
