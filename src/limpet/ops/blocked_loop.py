"""Says which jobs block the event loops of live workers: nothing else runs in such a worker meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.jobs.blocked_loop import FIELD, BlockedLoop, Blocker
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.view import Finding, Inspection, JobView
from limpet.core.records.explanation import Reason
from limpet.core.text.duration import text_of_ms

LATELY_MS: Final = 3_600_000  # what was longer ago is no finding: it may have been mended
FIX: Final = "await an async client; asyncio.to_thread(call) for a library without one; or def instead of async def"


class Info(Struct, rename={"loop": FIELD}):
    """The part of what a session says about itself that is read here; agents say nothing of it."""

    loop: BlockedLoop = BlockedLoop()


_read = msgspec.json.Decoder(Info).decode


def blocked_loop(session: SessionView) -> BlockedLoop:
    """What a worker has said of its loop."""
    try:
        return _read(session.info).loop
    except msgspec.MsgspecError:
        return BlockedLoop()


def loop_words(session: SessionView, now_ms: int) -> str:
    """The state of a worker's loop, for a column of a table; empty when all is well."""
    loop = blocked_loop(session)
    if loop.now is not None:
        return f"blocked for {_for(loop.now, session, now_ms)} by {loop.now.task or 'code of the app'}"
    if session.silent_ms is not None:
        return f"silent for {text_of_ms(session.silent_ms)}"
    if not loop.tasks:
        return ""
    task, blocks = max(loop.tasks.items(), key=lambda each: each[1].longest_ms)
    count = sum(each.count for each in loop.tasks.values())
    return f"was blocked {count:,}×, up to {text_of_ms(blocks.longest_ms)} ({task})"


def blocked_findings(sessions: Iterable[SessionView], now_ms: int) -> Iterator[Finding]:
    """One finding for each task that has blocked a loop lately, and for each loop that is blocked now."""
    counts: dict[str, tuple[int, int]] = {}
    for session in sessions:
        loop = blocked_loop(session)
        if loop.now is not None:
            by = _by(loop.now)
            text = f"the loop of worker {session.session} is blocked for {_for(loop.now, session, now_ms)} by {by}"
            yield Finding("warning", "loop_blocked", text, FIX)
        for task, blocks in loop.tasks.items():
            if now_ms - blocks.last_at_ms < LATELY_MS:
                count, longest_ms = counts.get(task, (0, 0))
                counts[task] = (count + blocks.count, max(longest_ms, blocks.longest_ms))
    for task, (count, longest_ms) in sorted(counts.items()):
        times = "once" if count == 1 else f"{count:,} times"
        text = f"task {task} has blocked the loop of its worker {times}, for up to {text_of_ms(longest_ms)}: "
        yield Finding("warning", "blocking_task", f"{text}no other job ran there meanwhile", FIX)


def blocked_under(view: JobView, session: SessionView, now_ms: int) -> Iterator[Reason]:
    """That the loop of a running job's worker is blocked, by the job itself or by another one."""
    now = blocked_loop(session).now
    if now is None:
        return
    ms, mine = _for_ms(now, session, now_ms), now.job_id == id_text(view.id)
    who = "it" if mine else _by(now)
    text = f"{who} blocks the loop of its worker for {text_of_ms(ms)}, and no other job runs there"
    yield Reason("loop_blocked", f"{text}: {FIX}", None, {"for_ms": ms, "task": now.task, "job": now.job_id})


def blocked_before(standing: Inspection, sessions: Sequence[SessionView], now_ms: int) -> Iterator[Reason]:
    """That all workers which could run a waiting job have a blocked loop."""
    lane = standing.view.lane
    able = [each for each in sessions if each.serves.can(lane.queue, lane.task, lane.needs)]
    found = [(now, each) for each in able if (now := blocked_loop(each).now) is not None]
    if not found or len(found) < len(able):
        return
    tasks = sorted({now.task for now, _ in found if now.task is not None})
    ms = max(_for_ms(now, session, now_ms) for now, session in found)
    if len(found) == 1:
        text = f"the loop of the one worker that can run it is blocked for {text_of_ms(ms)} by {_by(found[0][0])}"
    else:
        by = f", by {', '.join(tasks)}" if tasks else ""
        text = f"the loops of all {len(found)} workers that can run it are blocked, for up to {text_of_ms(ms)}{by}"
    yield Reason("loop_blocked", text, None, {"for_ms": ms, "tasks": tasks, "workers": len(found)})


def _by(now: Blocker) -> str:
    return "code of the app" if now.task is None else f"job {now.job_id} of task {now.task}"


def _for_ms(now: Blocker, session: SessionView, now_ms: int) -> int:
    return now.for_ms + max(0, now_ms - session.beat_at_ms)


def _for(now: Blocker, session: SessionView, now_ms: int) -> str:
    return text_of_ms(_for_ms(now, session, now_ms))
