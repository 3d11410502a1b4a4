"""Makes new jobs of finished ones: the same arguments, declared as of today, each naming the job it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.core.endings.refusal import for_any_code
from limpet.core.errors import UsageError
from limpet.core.flows.flow import is_key_of_copy
from limpet.core.flows.refs import Given, filled, look_alikes, stand_ins_of
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.job import Job, Unique
from limpet.core.jobs.lease import Input
from limpet.core.jobs.meta import RERUN_OF, whole_meta
from limpet.core.jobs.options import Options
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import JobView
from limpet.core.tasks.codec import decode_json
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.schema import fault_in, names_of
from limpet.core.tasks.task import build_job
from limpet.ops.declared import declared_tasks
from limpet.stores.base import Store

FINAL: Final = frozenset({State.succeeded, State.cancelled})
_TOLD: Final = 3  # of what was passed over, in words; all of it is counted


@dataclass
class Rerun:
    """One request to run finished jobs again."""

    store: Store
    unique: bool  # whether the new jobs take the unique keys of the old ones
    now_ms: int
    asked_ms: int | None
    new_ids: Mapping[bytes, bytes] | None = None  # old → the id of the new one, where these are given
    made: dict[bytes, bytes] = field(default_factory=dict)  # old → new
    holders: dict[str, str] = field(default_factory=dict)  # old → the job that has its unique key
    notes: list[str] = field(default_factory=list)
    _ids: IdMaker = field(default_factory=IdMaker)
    _tasks: dict[str, Declaration] | None = None

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        """Run a chunk again, in one step; of each job what became of it, in a word."""
        words: dict[bytes, str] = {}
        jobs: dict[bytes, Job] = {}
        rules: dict[str, GateRule] = {}
        for id, view in zip(ids, await self.store.get(ids), strict=True):
            if view is None or view.state not in FINAL:
                words[id] = self._passed_over(view)
                continue
            try:
                jobs[id], named = await self._copy(view)
                rules |= {rule.key: rule for rule in named}
            except UsageError as error:
                words[id] = "unfit"
                self._note(f"job {id_text(id)}: {error.message}")
        new = list(jobs.values())
        answers = await self.store.enqueue(new, list(rules.values()), now_ms=self.asked_ms) if new else []
        for (id, job), answer in zip(jobs.items(), answers, strict=True):
            if answer.id == job.id:  # stored now, or by an earlier try
                words[id], self.made[id] = "rerun", job.id
            else:
                words[id], self.holders[id_text(id)] = "unique_held", id_text(answer.id)
        if self.holders:
            self._note("--no-unique runs a job without its unique key, beside the job that holds it")
        return [words[id] for id in ids]

    def _passed_over(self, view: JobView | None) -> str:
        if view is None:
            return "gone"
        if view.state is not State.dead:
            self._note(f"job {id_text(view.id)} is {view.state}, and runs by itself; only finished jobs are run again")
            return "not_finished"
        self._note(f"job {id_text(view.id)} is dead, and keeps its id: retry it")
        return "dead"

    def _note(self, words: str) -> None:
        if len(self.notes) < _TOLD and words not in self.notes:
            self.notes.append(words)

    async def _copy(self, view: JobView) -> tuple[Job, tuple[GateRule, ...]]:
        if self._tasks is None:
            self._tasks = {task.name: task for task in await declared_tasks(self.store)}
        task = self._tasks.get(view.lane.task)
        id = self._ids.make(self.now_ms) if self.new_ids is None else self.new_ids[view.id]
        args = await self._args(view)
        if task is not None and (fault := fault_in(decode_json(args), names_of(task.schema))) is not None:
            raise UsageError(f"{view.lane.task} takes other arguments today: {fault}")
        meta = {name: value for name, value in whole_meta(view.meta).items() if name != "flow"}
        job = Job(
            id,
            for_any_code(view.lane),
            view.policy,
            args,
            unique=self._key(view, task),
            cost=view.cost,
            costs=view.costs,
            tags=view.tags,
            meta=msgspec.json.encode({**meta, RERUN_OF: id_text(view.id)}),
        )
        return (job, ()) if task is None else _as_declared(job, task)

    async def _args(self, view: JobView) -> bytes:
        """Its arguments, with the results of its parents in their places: the new job has none."""
        if not view.after or not (b'"$job' in view.args and look_alikes(value := decode_json(view.args))):
            return view.args
        stand_ins = stand_ins_of(view.notes)
        parents = [stand_ins.get(parent, parent) for parent in view.after]
        inputs: dict[bytes, Input] = {}
        for parent, found in zip(parents, await self.store.get(parents), strict=True):
            if found is None or found.state is not State.succeeded:
                raise UsageError(f"the result of its parent {id_text(parent)} is not stored any more")
            inputs[parent] = Input(found.result)
        return msgspec.json.encode(filled(value, Given(inputs, view.after, stand_ins)))

    def _key(self, view: JobView, task: Declaration | None) -> Unique | None:
        if not self.unique or view.unique is None or is_key_of_copy(view.unique):
            return None
        if task is None or not task.unique:
            return Unique(view.unique)
        states = LIVE if task.unique_states is None else frozenset(map(State, task.unique_states))
        return Unique(view.unique, task.unique_for_ms, states)


def _as_declared(job: Job, task: Declaration) -> tuple[Job, tuple[GateRule, ...]]:
    """The same job as the task is declared today. What only its code can say stays as it was: a tenant, a cost."""
    options = Options(
        tenant=job.lane.tenant if task.tenant is None else None,
        cost={"": job.cost, **job.costs} if task.cost_in_code else None,
        tags=job.tags,
    )
    try:
        made, rules = build_job(task.spec(), decode_json(job.args), options, id=job.id)
    except UsageError:
        # A template reads an argument that was left at its default, which only the code knows.
        return replace(job, policy=task.policy), ()
    return replace(made, args=job.args, unique=job.unique, meta=job.meta), rules
