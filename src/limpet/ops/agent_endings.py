"""Decides what the end that an agent reports means: an outcome, as a worker's handler would have had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, Self, get_args

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.endings.failure import MESSAGE_CHARS, NAME_CHARS, TRACEBACK_BYTES, cause_of
from limpet.core.endings.outcome import HandedBack, Limited, Outcome, Raised, Returned, Suspended
from limpet.core.endings.transition import Failure
from limpet.core.errors import InvalidOption, PayloadTooLarge
from limpet.core.flows.question import MOST, Question, number_of, questions_of
from limpet.core.flows.steps import ANSWER
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.view import JobView
from limpet.core.text.storable import storable

Spent = Mapping[str, object]  # amounts by unit

UNNAMED: Final = "agent"  # the type of an error whose agent gave none

FailureKind = Literal["transient", "permanent", "rate-limited", "spent"]
FailKind = Literal["transient", "permanent", "rate-limited", "spent", "needs-human"]
FAIL_KINDS: Final = get_args(FailKind)


class _End(Struct, frozen=True, kw_only=True):
    """The job, its token, and what it has really cost, such as {"tokens": 1834, "usd": 0.02}."""

    id: str
    token: int
    spent: Spent | None = None

    @property
    def why(self) -> str:
        """What the audit log says of it."""
        return ""

    def notes(self, view: JobView, agent: str) -> tuple[Note, ...]:
        """What is kept with the job before it ends."""
        return ()


class Completed(_End, frozen=True, kw_only=True):
    """The job is done; `result` is JSON, None stands for null."""

    event = "agent.complete"

    result: bytes | None = None

    def outcome(self, view: JobView) -> Outcome:
        """What happened, for a job of that policy."""
        if self.result is not None and len(self.result) > view.policy.max_result_bytes:
            raise PayloadTooLarge(
                f"the result is {len(self.result):,} bytes, over the limit of {view.policy.max_result_bytes:,}",
                fix="store it elsewhere and return where it is",
            )
        return Returned(self.result)


class Failed(_End, frozen=True, kw_only=True):
    """The attempt failed: transient is retried, permanent dies, rate-limited and spent hold the key for all."""

    event = "agent.fail"

    message: str
    kind: FailureKind = "transient"
    retry_after_ms: int | None = None
    type: str = UNNAMED  # of the error
    traceback: str = ""

    def masked(self, text: Callable[[str], str]) -> Self:
        """The same, with its words as they may be shown."""
        return replace(self, message=text(self.message), traceback=text(self.traceback))

    @property
    def why(self) -> str:
        return storable(self.message)

    def outcome(self, view: JobView) -> Outcome:
        """What happened; failures of one task, type and message share a cause."""
        message, name = storable(self.message, MESSAGE_CHARS), storable(self.type, NAME_CHARS)
        told = storable(self.traceback, len(self.traceback)).encode()[-TRACEBACK_BYTES:].decode(errors="ignore")
        if self.kind == "rate-limited" or self.kind == "spent":
            kind: Literal["rate_limited", "spent"] = "spent" if self.kind == "spent" else "rate_limited"
            known = Failure(kind, name, message, told, cause=kind) if told or self.type != UNNAMED else None
            return Limited(self.retry_after_ms, None, message, known, spent=self.kind == "spent")
        cause = cause_of(name, view.lane.task, self.kind, message=message)
        return Raised(Failure(self.kind, name, message, told, cause), self.retry_after_ms)


class Released(_End, frozen=True, kw_only=True):
    """The job goes back, unspent, for someone else."""

    event = "agent.release"

    reason: str = ""

    def masked(self, text: Callable[[str], str]) -> Self:
        """The same, with its words as they may be shown."""
        return replace(self, reason=text(self.reason))

    @property
    def why(self) -> str:
        return storable(self.reason)

    def outcome(self, view: JobView) -> Outcome:
        """What happened."""
        return HandedBack(started=True)


class Blocked(_End, frozen=True, kw_only=True):
    """The job waits until a person answers a question, or until the time is over; no attempt is spent."""

    event = "agent.block"

    question: str
    timeout_ms: int | None = None  # None: as long as it takes

    def masked(self, text: Callable[[str], str]) -> Self:
        """The same, with its words as they may be shown."""
        return replace(self, question=text(self.question))

    @property
    def why(self) -> str:
        return storable(self.question)

    def notes(self, view: JobView, agent: str) -> tuple[Note, ...]:
        """The question."""
        return (Question.of(self.question, agent).note(_answer_of(view)),)

    def outcome(self, view: JobView) -> Outcome:
        """What happened."""
        return Suspended(self.timeout_ms, (_answer_of(view),))


def _answer_of(view: JobView) -> str:
    """The event that answers the next question of a job: each has one of its own, since the first of a name stands."""
    before = max(map(number_of, questions_of(view.notes)), default=0)
    if before >= MOST:
        raise InvalidOption(
            f"agents have asked {MOST} questions about this job", fix="fail it: a person has to look at it as a whole"
        )
    return f"{ANSWER}{before + 1}"


Ending = Completed | Failed | Released | Blocked


def failing(
    id: str,
    token: int,
    message: str,
    *,
    kind: FailKind = "transient",
    retry_after_ms: int | None = None,
    timeout_ms: int | None = None,
    type: str = UNNAMED,
    traceback: str = "",
    spent: Spent | None = None,
) -> Failed | Blocked:
    """The end of an attempt that failed: what needs a person waits for one, and the message is the question."""
    if kind == "needs-human":
        if retry_after_ms is not None:
            raise InvalidOption(
                "retry-after does nothing for needs-human: the job continues when a person answers",
                fix="to bound the wait, give a timeout",
            )
        return Blocked(id=id, token=token, question=message, timeout_ms=timeout_ms, spent=spent)
    if timeout_ms is not None:
        raise InvalidOption(
            f"a timeout does nothing for {kind}: it bounds the wait for an answer",
            fix="leave it out, or fail with needs-human",
        )
    return Failed(
        id=id,
        token=token,
        message=message,
        kind=kind,
        retry_after_ms=retry_after_ms,
        type=type,
        traceback=traceback,
        spent=spent,
    )


def claimed_of(view: JobView) -> Claimed:
    """A running job as its claim had handed it out, but for what its parents left."""
    return Claimed(
        id=view.id,
        token=view.token or 0,
        attempt=view.attempt,
        lost=view.lost,
        lane=view.lane,
        policy=view.policy,
        args=view.args,
        enqueued_at_ms=view.enqueued_at_ms,
        due_at_ms=view.due_at_ms,
        claimed_at_ms=view.claimed_at_ms or view.due_at_ms,
        held=view.held,
        cost=view.cost,
        tags=view.tags,
        meta=view.meta,
        flow=view.flow,
        notes=view.notes,
        after=view.after,
        costs=view.costs,
    )
