"""Tells what was decided about dead jobs: the lines of the audit log by cause, and what became of the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Entry, JobView
from limpet.core.records.cause import CauseRecord
from limpet.core.records.decision import CauseDecisions, DecisionLog, DecisionRecord
from limpet.core.records.log import AuditRecord
from limpet.core.records.record import moment
from limpet.core.redaction.redaction import Redaction
from limpet.ops.causes import Key, known_causes, veiled
from limpet.ops.events import pages_back
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE
from limpet.stores.base import Store

MOST_LINES: Final = 100_000  # of the audit log that one look reads: some seconds
MOST_JOBS: Final = 10_000  # retried jobs whose state is looked up, those of the newest decisions
NEAR_MS: Final = 600_000  # jobs that one person retries for one reason within that time are one decision
_SAID: Final = ("status", "until", "assignee", "note")
_BECAME: Final = {State.succeeded: "succeeded", State.dead: "died_again", State.cancelled: "cancelled"}


@dataclass
class _Decision:
    """One decision while the log is read, from its last line to its first."""

    entry: Entry
    facts: dict[str, Any]
    begin_ms: int
    jobs: int = 0
    edited: int = 0
    lookup: list[bytes] = field(default_factory=list)  # retried jobs that were not decided about later
    became: Counter[str] = field(default_factory=Counter)

    @property
    def key(self) -> Key:
        return key_of(self.facts)

    def record(self) -> DecisionRecord:
        """The public face."""
        kind, entry = self.entry.kind.partition(".")[2], self.entry
        about_job = entry.job is not None
        changed = self.facts.get("was", {})
        return DecisionRecord(
            action=kind,
            at=moment(self.begin_ms),
            until=moment(entry.at_ms),
            actor=entry.actor,
            reason=entry.reason or None,
            jobs=self.jobs if about_job else int(self.facts.get("jobs", 0)),
            job=id_text(entry.job) if entry.job is not None and self.jobs == 1 else None,
            edited=self.edited,
            query=self.facts.get("query"),
            operation=self.facts.get("operation"),
            said={name: self.facts.get(name) for name in _SAID if name in changed},
            became=dict(sorted(self.became.items())),
        )


class _Reader:
    """Gathers the lines of the audit log to decisions, newest first."""

    def __init__(self, queue: str | None, redaction: Redaction) -> None:
        self.queue, self.redaction = queue, redaction
        self.found: list[_Decision] = []  # by their last lines
        self._open: dict[object, _Decision] = {}
        self._decided_later: set[bytes] = set()

    def take(self, entry: Entry) -> None:
        """The next older line."""
        facts = facts_of(entry, self.redaction)
        if not facts or (self.queue is not None and facts["queue"] != self.queue):
            return
        if entry.job is None:
            self.found.append(_Decision(entry, facts, entry.at_ms))
            return
        operation = facts.get("operation")
        how = (operation, facts.get("query"), facts.get("delay_ms"))
        which = (entry.kind, entry.actor, entry.reason, how, key_of(facts))
        one = self._open.get(which)
        if one is None or (operation is None and one.begin_ms - entry.at_ms > NEAR_MS):
            one = self._open[which] = _Decision(entry, facts, entry.at_ms)
            self.found.append(one)
        one.begin_ms = min(one.begin_ms, entry.at_ms)
        one.jobs += 1
        one.edited += bool(facts.get("before") or facts.get("after"))
        if entry.kind == "job.retry":
            if entry.job in self._decided_later:
                one.became["died_again"] += 1
            else:
                one.lookup.append(entry.job)
        self._decided_later.add(entry.job)


async def decisions(
    store: Store,
    *,
    now_ms: int,
    since_ms: int = 0,
    queue: str | None = None,
    before: int | None = None,
) -> DecisionLog:
    """What was decided since then, by cause; a long log is read in parts (`before` = the cursor of the part before)."""
    reader, cursor, lines = _Reader(queue, await redaction_of(store)), None, 0
    async for page in pages_back(store, "audit", before):
        for entry in reversed(page):
            if entry.at_ms >= since_ms:
                reader.take(entry)
        lines += len(page)
        if page and page[0].at_ms < since_ms:
            break
        if page and lines >= MOST_LINES:
            cursor = page[0].seq
            break
    await _look_up(store, reader.found)
    by_cause: dict[Key, list[_Decision]] = {}
    for one in reader.found:
        by_cause.setdefault(one.key, []).append(one)
    told = [each for each in await known_causes(store, queue) if each.key in by_cause]
    known = {each.key: CauseRecord.of(*each, now_ms) for each in await veiled(store, told)}
    causes = tuple(_cause(key, found, known.get(key)) for key, found in by_cause.items())
    since = moment(since_ms) if since_ms else None
    return DecisionLog(since=since, until=moment(now_ms), causes=causes, cursor=cursor)


def facts_of(entry: Entry, redaction: Redaction) -> dict[str, Any]:
    """What a line says about a cause of dead jobs, without secrets; nothing if it is about something else."""
    if not entry.kind.startswith(("cause.", "job.retry", "job.discard")):
        return {}
    facts = AuditRecord.of(entry, redaction).data  # what another release wrote may be anything
    # A job that was not dead has no cause: one that was scheduled and is started now.
    whole = isinstance(facts, dict) and all(isinstance(facts.get(name), str) for name in ("cause", "queue", "task"))
    return facts if whole else {}


def key_of(facts: Mapping[str, Any]) -> Key:
    """The cause that a line is about."""
    return (facts["cause"], facts["queue"], facts["task"])


async def _look_up(store: Store, found: list[_Decision]) -> None:
    """Count what has become of retried jobs."""
    left = MOST_JOBS
    for one in found:
        ids, beyond = one.lookup[:left], len(one.lookup[left:])
        left -= len(ids)
        for start in range(0, len(ids), PAGE):
            views = await store.get(ids[start : start + PAGE])
            one.became.update(map(_became, views))
        if beyond:
            one.became["not_looked_up"] += beyond


def _became(view: JobView | None) -> str:
    if view is None:
        return "gone"
    return _BECAME.get(view.state, "running" if view.state is State.running else "waiting")


def _cause(key: Key, found: list[_Decision], known: CauseRecord | None) -> CauseDecisions:
    cause, queue, task = key
    error = next((one.facts["error"] for one in found if one.facts.get("error")), "")
    return CauseDecisions(
        cause=cause,
        queue=queue,
        task=task,
        error=known.error if known is not None else error,
        message=None if known is None else known.message,
        status=None if known is None else known.status,
        count=0 if known is None else known.count,
        decisions=tuple(one.record() for one in reversed(found)),
    )
