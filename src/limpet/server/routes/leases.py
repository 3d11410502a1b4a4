"""Routes of workers in other languages: claim jobs, keep their leases, and end each hold with what became of the job.

A lease is named by its job's id, and proven by the token that the claim answered.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from limpet.core.access.refusal import OutOfScope, TooManyWaiting
from limpet.core.errors import InvalidArguments, InvalidOption, JobNotFound, LeaseLost, PayloadTooLarge
from limpet.core.flows.question import CHARS
from limpet.core.jobs.ids import id_text, known_id
from limpet.core.jobs.lease import Serves
from limpet.core.records.claim import ClaimRecord
from limpet.core.records.lease import LeaseAnswer
from limpet.ops.agent_endings import Blocked, Completed, Ending, FailKind, Released, failing
from limpet.ops.agents import MOST_JOBS
from limpet.ops.lease_answers import insisted
from limpet.server.call import Call
from limpet.server.route import MiB, Route, post

MOST_BYTES: Final = 16 * MiB  # of results: a task may allow large ones, and one call several

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Names = Annotated[list[Name], Meta(max_length=1_000)]
Token = Annotated[int, Meta(ge=0, lt=2**53, description="The token that the claim answered.")]
Id = Annotated[str, Meta(description="The id of the job.")]
Lease = Annotated[
    float,
    Meta(ge=1, le=86_400, description="Seconds until the jobs are lost without a heartbeat: the type's, else 60."),
]
Wait = Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for a job, if there is none.")]
Most = Annotated[int, Meta(ge=1, le=MOST_JOBS, description="Jobs at most; they share one lease.")]
Key = Annotated[str, Meta(min_length=1, max_length=200, description="The same key again answers the same jobs again.")]
Later = Annotated[float, Meta(ge=0, le=31_536_000, description="Seconds before which it is not retried.")]
Spent = Annotated[dict[str, float], Meta(description="What it has really cost: tokens, input_tokens, usd, cost.")]
Text = Annotated[str, Meta(max_length=100_000)]


class _Body(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Claim(_Body, frozen=True, kw_only=True):
    """What a worker can run. Without queues and tasks it is given any."""

    worker: Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^:]*$", description="Its name.")]
    queues: Names | None = None
    tasks: Names | None = None
    capabilities: Names = []
    max: Most = 1
    lease: Lease | None = None
    wait: Wait = 0
    key: Key | None = None


class Heartbeat(_Body, frozen=True, kw_only=True):
    """A sign of life."""

    token: Token
    lease: Lease | None = None


class Checkpoint(_Body, frozen=True, kw_only=True):
    """What the next attempt is told, should this one end."""

    token: Token
    value: Any


class Progress(_Body, frozen=True, kw_only=True):
    """How far the job is."""

    token: Token
    done: float
    total: float | None = None
    message: Text = ""


class _End(_Body, frozen=True, kw_only=True):
    token: Token
    spent: Spent | None = None


class Complete(_End, frozen=True, kw_only=True):
    """The job is done."""

    result: Any = None

    def ending(self, id: str) -> Ending:
        """As the operator API takes it."""
        result = None if self.result is None else msgspec.json.encode(self.result)
        return Completed(id=id, token=self.token, spent=self.spent, result=result)


class Fail(_End, frozen=True, kw_only=True):
    """The attempt failed: transient is retried, permanent dies, rate-limited and spent hold the key for all workers.

    needs-human is a block: the message is the question, and `timeout` bounds the wait.
    """

    message: Text
    kind: FailKind = "transient"
    retry_after: Later | None = None
    timeout: Later | None = None
    type: Name = "Error"
    traceback: Text = ""

    def ending(self, id: str) -> Ending:
        """As the operator API takes it."""
        return failing(
            id,
            self.token,
            self.message,
            spent=self.spent,
            kind=self.kind,
            retry_after_ms=_some_ms(self.retry_after),
            timeout_ms=_some_ms(self.timeout),
            type=self.type,
            traceback=self.traceback,
        )


class Release(_End, frozen=True, kw_only=True):
    """The job goes back, and no attempt is spent."""

    reason: Text = ""

    def ending(self, id: str) -> Ending:
        """As the operator API takes it."""
        return Released(id=id, token=self.token, spent=self.spent, reason=self.reason)


class Block(_End, frozen=True, kw_only=True):
    """A person must answer first: the job waits, and no attempt is spent."""

    question: Annotated[str, Meta(min_length=1, max_length=CHARS)]
    timeout: Annotated[float, Meta(ge=0, le=31_536_000, description="Seconds to wait at most.")] | None = None

    def ending(self, id: str) -> Ending:
        """As the operator API takes it."""
        timeout_ms = _some_ms(self.timeout)
        return Blocked(id=id, token=self.token, spent=self.spent, question=self.question, timeout_ms=timeout_ms)


class CompleteOne(Complete, frozen=True, kw_only=True, tag_field="end", tag="complete"):
    """One of several leases: its job is done."""

    id: Id


class FailOne(Fail, frozen=True, kw_only=True, tag_field="end", tag="fail"):
    """One of several leases: its attempt failed."""

    id: Id


class ReleaseOne(Release, frozen=True, kw_only=True, tag_field="end", tag="release"):
    """One of several leases: its job goes back."""

    id: Id


class BlockOne(Block, frozen=True, kw_only=True, tag_field="end", tag="block"):
    """One of several leases: its job waits for a person."""

    id: Id


class Settle(_Body, frozen=True, kw_only=True):
    """How several leases end."""

    leases: Annotated[list[CompleteOne | FailOne | ReleaseOne | BlockOne], Meta(min_length=1, max_length=MOST_JOBS)]


async def claimed(call: Call[None, Claim]) -> list[ClaimRecord]:
    """Lease jobs to a worker, the most urgent first; with `wait` it waits for one. An empty list: there is none."""
    asked = call.body
    serves = Serves(_names(asked.queues), _names(asked.tasks), tuple(asked.capabilities))
    return await call.lending.claim(
        call,
        asked.worker,
        serves,
        most=asked.max,
        lease_ms=_some_ms(asked.lease),
        wait_ms=_ms(asked.wait),
        key=asked.key,
    )


async def kept(call: Call[None, Heartbeat]) -> LeaseAnswer:
    """Keep the lease, of all jobs that were claimed together; `cancel_requested` says that the job should stop."""
    return insisted(await call.agents.heartbeat(_id(call), call.body.token, lease_ms=_some_ms(call.body.lease)))


async def noted(call: Call[None, Checkpoint]) -> LeaseAnswer:
    """Keep a value with the job: the claim of its next attempt answers the newest one."""
    return insisted(await call.agents.checkpoint(_id(call), call.body.token, call.body.value))


async def advanced(call: Call[None, Progress]) -> LeaseAnswer:
    """Say how far the job is, for people."""
    said = call.body
    return insisted(await call.agents.progress(_id(call), said.token, said.done, said.total, said.message))


async def completed(call: Call[None, Complete]) -> LeaseAnswer:
    """The job has succeeded, with this result."""
    return await _ended(call, call.body)


async def failed(call: Call[None, Fail]) -> LeaseAnswer:
    """The attempt failed; what becomes of the job is decided by the kind of the failure and the attempts left."""
    return await _ended(call, call.body)


async def released(call: Call[None, Release]) -> LeaseAnswer:
    """Give the job back for another worker; no attempt is spent."""
    return await _ended(call, call.body)


async def blocked(call: Call[None, Block]) -> LeaseAnswer:
    """Ask a person: the job waits for the answer, which its next claim reads; no attempt is spent."""
    return await _ended(call, call.body)


async def settled(call: Call[None, Settle]) -> list[LeaseAnswer]:
    """End several leases; answers are in order, and a lease that is lost is an answer, not an error."""
    for each in call.body.leases:
        known_id(each.id)
    return await call.agents.settle([each.ending(each.id) for each in call.body.leases])


async def _ended(call: Call[Any, Any], end: Complete | Fail | Release | Block) -> LeaseAnswer:
    (answer,) = await call.agents.settle([end.ending(_id(call))])
    return insisted(answer)


def _id(call: Call[Any, Any]) -> str:
    """A whole id: a worker has it from its claim."""
    return id_text(known_id(call.path["id"]))


def _names(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _some_ms(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(seconds)


_LEASE: Final = (LeaseLost, JobNotFound, OutOfScope)
_TOKEN: Final = {"token": 3641}

ROUTES: Final[tuple[Route, ...]] = (
    post(
        "/claim",
        "worker",
        claimed,
        of="jobs",
        errors=(OutOfScope, TooManyWaiting),
        example={"worker": "w1", "queues": ["mail"], "lease": 60, "wait": 30},
    ),
    post("/leases/{id}/heartbeat", "worker", kept, errors=_LEASE, example={**_TOKEN, "lease": 60}),
    post(
        "/leases/{id}/checkpoint",
        "worker",
        noted,
        errors=(*_LEASE, PayloadTooLarge),
        example={**_TOKEN, "value": {"page": 3}},
    ),
    post("/leases/{id}/progress", "worker", advanced, errors=_LEASE, example={**_TOKEN, "done": 3, "total": 10}),
    post(
        "/leases/{id}/complete",
        "worker",
        completed,
        errors=(*_LEASE, PayloadTooLarge, InvalidArguments),
        example={**_TOKEN, "result": {"pages": 10}},
        most_bytes=MOST_BYTES,
    ),
    post(
        "/leases/{id}/fail",
        "worker",
        failed,
        errors=(*_LEASE, InvalidOption),
        example={**_TOKEN, "message": "no answer", "kind": "transient", "retry_after": 30},
    ),
    post("/leases/{id}/release", "worker", released, errors=_LEASE, example={**_TOKEN, "reason": "needs a database"}),
    post(
        "/leases/{id}/block",
        "worker",
        blocked,
        errors=(*_LEASE, InvalidOption),
        example={**_TOKEN, "question": "Which of the two accounts?"},
    ),
    post(
        "/leases/settle",
        "worker",
        settled,
        of="leases",
        errors=(JobNotFound, OutOfScope, PayloadTooLarge, InvalidOption, InvalidArguments),
        example={"leases": [{"end": "complete", "id": "019a0000-0000-7000-8000-000000000000", **_TOKEN}]},
        most_bytes=MOST_BYTES,
    ),
)
