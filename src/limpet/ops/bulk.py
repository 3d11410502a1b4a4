"""Runs one action over many jobs: counted first, in chunks, with progress, every decision logged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from limpet.core.jobs.view import Entry
from limpet.core.text.storable import checked_text
from limpet.ops.select import PAGE
from limpet.stores.base import Store

Progress = Callable[[int, int], None]  # jobs done, jobs in all
Act = Callable[[Sequence[bytes]], Awaitable[Sequence[str]]]  # one chunk → one answer per id
Facts = Callable[[bytes], Mapping[str, object]]  # what the log keeps of one job beside the answer


@dataclass(frozen=True)
class Decision:
    """Who does what, and why: what the audit log keeps of an action."""

    kind: str  # job.cancel, queue.pause, …
    actor: str
    reason: str = ""
    data: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_text(self.actor, what="actor")
        checked_text(self.reason, what="reason")

    def entry(self, at_ms: int | None, job: bytes | None = None, **more: object) -> Entry:
        """One line for the audit log."""
        now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
        return Entry(
            "audit", now_ms, self.kind, self.actor, job, self.reason, msgspec.json.encode({**self.data, **more})
        )


async def run_bulk(
    store: Store,
    decision: Decision,
    ids: Sequence[bytes],
    act: Act,
    *,
    changed: frozenset[str],
    now_ms: int | None = None,
    progress: Progress | None = None,
    facts: Facts | None = None,
) -> tuple[int, Counter[str]]:
    """Act chunk by chunk; a chunk's log lines follow it at once, so a killed run is logged as far as it got."""
    answers: Counter[str] = Counter()
    for start in range(0, len(ids), PAGE):
        chunk = ids[start : start + PAGE]
        words = await act(chunk)
        answers.update(words)
        entries = [
            decision.entry(now_ms, id, answer=word, **(facts(id) if facts is not None else {}))
            for id, word in zip(chunk, words, strict=True)
            if word in changed
        ]
        if entries:
            await store.append(entries)
        if progress is not None:
            progress(min(start + PAGE, len(ids)), len(ids))
    return sum(count for word, count in answers.items() if word in changed), answers
