"""Decides where a job goes whose arguments do not fit the worker that claimed it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.endings.transition import Bury, Failure, Refuse
from limpet.core.jobs.job import Lane, stable_hash
from limpet.core.jobs.lease import Claimed, SessionView
from limpet.core.jobs.view import AttemptView

LONGEST_MS: Final = 86_400_000  # from the first refusal on: a deployment that takes longer has failed
REFUSED: Final = "refused"  # how such an attempt ended, in its record
UNFIT: Final = "limpet.Unfit"

_CODE: Final = re.compile(r"code:[0-9a-f]{16}")


class About(Struct, frozen=True):
    """What a worker says of the code that it runs: its version for people, and the signature of each task, by name."""

    code_version: str = ""
    signatures: dict[str, str] = {}


def about(session: SessionView) -> About:
    """What a session says of its code; nothing, if it is an agent's or another release's."""
    try:
        return msgspec.json.decode(session.info, type=About)
    except msgspec.MsgspecError:
        return About()


def code_of(signatures: Mapping[str, str]) -> str:
    """The capability that all workers with exactly these tasks and signatures have, and no others."""
    return f"code:{stable_hash(('code', sorted(signatures.items()))) & (1 << 64) - 1:016x}"


def is_code(capability: str) -> bool:
    """Whether it is a capability of that kind, and none that a person has named."""
    return _CODE.fullmatch(capability) is not None


def code_needed(lane: Lane) -> str | None:
    """The code that jobs of a lane wait for since other code has refused them."""
    return next(filter(is_code, lane.needs), None)


def for_any_code(lane: Lane) -> Lane:
    """The same lane for workers with any code."""
    return lane if code_needed(lane) is None else replace(lane, needs=tuple(n for n in lane.needs if not is_code(n)))


def place(job: Claimed, refuse: Refuse, before: Sequence[AttemptView], live: Iterable[SessionView]) -> Refuse | Bury:
    """To other workers, as long as there are live ones whose signature has not refused the job; else it is dead.

    `before` are its recorded attempts. They do not count for a job that waits for no code: it is new, or a person has
    had it retried.
    """
    lane = for_any_code(job.lane)
    refusals = [] if lane is job.lane else _refusals(before)
    since_ms = min((each.finished_at_ms for each in refusals), default=job.claimed_at_ms)
    by = {refuse.signature, *(each.cause for each in refusals)}
    code = None if job.claimed_at_ms - since_ms >= LONGEST_MS else _other_code(lane, by, live)
    if code is None:
        return Bury(job.id, job.token, refuse.failure, None if lane is job.lane else lane)
    return replace(refuse, lane=replace(lane, needs=tuple(sorted((*lane.needs, code)))))


def left_alone(job: Claimed, before: Sequence[AttemptView]) -> Refuse:
    """What to place of a job that waits for code which no live worker has: its last refusal."""
    refusals = _refusals(before)
    last = refusals[-1] if refusals else None
    message = "no live worker has the code that it waited for"
    if last is None:
        return Refuse(job.id, job.token, Failure("permanent", UNFIT, message, cause=UNFIT), "")
    text = last.message if last.message.endswith(message) else f"{last.message}; {message}"
    return Refuse(job.id, job.token, Failure("permanent", last.type, text, last.traceback, UNFIT), last.cause)


def _refusals(before: Sequence[AttemptView]) -> list[AttemptView]:
    """The refusals since the job was last dead."""
    died = max((at for at, each in enumerate(before, 1) if each.outcome == "dead"), default=0)
    return [each for each in before[died:] if each.outcome == REFUSED]


def _other_code(lane: Lane, refused_by: set[str], live: Iterable[SessionView]) -> str | None:
    """The code of live workers that could run the job and have not refused it: that of those which started last."""
    found = [
        (session.started_at_ms, code)
        for session in live
        if session.serves.can(lane.queue, lane.task, lane.needs)
        and about(session).signatures.get(lane.task, "") not in ("", *refused_by)
        and (code := next(filter(is_code, session.serves.capabilities), None)) is not None
    ]
    return max(found)[1] if found else None
