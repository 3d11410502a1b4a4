"""Routes about jobs that wait: for a person who decides or answers, or for an event."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from limpet.core.errors import InvalidOption, JobNotFound
from limpet.core.flows.question import CHARS
from limpet.core.records.wait import ApprovalPage, SignalRecord
from limpet.core.text.storable import REASON_CHARS
from limpet.ops.query import InvalidQuery
from limpet.ops.waits import SeveralJobs
from limpet.server.call import Call
from limpet.server.parameters import Search
from limpet.server.route import Route, get, post

Task = Annotated[str, Meta(description="The path names a unique key of this task, and not a job's id.")]


class Decision(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a person says to a job."""

    comment: Annotated[str, Meta(max_length=REASON_CHARS, description="For the job, and kept in the audit log.")] = ""
    name: Annotated[str, Meta(description="Which approval, if several; or one that will be asked for.")] | None = None
    task: Task | None = None


class Answer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a person answers to the question of an agent."""

    text: Annotated[str, Meta(min_length=1, max_length=CHARS)]
    task: Task | None = None


class Event(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What has happened."""

    event: Annotated[str, Meta(min_length=1)]
    value: Any = None
    task: Task | None = None


async def listed(call: Call[Search, None]) -> ApprovalPage:
    """What jobs that match a query ask people now, those with the nearest end first."""
    return await call.waits.asked(call.query.q, limit=call.query.limit, cursor=call.query.cursor)


async def approve(call: Call[None, Decision]) -> SignalRecord:
    """Say yes to what a job asks."""
    body, job = call.body, await call.waits.typed(call.path["id"], task=call.body.task)
    return await call.waits.approve(job, comment=body.comment, name=body.name)


async def reject(call: Call[None, Decision]) -> SignalRecord:
    """Say no. What the job makes of that is its own business."""
    body, job = call.body, await call.waits.typed(call.path["id"], task=call.body.task)
    return await call.waits.reject(job, comment=body.comment, name=body.name)


async def answer(call: Call[None, Answer]) -> SignalRecord:
    """Answer what an agent asked about a job: the job continues, and its next claim reads the answer."""
    body, job = call.body, await call.waits.typed(call.path["id"], task=call.body.task)
    return await call.waits.answer(job, body.text)


async def signal(call: Call[None, Event]) -> SignalRecord:
    """Give a job an event that it waits for, or will wait for; the first of a name stands."""
    body, job = call.body, await call.waits.typed(call.path["id"], task=call.body.task)
    return await call.waits.signal(job, body.event, body.value)


ERRORS: Final = (JobNotFound, SeveralJobs, InvalidOption)

ROUTES: Final[tuple[Route, ...]] = (
    get("/approvals", "viewer", listed, errors=(InvalidQuery,)),
    post("/jobs/{id}/approve", "operator", approve, errors=ERRORS, example={"comment": "as agreed"}),
    post("/jobs/{id}/reject", "operator", reject, errors=ERRORS, example={"comment": "too expensive"}),
    post("/jobs/{id}/answer", "operator", answer, errors=ERRORS, example={"text": "the second one"}),
    post("/jobs/{id}/signal", "operator", signal, errors=ERRORS, example={"event": "paid", "value": {"by": "card"}}),
)
