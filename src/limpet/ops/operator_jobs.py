"""Corrects jobs, by their ids or by a query: cancel, retry, rerun, discard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import JobView, Query
from limpet.core.records.bulk import BulkReport
from limpet.core.records.job import JobRecord
from limpet.core.redaction.redaction import Redaction
from limpet.ops.bulk import Act, Decision, Facts, Progress, run_bulk
from limpet.ops.deeds import Discarding
from limpet.ops.edits import Edit
from limpet.ops.operator_questions import Questions
from limpet.ops.query import parse_query, query_text
from limpet.ops.redaction import redaction_of
from limpet.ops.rerun import FINAL, Rerun
from limpet.ops.retry import DEAD, Retry, retried_states
from limpet.ops.select import Which, chosen, key_holders, refuse_unknown_steps


class JobCorrections(Questions):
    """What people do to jobs, in an `Operator`."""

    actor: str

    async def cancel(
        self,
        which: Which,
        *,
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Cancel waiting jobs with their dependents; ask running ones to stop (`force` takes the lease away)."""

        async def act(ids: Sequence[bytes]) -> Sequence[str]:
            return await self.store.cancel(ids, reason, force=force, now_ms=self._asked_ms)

        decision = self._decision("job.cancel", reason, which, force=force)
        return await self._bulk(
            decision, which, LIVE, act, frozenset({"cancelled", "cancelling"}), dry_run=dry_run, progress=progress
        )

    async def retry(
        self,
        which: Which,
        *,
        reason: str = "",
        delay_ms: int = 0,
        args: Mapping[str, Any] | None = None,
        patch: Mapping[str, Any] | None = None,
        forget: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Bring dead jobs back, with new arguments (`args`) or some of them changed (`patch`).

        What they have recorded of their steps stays, but for those they shall `forget` ("*": all). A query that names
        no state means dead jobs; `state:scheduled` starts those now, and ends their sleep if they are asleep.
        """
        edit = Edit(args, patch)
        which = parse_query(which) if isinstance(which, str) else which
        if forget and not isinstance(which, Query):
            await refuse_unknown_steps(self.store, [await self.resolve(text) for text in which], forget)
        redaction = await redaction_of(self.store)
        retry = Retry(self.store, self.actor, reason, edit, redaction, delay_ms, tuple(forget), self._asked_ms)
        said = redaction.all.facts({"args": args, "patch": patch})
        decision = self._decision("job.retry", reason, which, delay_ms=delay_ms, forget=forget, **said)
        report = await self._bulk(
            decision,
            which,
            retried_states(which),
            retry.act,
            frozenset({"retried"}),
            dry_run=dry_run,
            progress=progress,
            edit=edit,
            facts=retry.facts,
        )
        return replace(report, holders=await key_holders(self.store, retry.refused)) if retry.refused else report

    async def rerun(
        self,
        which: Which,
        *,
        reason: str = "",
        unique: bool = True,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Make new jobs of succeeded and cancelled ones: the same arguments, everything else as declared today.

        A new job has neither parents nor dependents, and names the old one. It takes the unique key of that one if
        the key is free, else it is not made (`unique=False`: it takes none). The oldest come first.
        """
        again = Rerun(self.store, unique, self.now_ms(), self._asked_ms)
        decision = self._decision("job.rerun", reason, which, no_unique=not unique)
        report = await self._bulk(
            decision,
            which,
            FINAL,
            again.act,
            frozenset({"rerun"}),
            dry_run=dry_run,
            progress=progress,
            facts=lambda id: {"new": id_text(again.made[id])},
            oldest_first=True,  # the new jobs queue in the order of the old ones
        )
        made = {id_text(old): id_text(new) for old, new in again.made.items()}
        return replace(report, holders=again.holders, made=made, notes=tuple(again.notes))

    async def discard(
        self, which: Which, *, reason: str = "", dry_run: bool = False, progress: Progress | None = None
    ) -> BulkReport:
        """Remove dead jobs for good. What they were stays in the audit log."""

        deed = Discarding(self.store, self._asked_ms)
        decision = self._decision("job.discard", reason, which)
        return await self._bulk(
            decision,
            which,
            DEAD,
            deed.act,
            deed.changed,
            dry_run=dry_run,
            progress=progress,
            facts=lambda id: deed.causes.pop(id, {}),
        )

    async def _bulk(
        self,
        decision: Decision,
        which: Which,
        states: frozenset[State],
        act: Act,
        changed: frozenset[str],
        *,
        dry_run: bool,
        progress: Progress | None,
        edit: Edit | None = None,
        facts: Facts | None = None,
        oldest_first: bool = False,
    ) -> BulkReport:
        verb = decision.kind.partition(".")[2]
        redaction = await redaction_of(self.store)
        ids, samples = await chosen(self.store, which, states, verb, redaction, now_ms=self._asked_ms)
        if oldest_first:
            ids.sort()
        report = BulkReport(verb, len(ids), _records(samples, redaction), dry_run=dry_run)
        if edit:
            notes = await edit.check(self.store, ids, redaction)
            edited = tuple(JobRecord.of(redaction.job(edit.of(view), view)) for view in samples)
            edits = tuple(edit.changes(view, redaction) for view in samples)
            report = replace(report, samples=edited, edits=edits, notes=notes)
        if dry_run:
            return report
        done, answers = await run_bulk(
            self.store, decision, ids, act, changed=changed, now_ms=self._asked_ms, progress=progress, facts=facts
        )
        return replace(report, done=done, answers=dict(answers))

    def _decision(self, kind: str, reason: str, which: Which, **data: object) -> Decision:
        facts = {name: value for name, value in data.items() if value}
        if isinstance(which, str | Query):
            facts["query"] = which if isinstance(which, str) else query_text(which)
        return Decision(kind, self.actor, reason, facts)


def _records(views: Iterable[JobView], redaction: Redaction) -> tuple[JobRecord, ...]:
    return tuple(JobRecord.of(redaction.job(view)) for view in views)
