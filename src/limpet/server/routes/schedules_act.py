"""Routes that make and change schedules, and run them now or for the past."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.records.job import EnqueuedRecord
from limpet.core.records.schedule import BackfillReport, RemovedSchedule, ScheduleRecord
from limpet.core.schedules.when import Cron, Every, Once, When
from limpet.ops.names import UnknownName
from limpet.ops.schedule_runs import ScheduleBusy
from limpet.ops.schedules import ScheduleDeclared, ScheduleExists
from limpet.server.call import Call
from limpet.server.parameters import Act, Instant, Time, Why, given, one_of, refuse_unless_one
from limpet.server.route import Route, delete, patch, post
from limpet.server.routes.jobs_new import Priority

KINDS: Final = ("cron", "every", "at")
POLICY: Final = ("overlap", "catch_up", "jitter", "expires_in")
OPTIONS: Final = ("queue", "priority", "tenant", "needs", "tags", "meta", "cost", "timeout")

CatchUp = Annotated[str | int, Meta(description="skip, last, all, or the most missed runs that are made up.")]


class Times(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a task runs, and what is asked for its jobs."""

    RULES: ClassVar = {"oneOf": [{"not": {"anyOf": one_of(*KINDS)["oneOf"]}}, *one_of(*KINDS)["oneOf"]]}

    cron: Annotated[str, Meta(description="0 8 * * *")] | UnsetType = UNSET
    tz: Annotated[str, Meta(description="The time zone of `cron`: Europe/Paris.")] | None = None
    every: Time | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    overlap: Literal["skip", "queue_one", "allow", "cancel_running"] | None = None
    catch_up: Annotated[str | int, Meta(description="skip, last, or the most missed runs that are made up.")] | None = (
        None
    )
    jitter: Time | None = None
    expires_in: Time | None = None
    args: dict[str, Any] | None = None
    queue: str | None = None
    priority: Priority | None = None
    tenant: str | None = None
    needs: list[str] | None = None
    tags: list[str] | None = None
    meta: dict[str, Any] | None = None
    cost: int | dict[str, float] | None = None
    timeout: Time | None = None
    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    def __post_init__(self) -> None:
        refuse_unless_one(self, *KINDS, least=0)

    @property
    def options(self) -> dict[str, Any]:
        """What is asked for its jobs."""
        found = {name: value for name, value in given(self).items() if name in OPTIONS}
        return found if self.attempts is None else {**found, "retry": self.attempts}

    @property
    def policy(self) -> dict[str, Any]:
        """What becomes of its ticks."""
        return {name: value for name, value in given(self).items() if name in POLICY}

    def when(self, zone: str = "UTC") -> When | None:
        """When it ticks, in that time zone if it names none; None: that is not said."""
        if self.cron is not UNSET:
            return Cron(self.cron, tz=self.tz or zone, **self.policy)
        if self.every is not UNSET:
            return Every(self.every, **self.policy)
        return None if self.at is UNSET else Once(self.at, **self.policy)


class NewSchedule(Times, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule to be stored."""

    RULES: ClassVar = one_of(*KINDS)

    task: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(description="Like its task, if left out.")] | None = None
    paused: bool = False

    def __post_init__(self) -> None:
        refuse_unless_one(self, *KINDS)


class Backfill(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For which ticks of the past it shall run."""

    start: Annotated[Instant, Meta(description="The first tick.")]
    end: Annotated[Instant, Meta(description="The last tick; now, if left out.")] | None = None
    again: Annotated[bool, Meta(description="Ticks whose job is stored, too.")] = False


async def add(call: Call[None, NewSchedule]) -> ScheduleRecord:
    """Store a new schedule, which ticks from now on."""
    body, when = call.body, call.body.when()
    assert when is not None  # its type has looked
    return await call.schedules.add(
        when, body.task, body.args, name=body.name, paused=body.paused, reason=body.reason, **body.options
    )


async def change(call: Call[None, Times]) -> ScheduleRecord:
    """Change what is given of a schedule; the rest stays."""
    body, known = call.body, await call.schedules.get(call.path["name"])
    when = body.when(known.rule.get("tz", "UTC"))
    rule = None if when is None else when.rule
    how = {**body.policy, **body.options}
    return await call.schedules.change(call.path["name"], None, body.args, rule=rule, reason=body.reason, **how)


async def remove(call: Call[Why, None]) -> RemovedSchedule:
    """Remove a schedule; runs that are stored stay."""
    return await call.schedules.remove(call.path["name"], reason=call.query.reason)


async def pause(call: Call[None, Why]) -> ScheduleRecord:
    """Let no tick fire. Runs continue, and it can be run by hand."""
    return await call.schedules.pause(call.path["name"], reason=call.body.reason)


async def resume(call: Call[None, Why]) -> ScheduleRecord:
    """Let ticks fire from now on; those of the pause are not made up."""
    return await call.schedules.resume(call.path["name"], reason=call.body.reason)


async def reset(call: Call[None, Why]) -> ScheduleRecord:
    """Give a schedule that was changed by hand back to the code."""
    return await call.schedules.reset(call.path["name"], reason=call.body.reason)


async def run(call: Call[None, Why]) -> EnqueuedRecord:
    """Ask for one run now; `existing`: an earlier one has not finished, and `overlap` allows one."""
    name = call.path["name"]
    answer = await call.schedules.run_now(name, reason=call.body.reason)
    return EnqueuedRecord(id=id_text(answer.id), task=(await call.schedules.get(name)).task, existing=answer.existing)


async def backfill(call: Call[None, Backfill]) -> BackfillReport:
    """Ask for a run of every tick of a range in the past, without those whose job is stored."""
    body = call.body
    return await call.schedules.backfill(
        call.path["name"], body.start, body.end, again=body.again, dry_run=body.dry_run, reason=body.reason
    )


ERRORS: Final = (UnknownName, InvalidOption)
AT: Final = "/schedules/{name}"
PAST: Final = {"start": "2026-11-01T00:00:00Z", "dry_run": True}

ROUTES: Final[tuple[Route, ...]] = (
    post(
        "/schedules",
        "operator",
        add,
        errors=(InvalidOption, ScheduleExists),
        example={"task": "digest", "cron": "0 8 * * *", "tz": "Europe/Paris"},
    ),
    patch(AT, "operator", change, errors=ERRORS, example={"every": "10m"}),
    delete(AT, "operator", remove, errors=(*ERRORS, ScheduleDeclared)),
    post(f"{AT}/pause", "operator", pause, errors=ERRORS, example={"reason": "holidays"}),
    post(f"{AT}/resume", "operator", resume, errors=ERRORS, example={}),
    post(f"{AT}/reset", "operator", reset, errors=ERRORS, example={}),
    post(f"{AT}/run", "operator", run, errors=(*ERRORS, ScheduleBusy), example={}),
    post(
        f"{AT}/backfill",
        "operator",
        backfill,
        errors=ERRORS,
        example={"start": "2026-11-01T00:00:00Z", "dry_run": True},
    ),
)
