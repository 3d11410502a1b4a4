"""Puts the books of a store right by its records, in the name of a person, and says where the two differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from limpet.core.jobs.repair import Difference
from limpet.core.jobs.view import Counts, Finding
from limpet.core.records.log import DifferenceRecord, RepairReport
from limpet.ops.bulk import Decision
from limpet.stores.asking import examined
from limpet.stores.base import Store

SMALL: Final = 20_000  # stored jobs that doctor compares with the counters: a second or two of reading, on Redis
FIX: Final = "limpet doctor --repair"
_SHOWN: Final = 3  # differences that one finding names
_TOLD: Final = frozenset({"slots", "probe", "total"})  # doctor has findings of its own for these


async def repair(store: Store, decision: Decision, *, dry_run: bool, now_ms: int | None) -> RepairReport:
    """Compare, or put right; what is changed is in the audit log, and that it began is there before the first step."""
    engine = examined(store)
    if dry_run:
        return _report(await engine.repair(dry_run=True, now_ms=now_ms), dry_run=True)
    await store.append([decision.entry(now_ms)])
    found = await engine.repair(dry_run=False, now_ms=now_ms)
    for difference in found:
        facts = {"name": difference.what, "found": difference.found, "right": difference.right}
        about = Decision(f"repair.{difference.kind}", decision.actor, decision.reason, facts)
        named = [about.entry(now_ms, id) for id in difference.jobs]
        await store.append(named or [about.entry(now_ms)])
    return _report(found, dry_run=False)


async def books(store: Store, counts: Counts) -> list[Finding]:
    """Whether counters and indexes say what the records say; a large store is not read whole for that."""
    stored = sum(counts.now.values())
    if stored > SMALL:
        text = f"the store holds {stored:,} jobs, more than {SMALL:,}: its counters were not compared with its records"
        return [Finding("ok", "books", text, f"{FIX} --dry-run compares them, whatever the size")]
    differing = await examined(store).repair(dry_run=True)
    found = [DifferenceRecord.of(each) for each in differing if each.kind not in _TOLD]
    if not found:
        return [Finding("ok", "books", f"counters and indexes say what the {stored:,} stored records say")]
    words = "; ".join(words_of(each) for each in found[:_SHOWN])
    beyond = len(found) - _SHOWN
    more = f"; and {beyond} more difference{'s' if beyond > 1 else ''}" if beyond > 0 else ""
    return [Finding("error", "books", f"the store differs from its records: {words}{more}", FIX)]


def _report(found: Sequence[Difference], *, dry_run: bool) -> RepairReport:
    return RepairReport(dry_run=dry_run, differences=tuple(map(DifferenceRecord.of, found)))


def words_of(difference: DifferenceRecord) -> str:
    """One difference, for people."""
    found, right, what = difference.found, difference.right, difference.what
    match difference.kind:
        case "count":
            return f"{what}: {found} counted, {right} stored"
        case "total":
            return f"jobs that count as {what}: {found}, and {right} make the sum hold"
        case "slots":
            return f"{what} counts {found} slots as taken, and running jobs hold {right}"
        case "probe":
            return f"{what} waits for a probe that no job is"
        case "vanished" | "unreadable":
            more = ", …" if found > len(difference.jobs) else ""
            return f"{what}: {found} ({', '.join(difference.jobs)}{more})"
    return f"{what}: {found}"
