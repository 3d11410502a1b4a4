"""Routes about what people say of a cause of dead jobs: acknowledged, snoozed, resolved, whose it is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType

from limpet.core.records.cause import CauseKey, CauseRecord
from limpet.ops.causes import SeveralCauses
from limpet.ops.desk import CauseChanged
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import MOST_SEQ, Act, Instant, Time, one_of, refuse_unless_one
from limpet.server.route import Route, post
from limpet.server.routes.dead import Which

Version = Annotated[int, Meta(ge=0, le=MOST_SEQ, description="Of the cause as it was seen; another one is refused.")]


class Say(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is said of a cause, over the version that was seen."""

    version: Version | None = None


class Snooze(Say, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Until when it is left alone."""

    RULES: ClassVar = one_of("until", "duration")

    until: Instant | UnsetType = UNSET
    duration: Time | UnsetType = UNSET

    def __post_init__(self) -> None:
        refuse_unless_one(self, "until", "duration")

    @property
    def end(self) -> datetime | float | str:
        """What the desk takes."""
        return self.until or self.duration or 0


class Assign(Say, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose it is."""

    assignee: Annotated[str, Meta(description="A person or a team; null: no person's.")] | None


class Note(Say, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be known of it."""

    text: str


class Escalate(Say, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who must look."""

    to: str


def _how(body: Say) -> dict[str, Any]:
    return {"reason": body.reason, "version": body.version, "dry_run": body.dry_run}


def _key(call: Call[Which, Any]) -> CauseKey:
    return CauseKey(call.path["cause"], call.query.queue, call.query.task)


async def acknowledge(call: Call[Which, Say]) -> CauseRecord:
    """A person has seen it and takes care of it; an escalation ends."""
    return await call.operator.desk.acknowledge(_key(call), **_how(call.body))


async def snooze(call: Call[Which, Snooze]) -> CauseRecord:
    """Leave it alone for a time, or until an instant; then it is open again."""
    return await call.operator.desk.snooze(_key(call), call.body.end, **_how(call.body))


async def resolve(call: Call[Which, Say]) -> CauseRecord:
    """It is mended; a job that dies of it after this makes it regressed."""
    return await call.operator.desk.resolve(_key(call), **_how(call.body))


async def reopen(call: Call[Which, Say]) -> CauseRecord:
    """It waits for a person again."""
    return await call.operator.desk.reopen(_key(call), **_how(call.body))


async def assign(call: Call[Which, Assign]) -> CauseRecord:
    """Say whose it is."""
    return await call.operator.desk.assign(_key(call), call.body.assignee, **_how(call.body))


async def note(call: Call[Which, Note]) -> CauseRecord:
    """Keep a note with it, in place of the one before; an empty one removes it."""
    return await call.operator.desk.note(_key(call), call.body.text, **_how(call.body))


async def escalate(call: Call[Which, Escalate]) -> CauseRecord:
    """Hand it over to a person or a team who must look."""
    return await call.operator.desk.escalate(_key(call), call.body.to, **_how(call.body))


ERRORS: Final = (UnknownName, SeveralCauses, CauseChanged)
AT: Final = "/dead/causes/{cause}"

ROUTES: Final[tuple[Route, ...]] = (
    post(f"{AT}/acknowledge", "operator", acknowledge, errors=ERRORS, example={"reason": "on it"}),
    post(f"{AT}/snooze", "operator", snooze, errors=ERRORS, example={"duration": "2h"}),
    post(f"{AT}/resolve", "operator", resolve, errors=ERRORS, example={"reason": "fixed in 4.2", "version": 3}),
    post(f"{AT}/reopen", "operator", reopen, errors=ERRORS, example={}),
    post(f"{AT}/assign", "operator", assign, errors=ERRORS, example={"assignee": "ada"}),
    post(f"{AT}/note", "operator", note, errors=ERRORS, example={"text": "the provider knows"}),
    post(f"{AT}/escalate", "operator", escalate, errors=ERRORS, example={"to": "payments team"}),
)
