"""Runs the tools: each asks one verb of the operator API, and answers in few words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import msgspec

from limpet.client.client import Asked
from limpet.client.options import CallOptions
from limpet.core.errors import InvalidOption
from limpet.core.jobs.lease import Serves
from limpet.core.records.claim import ClaimRecord
from limpet.core.records.lease import LeaseAnswer
from limpet.mcp import tools, words
from limpet.mcp.desk import Desk, Report
from limpet.mcp.tools import Handler, Said
from limpet.ops.agent_endings import Completed, Released, failing
from limpet.ops.held_limits import held_limits, held_text
from limpet.ops.lease_answers import insisted

MOST_WAIT_S: Final = 300.0
MOST_LISTED: Final = 100
REPORT_S: Final = 5.0  # between signs of life of a claim that waits


async def enqueue(desk: Desk, asked: tools.Enqueue, report: Report) -> Said:
    """Store one job."""
    options = {
        name: value
        for name in ("priority", "needs", "after", "unique", "delay")
        if (value := getattr(asked, name)) is not None
    }
    if isinstance(priority := options.get("priority"), str) and priority.isdigit():
        options["priority"] = int(priority)
    (handle,) = await desk.client.enqueue_asked([Asked(asked.task, asked.args, cast("CallOptions", options))])
    text = f"job {handle.id} {'was there already' if handle.existing else 'stored'}"
    return Said(text, {"id": handle.id, "existing": handle.existing})


async def claim(desk: Desk, asked: tools.Claim, report: Report) -> Said:
    """Lease one job; a call that is cancelled holds nothing."""
    if not 0 <= asked.wait_s <= MOST_WAIT_S:
        raise InvalidOption(
            f"wait_s={asked.wait_s} is out of bounds", fix=f"wait at most {MOST_WAIT_S:.0f} s, and again"
        )
    serves = Serves(_names(asked.queues), _names(asked.tasks), tuple(asked.can))
    over = asyncio.Event()
    claiming = asyncio.ensure_future(
        desk.agents.claim(
            asked.agent,
            serves,
            lease_ms=_ms(asked.lease_s),
            wait_ms=round(asked.wait_s * 1000),
            key=asked.key,
            over=over,
        )
    )
    try:
        await _told(claiming, asked.wait_s, report)
    except asyncio.CancelledError:
        over.set()
        with anyio.CancelScope(shield=True):  # what it has got by now goes back, unspent
            await asyncio.wait([claiming])
        raise
    found = claiming.result()
    if not found:
        now_ms = await desk.store.now()
        slow = held_text(await held_limits(desk.store, now_ms), now_ms)
        text = "nothing to claim; wait_s waits for a job, or end here"
        return Said("\n".join(filter(None, (text, slow))), {"job": None})
    return Said(words.claim_text(found[0]), {"job": found[0].to_dict()})


async def _told(claiming: asyncio.Future[list[ClaimRecord]], wait_s: float, report: Report) -> None:
    """Wait for the claim, and say that it still waits."""
    began_s = time.monotonic()
    while True:
        done, _ = await asyncio.wait([claiming], timeout=REPORT_S)
        if done:
            return
        await report(time.monotonic() - began_s, wait_s, "waiting for a job")


async def heartbeat(desk: Desk, asked: tools.Heartbeat, report: Report) -> Said:
    """Keep a lease."""
    answer = insisted(await desk.agents.heartbeat(asked.id, asked.token, lease_ms=_ms(asked.lease_s)))
    return _lease(answer)


async def checkpoint(desk: Desk, asked: tools.Checkpoint, report: Report) -> Said:
    """Keep a value."""
    return _lease(insisted(await desk.agents.checkpoint(asked.id, asked.token, asked.value)))


async def complete(desk: Desk, asked: tools.Complete, report: Report) -> Said:
    """End a job well."""
    result = None if asked.result is None else msgspec.json.encode(asked.result)
    return await _ended(desk, Completed(id=asked.id, token=asked.token, spent=asked.spent, result=result))


async def fail(desk: Desk, asked: tools.Fail, report: Report) -> Said:
    """End an attempt badly, or ask a person."""
    later_ms = _ms(asked.retry_after_s)
    end = failing(asked.id, asked.token, asked.message, kind=asked.kind, retry_after_ms=later_ms, spent=asked.spent)
    return await _ended(desk, end)


async def release(desk: Desk, asked: tools.Release, report: Report) -> Said:
    """Give a job back."""
    return await _ended(desk, Released(id=asked.id, token=asked.token, spent=asked.spent, reason=asked.reason))


async def jobs(desk: Desk, asked: tools.Jobs, report: Report) -> Said:
    """A page of jobs."""
    page = await desk.operator.jobs(asked.query, limit=_bounded(asked.limit), cursor=asked.cursor)
    return Said(words.jobs_text(page.jobs, page.cursor), page.to_dict())


async def job(desk: Desk, asked: tools.Job, report: Report) -> Said:
    """A whole job."""
    found = await desk.operator.job(asked.id)
    return Said(words.detail_text(found, full=asked.full), found.to_dict())


async def explain(desk: Desk, asked: tools.Id, report: Report) -> Said:
    """Why it does not run."""
    found = await desk.operator.explain(asked.id)
    return Said(words.explanation_text(found), found.to_dict())


async def dead(desk: Desk, asked: tools.Dead, report: Report) -> Said:
    """Causes, those with most jobs first."""
    found = await desk.operator.causes(asked.queue, limit=_bounded(asked.limit))
    rows = [
        {"cause": one.cause, "jobs": one.count, "status": one.status, "task": one.task, "error": one.error}
        for one in found
    ]
    text = "\n".join(
        f"{line} {words.one_line(one.message or '')}" for line, one in zip(words.table(rows), found, strict=True)
    )
    return Said(text or "no job is dead", {"causes": [one.to_dict() for one in found]})


async def replay(desk: Desk, asked: tools.Bulk, report: Report) -> Said:
    """Run dead jobs again."""
    return await _bulk(desk, "retry", asked, report)


async def discard(desk: Desk, asked: tools.Bulk, report: Report) -> Said:
    """Remove dead jobs."""
    return await _bulk(desk, "discard", asked, report)


async def queue(desk: Desk, asked: tools.Queue, report: Report) -> Said:
    """One queue, or all."""
    operator = desk.operator
    found = await operator.queues() if asked.name is None else [await operator.queue(asked.name)]
    shapes = [one.to_dict() for one in found]
    return Said("\n".join(words.table(shapes)) or "no queues", {"queues": shapes})


async def stats(desk: Desk, asked: tools.Nothing, report: Report) -> Said:
    """Jobs by state."""
    shape = (await desk.operator.stats()).to_dict()
    counts = {name: value for name, value in shape.items() if isinstance(value, int)}
    return Said(", ".join(f"{value:,} {name}" for name, value in counts.items()), shape)


async def _bulk(desk: Desk, verb: str, asked: tools.Bulk, report: Report) -> Said:
    progress: list[tuple[int, int]] = []
    operator = desk.operator
    act = operator.retry if verb == "retry" else operator.discard
    query = f"state:dead {asked.query}"
    done = await act(
        query,
        reason=asked.reason,
        dry_run=asked.dry_run,
        progress=lambda count, total: progress.append((count, total)),
    )
    for count, total in progress:
        await report(count, total, verb)
    shape = done.to_dict()
    if asked.dry_run:
        return Said(f"{shape['matched']:,} dead jobs match; nothing was changed: dry_run false does it", shape)
    return Said(f"{shape['done']:,} of {shape['matched']:,} jobs: {verb} done", shape)


async def _ended(desk: Desk, end: Any) -> Said:
    (answer,) = await desk.agents.settle([end])
    return _lease(insisted(answer))


def _lease(answer: LeaseAnswer) -> Said:
    return Said(answer.text, answer.to_dict())


def _names(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _bounded(limit: int) -> int:
    return max(1, min(MOST_LISTED, limit))


HANDLERS: Final[Mapping[str, Handler]] = {
    each.__name__: each
    for each in (
        *(enqueue, claim, heartbeat, checkpoint, complete, fail, release, jobs),
        *(job, explain, dead, replay, discard, queue, stats),
    )
}
