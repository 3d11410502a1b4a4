"""Decides what a transition does to a running job: one record, which every engine applies as it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from limpet.core.endings.transition import (
    Bury,
    Drop,
    Failure,
    Hold,
    Lose,
    Refuse,
    Release,
    RetryAfter,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.gate import FOREVER_MS, GateRule, Verdict, reported_cost
from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import State

READY: Final = State.ready.code
SCHEDULED: Final = State.scheduled.code
SUCCEEDED: Final = State.succeeded.code
DEAD: Final = State.dead.code
CANCELLED: Final = State.cancelled.code

COUNT: Final = "{count}"  # where a message has room for a number that only the store knows: the last of these
SESSION: Final = "{session}"  # the same for the name of a session

Held = Literal["same", "more", "none"]
Refund = Literal["nothing", "unsaid", "all"]
Record = Literal["always", "again", "never"]
Stopped = Literal["", "stopped", "stopped_lost"]
Otherwise = dict[str, Any]  # fields of an effect, by name, that are different then


class Effect(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a store does to one running job, in the step that compares its token.

    Fields without a value leave things as they are. What only that step can know has been answered beforehand: the
    first of the `if_` fields that is set and whose question is true says which fields are different then.
    It refers to nothing that refers back to it, and is made for every attempt: the collector need not know of it.
    """

    state: int  # the code of the state that the job is in afterwards
    word: str  # how the attempt ended, in its record
    record: Record = "always"  # whether that record is kept; "again": not of a first try
    # A job that still waits is due after this delay (FOREVER_MS: never by itself); None: when it was due before.
    delay_ms: int | None = None
    events: tuple[str, ...] | None = None  # a job that still waits now waits for exactly these events
    unspent: bool = False  # the attempt does not count
    unstarted: bool = False  # the job can still be cancelled for not being started in time
    held: Held = "same"  # how often the job was put off: one more, or counted from none
    lost: bool = False  # one more loss
    reason: str | None = None  # why the job is where it is now; None: the reason that it has; "": none
    own_reason: bool = False  # `reason` is only for a job that has none
    failure: Failure | None = None  # what the attempt's record tells; without one it tells the reason
    hides_failure: bool = False  # it tells the reason all the same
    blame: bool = False  # the job's reason, cause and type of error are those of the failure; without one it has none
    lane: Lane | None = None  # where it is from now on: of the same queue, task, priority and tenant
    result: bytes | None = None
    verdict: Verdict = "neutral"  # what breakers learn
    # What comes back: nothing; what budgets hold and the job did not say; all that was taken.
    refund: Refund = "nothing"
    gate: str = ""  # this gate admits no job
    gate_ms: int = 0  # for so long
    trips: bool = False  # and opens as a breaker does
    if_cancelling: Stopped = "stopped"  # the job was asked to stop: a name in STOPPED
    if_lost_too_often: Otherwise | None = None  # with this loss the job has as many as its policy allows
    if_foreign_gate: Otherwise | None = None  # `gate` is none of the job's own
    if_signalled: Otherwise | None = None  # one of `events` has been signalled

    def otherwise(self, fields: Otherwise | None) -> Effect:
        """The same with other values in these fields."""
        return replace(self, **fields) if fields else self


# A job that was asked to stop is cancelled however its attempt ends, but for a success.
_CANCELLED: Final[Otherwise] = {
    "state": CANCELLED,
    "word": "cancelled",
    "record": "always",
    "unspent": False,
    "held": "same",
    "reason": "cancelled",
    "own_reason": True,
    "blame": False,
}
STOPPED: Final[dict[Stopped, Otherwise]] = {
    "": {},
    "stopped": _CANCELLED,
    "stopped_lost": {**_CANCELLED, "unspent": True, "hides_failure": True},
}

SUCCESS: Final = Effect(SUCCEEDED, "succeeded", "again", blame=True, verdict="ok", if_cancelling="")


NO_RESULT: Final = (None, b"null")


def success(result: bytes | None) -> Effect:
    """The job has worked, with this result as JSON; null is none."""
    return SUCCESS if result in NO_RESULT else replace(SUCCESS, result=result)


def effect_of(transition: Transition) -> Effect:
    """What a store does when this was decided about a job."""
    effect = _EFFECTS.get(type(transition))
    if effect is None:
        raise TypeError(f"unknown transition {transition!r}")
    return effect(transition)


def _succeeded(succeed: Succeed) -> Effect:
    return success(succeed.result)


def _retried(retry: RetryAfter) -> Effect:
    return Effect(
        SCHEDULED if retry.delay_ms > 0 else READY,
        "retried",
        delay_ms=_bounded(retry.delay_ms),
        failure=retry.failure,
        blame=True,
        verdict=_verdict(retry.failure),
    )


def _buried(bury: Bury) -> Effect:
    verdict = _verdict(bury.failure)
    return Effect(DEAD, "dead", failure=bury.failure, blame=True, verdict=verdict, lane=bury.lane)


def _dropped(drop: Drop) -> Effect:
    return Effect(CANCELLED, "cancelled", reason=drop.reason, refund="unsaid")


_RELEASED: Final = Effect(READY, "released", unspent=True)
_UNSTARTED: Final = replace(_RELEASED, record="never", unstarted=True, refund="all")


