"""Runs the desk of the dead letters: lists causes, and keeps what people say of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from limpet.core.endings.review import STATUSES, CauseStatus, Review
from limpet.core.errors import InvalidOption, UsageError
from limpet.core.jobs.view import Entry
from limpet.core.records.cause import CauseKey, CauseRecord
from limpet.core.records.decision import DecisionLog
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration, instant_ms, to_ms
from limpet.core.text.storable import REASON_CHARS, checked_text
from limpet.ops.bulk import Decision
from limpet.ops.causes import MOST_CAUSES, Known, hours_of, known_causes, named_cause, veiled
from limpet.ops.decisions import decisions
from limpet.stores.base import Store

NAME_CHARS: Final = 200  # of an assignee: a name, an address, a team

Named = str | CauseKey  # the fingerprint of a cause or its beginning; with queue and task where several have it


class CauseChanged(UsageError):
    """Another person has said something of the cause since it was looked at."""

    code = "cause_changed"


class Desk:
    """Causes and their status, in the name of `actor`; what is said of one is versioned and leaves an audit line.

    >>> await operator.desk.assign("9f2c41", "ada", reason="her service")      # doctest: +SKIP
    """

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._clock = clock

    async def causes(
        self,
        queue: str | None = None,
        *,
        status: Collection[CauseStatus] | None = None,
        assignee: str | None = None,
        limit: int = 50,
        since_ms: int = 0,
        hours: bool = False,
    ) -> list[CauseRecord]:
        """Dead jobs grouped by what killed them, most frequent first; those that killed one since `since_ms`.

        With `status` also reviewed causes of that status that have no dead job now. `hours` counts deaths by the hour.
        """
        queue = None if queue is None else checked_text(queue, what="queue")
        wanted = None if status is None else checked_statuses(status)
        picks = bool(since_ms or assignee or wanted)
        now_ms = await self.now_ms()
        found = []
        for each in await known_causes(self.store, queue, MOST_CAUSES if picks else limit):
            record = _record(each, now_ms)
            if (
                (record.count if wanted is None else record.status in wanted)
                and (assignee is None or record.assignee == assignee)
                and instant_ms(record.last_at) >= since_ms
            ):
                found.append(each)
        found = await veiled(self.store, found[:limit])
        counted = await hours_of(self.store, [each.key for each in found], now_ms) if hours and found else {}
        return [CauseRecord.of(*each, now_ms, counted.get(each.key)) for each in found]

    async def cause(self, which: Named) -> CauseRecord:
        """One cause, with its deaths by the hour."""
        found, now_ms = await named_cause(self.store, key_of(which)), await self.now_ms()
        hours = await hours_of(self.store, [found.key], now_ms)
        return CauseRecord.of(*found, now_ms, hours[found.key])

    async def decisions(self, queue: str | None = None, *, since_ms: int = 0, before: int | None = None) -> DecisionLog:
        """What was decided about dead jobs since then, by cause, and what became of them: from the audit log.

        A long log is read in parts: `before` is the cursor that the part before has answered.
        """
        queue = None if queue is None else checked_text(queue, what="queue")
        return await decisions(self.store, now_ms=await self.now_ms(), since_ms=since_ms, queue=queue, before=before)

    async def acknowledge(
        self, which: Named, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """A person has seen it and takes care of it; an escalation ends."""
        return await self._say(which, "acknowledge", _as("acknowledged"), reason, version, dry_run)

    async def snooze(
        self,
        which: Named,
        until: Duration | datetime,
        *,
        reason: str = "",
        version: int | None = None,
        dry_run: bool = False,
    ) -> CauseRecord:
        """Leave it alone for so long or until an instant; then it is open again."""
        now_ms = await self.now_ms()
        until_ms = instant_ms(until, what="until") if isinstance(until, datetime) else now_ms + to_ms(until, what="for")
        if until_ms <= now_ms:
            raise InvalidOption(f"until={until!s} has passed", fix="name an instant to come, or a time such as 2h")
        return await self._say(which, "snooze", _as("snoozed", until_ms), reason, version, dry_run)

    async def resolve(
        self, which: Named, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """It is mended; a job that dies of it after this makes it regressed."""
        return await self._say(which, "resolve", _as("resolved"), reason, version, dry_run)

    async def reopen(
        self, which: Named, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """It waits for a person again."""
        return await self._say(which, "reopen", _as("open"), reason, version, dry_run)

    async def assign(
        self, which: Named, assignee: str | None, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """Say whose it is; None: no person's."""
        name = "" if assignee is None else checked_person(assignee, what="assignee")
        return await self._say(which, "assign", lambda one, _: replace(one, assignee=name), reason, version, dry_run)

    async def note(
        self, which: Named, text: str, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """Keep a note with it, in place of the one before, which stays in the audit log; an empty one removes it."""
        if len(checked_text(text, what="note")) > REASON_CHARS:
            raise InvalidOption(
                f"the note has {len(text):,} characters, and {REASON_CHARS:,} are kept",
                fix="keep it elsewhere, link it",
            )
        return await self._say(which, "note", lambda one, _: replace(one, note=text), reason, version, dry_run)

    async def escalate(
        self, which: Named, to: str, *, reason: str = "", version: int | None = None, dry_run: bool = False
    ) -> CauseRecord:
        """Hand it over to a person or a team who must look: it is theirs, waits again, and the event log says so."""
        name = checked_person(to, what="to")

        def change(one: Review, now_ms: int) -> Review:
            said = one if one.status == "open" else _as("open")(one, now_ms)
            return replace(said, assignee=name, escalated_at_ms=now_ms, escalated_by=self.actor)

        return await self._say(which, "escalate", change, reason, version, dry_run)

    async def now_ms(self) -> int:
        """The instant by which snoozes end: by the engine's clock."""
        return await self.store.now() if self._clock is None else self._clock()

    async def _say(
        self,
        which: Named,
        verb: str,
        change: Callable[[Review, int], Review],
        reason: str,
        version: int | None,
        dry_run: bool,
    ) -> CauseRecord:
        """Change the review over the version that was read, so that two people do not undo what the other said."""
        key, now_ms = key_of(which), await self.now_ms()
        decision = Decision(f"cause.{verb}", self.actor, reason)
        while True:
            found = await named_cause(self.store, key)
            if version not in (None, found.version):
                raise _changed(found)
            review = change(found.review.of(found.view), now_ms)
            if verb not in ("assign", "note"):  # which say nothing of the deaths until now
                last_ms = found.review.last_ms if found.view is None else found.view.last_at_ms
                review = replace(review, at_ms=now_ms, by=self.actor, last_ms=last_ms)
            if dry_run:
                return CauseRecord.of(found.view, review, found.version, now_ms)
            kept = await self.store.put_control(review.control(), expect=found.version)
            if kept is not None:
                break
        before, record = _record(found, now_ms), CauseRecord.of(found.view, review, kept.version, now_ms)
        entries = [decision.entry(now_ms, None, **_facts(before, record))]
        if verb == "escalate":
            entries.append(_event(entries[0]))
        await self.store.append(entries)
        return record


def key_of(which: Named) -> CauseKey:
    """The cause that is meant, as a whole."""
    key = which if isinstance(which, CauseKey) else CauseKey(which)
    for what, text in zip(("cause", "queue", "task"), key, strict=True):
        if text is not None:
            checked_text(text, what=what)
    return key


def checked_statuses(statuses: Collection[str]) -> frozenset[str]:
    """The statuses that are meant."""
    if isinstance(statuses, str):
        raise InvalidOption(f"status={statuses!r} is not a list", fix="pass status=[...]")
    for each in statuses:
        if each not in STATUSES:
            raise InvalidOption(f"{each!r} is not the status of a cause", fix=did_you_mean(str(each), STATUSES))
    return frozenset(statuses)


def checked_person(name: str, *, what: str) -> str:
    """A person or a team: one short line."""
    if isinstance(name, str) and len(name.strip()) > 0 and len(name) <= NAME_CHARS and name.isprintable():
        return checked_text(name.strip(), what=what)
    raise InvalidOption(
        f"{what}={name!r:.80} names no person", fix=f"a name, an address or a team; {NAME_CHARS} letters"
    )


def _as(status: CauseStatus, until_ms: int = 0) -> Callable[[Review, int], Review]:
    """What sets the status; an escalation ends when a person has taken it or it is mended."""

    def change(one: Review, _: int) -> Review:
        if status in ("acknowledged", "resolved"):
            one = replace(one, escalated_at_ms=None, escalated_by="")
        return replace(one, status=status, until_ms=until_ms)

    return change


def _record(found: Known, now_ms: int) -> CauseRecord:
    return CauseRecord.of(*found, now_ms)


def _changed(found: Known) -> CauseChanged:
    review = found.review
    return CauseChanged(
        f"the cause {review.cause} of {review.task} was changed meanwhile, and is at version {found.version}",
        fix="look at it again, and decide then",
    )


def _facts(before: CauseRecord, after: CauseRecord) -> dict[str, object]:
    """What the audit log keeps of what was said: which cause, and what has changed."""
    facts = {
        "cause": after.cause,
        "queue": after.queue,
        "task": after.task,
        "error": after.error,
        "jobs": after.count,
        "status": after.status,
    }
    was, now = before.to_dict(), after.to_dict()
    changed = [name for name in ("status", "until", "assignee", "note") if was[name] != now[name]]
    return facts | {name: now[name] for name in changed} | {"was": {name: was[name] for name in changed}}


def _event(entry: Entry) -> Entry:
    """The same for the event log, which is followed by people who are called."""
    return replace(entry, log="event", kind="cause.escalated")
