"""Decides what is stored about a schedule, and what of it makes two definitions the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from limpet.core.errors import InvalidArguments, InvalidOption, UsageError
from limpet.core.jobs.job import stable_hash
from limpet.core.jobs.options import Options
from limpet.core.jobs.view import Control
from limpet.core.schedules.plan import Plan, plan
from limpet.core.schedules.policy import TickPolicy
from limpet.core.schedules.rule import AnyRule
from limpet.core.schedules.when import When
from limpet.core.tasks.codec import canonical, decode_json
from limpet.core.tasks.naming import checked_name, did_you_mean

KIND: Final = "schedule"
# Written after every change of a schedule: its version says that there was one, without reading them all.
REVISION: Final = Control("schedules", "revision", b"null")
# What a schedule may ask for its jobs. Their time, id and expiry come from the tick, and a tick has no parents.
OPTIONS: Final = ("cost", "meta", "needs", "priority", "queue", "retry", "tags", "tenant", "timeout")
TICK_OPTIONS: Final = ("overlap", "catch_up", "jitter", "expires_in")  # of Cron, Every and Once

Source = Literal["code", "runtime"]


class Schedule(Struct, frozen=True, omit_defaults=True, dict=True):
    """One schedule as an engine keeps it, as a blob; only its last tick lies beside, to be compared and set.

    What code declared and what a person changed are told apart by fingerprints: `declared` is the code's newest word,
    which a person's change (`changed_by`) outlives until the code says something new. Unknown fields are ignored: a
    newer release may say more.
    """

    name: str
    task: str
    rule: AnyRule
    policy: TickPolicy = TickPolicy()
    args: Raw = Raw(b"{}")  # one JSON object by parameter name
    options: dict[str, Any] = {}  # public options as written, JSON values only
    source: Source = "code"
    since_at_ms: int = 0  # no earlier tick counts: when it was first stored, last changed or last resumed
    paused: bool = False
    paused_by: str = ""
    paused_reason: str = ""
    changed_by: str = ""  # who took it over from the code
    declared: str = ""  # the fingerprint of what code declares; "" = no code does
    older: tuple[str, ...] = ()  # what code declared before, newest first

    @classmethod
    def declare(
        cls,
        when: When,
        *,
        task: str,
        name: str | None = None,
        args: bytes = b"{}",
        options: Mapping[str, Any] | None = None,
        source: Source = "code",
    ) -> Schedule:
        """A schedule from what people write; `args` are encoded already. Its name is the task's unless given."""
        if not isinstance(when, When):
            raise InvalidOption(
                f"{when!r:.80} does not say when", fix='pass Cron("0 8 * * *"), Every("5m") or Once(at)'
            )
        task = checked_name(task, what="task")
        if not isinstance(decode_json(args), dict):
            raise InvalidArguments(f"the arguments {args[:40]!r} are no JSON object", fix='pass {"parameter": value}')
        return cls(
            name=checked_name(task if name is None else name, what="name"),
            task=task,
            rule=when.rule,
            policy=when.policy,
            args=Raw(canonical(args)),
            options=checked_options(options or {}),
            source=source,
        )

    @cached_property
    def fingerprint(self) -> str:
        """The same for definitions that do the same, whatever they are called and whether they are paused."""
        said = canonical(bytes(self.args)).decode(), canonical(self.options).decode()
        return f"{stable_hash(('schedule', self.task, self.rule, self.policy, said)) & (1 << 64) - 1:016x}"

    def pause(self, by: str = "", reason: str = "") -> Schedule:
        """The same schedule, not ticking."""
        return replace(self, paused=True, paused_by=by, paused_reason=reason)

    def resume(self, now_ms: int) -> Schedule:
        """The same schedule, ticking from now on: what a pause held back was not missed and does not fire late."""
        return replace(self, paused=False, paused_by="", paused_reason="", since_at_ms=max(self.since_at_ms, now_ms))

    def changed(self, by: str, now_ms: int, **fields: Any) -> Schedule:
        """The same schedule as a person wants it: a changed rule ticks from now on."""
        if replace(self, **fields) == self:
            return self
        new = replace(self, changed_by=by if self.source == "code" else "", **fields)
        return new if new.rule == self.rule else replace(new, since_at_ms=max(self.since_at_ms, now_ms))

    def replacing(self, older: Schedule | None, now_ms: int) -> Schedule:
        """This definition in the place of a stored one: a pause stays, and a changed rule ticks from now on."""
        if older is None:
            return replace(self, since_at_ms=now_ms)
        return replace(
            self,
            since_at_ms=older.since_at_ms if older.rule == self.rule else now_ms,
            paused=older.paused,
            paused_by=older.paused_by,
            paused_reason=older.paused_reason,
        )

    def plan(self, last_at_ms: int | None, now_ms: int) -> Plan:
        """What to do about it now; `last_at_ms` is the newest tick that was decided, None when there was none."""
        if self.paused:
            return Plan()
        since = self.since_at_ms if last_at_ms is None else max(last_at_ms, self.since_at_ms)
        return plan(self.name, self.rule, self.policy, since, now_ms)

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self, order="deterministic"))


class Unreadable(Struct, frozen=True):
    """A stored schedule that this process cannot work out: written by another release, or for an unknown zone."""

    name: str
    why: str


def read_schedule(control: Control) -> Schedule | Unreadable | None:
    """The schedule in a stored record, ready to be planned; None when it was removed."""
    try:
        schedule = msgspec.json.decode(control.value, type=Schedule | None)
        if schedule is not None:
            schedule.rule.after(0)
    except (msgspec.MsgspecError, UsageError) as error:
        return Unreadable(control.name, str(error))
    return schedule


def removal(name: str) -> Control:
    """The record in the place of a schedule that was removed: records of a store are never erased."""
    return Control(KIND, name, b"null")


def source_of(name: str) -> str:
    """What the ticks of a schedule are relayed from: the store keeps the last one as the mark of that source."""
    return f"{KIND}:{name}"


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a schedule's jobs that can be stored; names and values are checked as for one call."""
    for name in options:
        if name in TICK_OPTIONS:
            raise InvalidOption(f"{name}= belongs to the times of a schedule", fix=f'write Every("5m", {name}=...)')
        if name not in OPTIONS:
            raise InvalidOption(f"a schedule has no option {name!r}", fix=did_you_mean(name, OPTIONS))
    asked = {name: _plain(value) for name, value in options.items()}
    meant = Options().replace(**asked)
    try:
        stored: dict[str, Any] = decode_json(canonical(asked))
        if Options().replace(**stored) == meant:
            return stored
    except UsageError:
        pass
    raise InvalidOption(
        f"the options {options!r:.120} of a schedule cannot be stored",
        fix="use numbers, texts and lists of them; set a Retry or a function on the task",
    )


def _plain(value: Any) -> Any:
    """The JSON of values that people write otherwise; sets are sorted, since their order differs between processes."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