def _released(release: Release) -> Effect:
    return _RELEASED if release.started else _UNSTARTED


def _snoozed(snooze: Snooze) -> Effect:
    return Effect(
        SCHEDULED,
        "snoozed",
        delay_ms=_bounded(snooze.delay_ms),
        unspent=True,
        held="more",
        reason=snooze.reason,
        refund="unsaid",
    )


def _suspended(suspend: Suspend) -> Effect:
    """Nothing is recorded: it got as far as this, so that it was not put off."""
    delay_ms = FOREVER_MS if suspend.delay_ms is None else _bounded(suspend.delay_ms)
    return Effect(
        SCHEDULED if delay_ms > 0 else READY,
        "suspended",
        "never",
        delay_ms=delay_ms,
        events=suspend.events,
        unspent=True,
        held="none",
        reason="",
        refund="unsaid",
        if_signalled={"state": READY, "delay_ms": 0, "events": ()},
    )


def _held(hold: Hold) -> Effect:
    """The gate is what the job waits for; one that holds only other jobs needs a wait beside it."""
    delay_ms = _bounded(hold.delay_ms)
    return Effect(
        READY,
        "held",
        unspent=True,
        held="more",
        reason=hold.reason,
        refund="unsaid",
        gate=hold.gate,
        gate_ms=delay_ms,
        trips=hold.trips,
        if_foreign_gate={"state": SCHEDULED, "delay_ms": delay_ms},
    )


def _refused(refuse: Refuse) -> Effect:
    """It has not begun, so all that was taken comes back; the record of the attempt tells who refused it, and why."""
    if refuse.lane is None:
        return _buried(Bury(refuse.id, refuse.token, refuse.failure))
    failure = replace(refuse.failure, cause=refuse.signature)
    reason = refuse.failure.message
    refused = replace(_UNSTARTED, word="refused", record="always", reason=reason, failure=failure)
    return replace(refused, lane=refuse.lane)


def _lost(lose: Lose) -> Effect:
    """Back to the front with one more loss; poison when it is proven guilty or was lost too often."""
    reason = lose.reason or "its worker died"
    lost = Effect(
        READY,
        "lost",
        unspent=True,
        lost=True,
        reason=reason,
        failure=Failure("lost", "limpet.LeaseLost", reason),
        if_cancelling="stopped_lost",
    )
    if lose.proven:
        return lost.otherwise(_poison(f"{reason}; proven alone in its process"))
    return replace(lost, if_lost_too_often=_poison(f"{reason}; lost {COUNT} times"))


def _poison(message: str) -> Otherwise:
    failure = Failure("lost", "limpet.Poison", message, cause="poison")
    return {"state": DEAD, "word": "dead", "blame": True, "failure": failure}


_EFFECTS: Final[dict[type, Callable[[Any], Effect]]] = {
    Succeed: _succeeded,
    RetryAfter: _retried,
    Bury: _buried,
    Drop: _dropped,
    Release: _released,
    Snooze: _snoozed,
    Suspend: _suspended,
    Hold: _held,
    Refuse: _refused,
    Lose: _lost,
}


def _bounded(delay_ms: int) -> int:
    """A time that ends, however long it is: FOREVER_MS is one that does not."""
    return min(delay_ms, FOREVER_MS - 1)


def _verdict(failure: Failure) -> Verdict:
    """What a failure says about the health of what the job depends on."""
    return "failed" if failure.kind in ("transient", "timeout") else "neutral"


def counted(failure: Failure, count: int) -> Failure:
    """The failure with this number where its message has room for one."""
    before, place, after = failure.message.rpartition(COUNT)
    return replace(failure, message=f"{before}{count}{after}") if place else failure


def actual_cost(effect: Effect, rule: GateRule, spent: Mapping[str, int]) -> int | None:
    """What an attempt that ends like this cost at a gate, if that is not what it was charged there."""
    if effect.refund == "all":
        return 0
    return reported_cost(rule, spent, unfinished=effect.refund == "unsaid")


# -- what stores do without being asked by the holder of a lease

UNDECODABLE: Final = Failure(
    "permanent", "limpet.Undecodable", "the stored record cannot be decoded; its bytes are kept"
)


def silent(session: str) -> Effect:
    """The session that held the job has not beaten for longer than its leases last."""
    return effect_of(Lose(b"", 0, reason=f"session {session} went silent"))


OVERDUE: Final = effect_of(Lose(b"", 0, reason="the lease passed its hard deadline"))
LEFT: Final = _RELEASED  # the session that held the job was closed in order
# The job is cancelled by force, for the reason that was noted with it. Its handler may go on and spend more.
FORCED: Final = Effect(CANCELLED, "cancelled", reason="cancelled", own_reason=True, if_cancelling="")
UNREADABLE: Final = effect_of(Bury(b"", 0, UNDECODABLE))

# -- for engines whose steps are not written in Python: the values of fields that are left out, and effects by name

BLANK: Final = {field.name: field.default for field in fields(Effect) if field.default not in (NODEFAULT, None)}
MADE: Final[dict[str, Effect]] = {
    "success": SUCCESS,
    "silent": silent(SESSION),
    "overdue": OVERDUE,
    "left": LEFT,
    "forced": FORCED,
    "unreadable": UNREADABLE,
}
