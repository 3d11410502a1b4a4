"""Decides what one call may ask for itself: delay, priority, key, parents and the like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import EllipsisType
from typing import Any, Final, NoReturn, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import LEAST_URGENT, PRIORITIES, IfParentFails, OnDuplicate, Policy
from limpet.core.jobs.meta import meta_from
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.unique import UniqueOption
from limpet.core.limits.unit import amounts_from
from limpet.core.tasks.naming import checked_names, did_you_mean, nearest
from limpet.core.tasks.queue import queue_name
from limpet.core.tasks.template import MAX_KEY_CHARS
from limpet.core.text.duration import Duration, instant_ms, to_ms
from limpet.core.text.foreign_words import option_of_others
from limpet.core.text.storable import is_storable


class Options(Struct, frozen=True):
    """What one call asks for beside its arguments; None (or `...`) leaves the task's own word."""

    delay_ms: int = 0
    due_at_ms: int | None = None
    expires_ms: int | None = None
    priority: int | None = None
    queue: str | None = None
    tenant: str | None = None
    unique: UniqueOption = None
    unique_for_ms: int | None = None
    unique_states: frozenset[State] | None = None
    on_duplicate: OnDuplicate | None = None
    after: tuple[bytes, ...] = ()
    if_parent_fails: IfParentFails = "cancel"
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cost: dict[str, int] | None = None  # by unit, as it is stored
    timeout_ms: int | EllipsisType | None = ...
    retry: Retry | None = None
    id: bytes | None = None
    conn: Any = None
    meta: bytes = b""  # as it is stored
    wait_ms: int | None = None  # for room in a full queue; UNTIL_DEADLINE = as long as an enqueue may take

    def replace(self, **given: Any) -> Options:
        """A copy with these public options; names and values are checked.

        >>> Options().replace(delay=60, priority="low").delay_ms
        60000
        """
        changed: dict[str, Any] = {}
        for name, value in given.items():
            reader = _READERS.get(name)
            if reader is None:
                raise _unknown(name)
            changed.update(reader(value))
        if changed.get("conn", self.conn) is not None and changed.get("wait_ms", self.wait_ms) is not None:
            refuse_waiting()
        if "delay" in given and "at" in given:
            raise InvalidOption("delay= and at= contradict each other", fix="pass one of them")
        return replace(self, **changed)

    def applied_to(self, policy: Policy) -> Policy:
        """The task's policy with this call's retry and timeout."""
        changed: dict[str, Any] = {} if self.retry is None else self.retry.policy_fields()
        if self.timeout_ms is not ...:
            changed["timeout_ms"], changed["hard_timeout_ms"] = self.timeout_ms, None
            if self.timeout_ms is not None:
                # The time between "stop" and the kill stays the one that the task declared.
                soft, hard = policy.timeout_ms, policy.hard_timeout_ms
                gap = 10_000 if soft is None or hard is None else hard - soft
                changed["hard_timeout_ms"] = self.timeout_ms + gap
        return replace(policy, **changed)


def _unknown(name: str) -> InvalidOption:
    from limpet.core.tasks.declare import TASK_OPTIONS  # which are made of these

    meant = option_of_others(name, TASK_OPTIONS, "the task declares it: @app.task({}=...)")
    return InvalidOption(f"there is no option {name!r}", fix=meant or did_you_mean(name, CALL_OPTIONS))


PLAIN: Final = Options()
UNTIL_DEADLINE: Final = -1


def refuse_waiting() -> NoReturn:
    """Inside the caller's own transaction nothing waits for room."""
    raise InvalidOption(
        "wait= cannot be kept with conn=: your transaction would hold its locks while it waits for room",
        fix="leave wait= out; catch QueueFull, roll back and try again later",
    )


def longer_wait(one: int | None, other: int | None) -> int | None:
    """The longer of two `wait_ms`; a time that is said is taken for longer than the deadline."""
    waits = [wait for wait in (one, other) if wait is not None]
    return max(waits, default=None)


def priority_of(value: str | int) -> int:
    """0 (most urgent) to 9, from one of the four words or the number itself."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LEAST_URGENT:
        return value
    close = nearest(value, PRIORITIES) if isinstance(value, str) else None
    hint = f"known: {', '.join(PRIORITIES)}" if close is None else f"did you mean {close!r}?"
    raise InvalidOption(f"priority={value!r} is unknown", fix=f"{hint}; or 0 (most urgent) to 9")


def timeout_ms_of(value: Duration | None, what: str) -> int | None:
    """A timeout; None switches it off, zero would end every job before it starts."""
    ms = None if value is None else to_ms(value, what=what)
    if ms == 0:
        raise InvalidOption(f"{what}={value!r} leaves no time at all", fix="use None to switch it off")
    return ms


def states_of(values: Iterable[State | str] | None) -> frozenset[State] | None:
    """The states in which a unique key is held; failed jobs never hold one."""
    if values is None:
        return None
    allowed = [state.value for state in State if state not in FINISHED or state is State.succeeded]
    if isinstance(values, str):
        raise InvalidOption(f"unique_states={values!r} is not a list", fix="pass unique_states=[...]")
    for value in values:
        if value not in allowed:
            raise InvalidOption(f"unique_states holds {value!r}", fix=did_you_mean(str(value), allowed))
    return frozenset(State(value) for value in values)


def on_duplicate_of(value: OnDuplicate | None) -> OnDuplicate:
    """One of the three answers to a duplicate."""
    return cast(OnDuplicate, _one_of("on_duplicate", value, get_args(OnDuplicate)))


def _one_of(what: str, value: object, allowed: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    raise InvalidOption(f"{what}={value!r} is unknown", fix=did_you_mean(str(value), allowed))


def _parents(value: object) -> tuple[bytes, ...]:
    items = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return tuple(dict.fromkeys(_job_id(item, "after") for item in items))


def _job_id(value: object, what: str) -> bytes:
    """The id behind text, raw bytes, or anything with an `.id` such as a handle."""
    found = value if isinstance(value, str | bytes) else getattr(value, "id", None)
    if isinstance(found, bytes) and len(found) == 16:
        return found
    if isinstance(found, str):
        return id_bytes(found)
    raise InvalidOption(f"{what}={value!r} names no job", fix="pass a handle that enqueue returned, or its id")


def _own_id(value: object) -> bytes:
    try:
        return _job_id(value, "id")
    except InvalidOption as error:
        raise InvalidOption(
            f"id={value!r:.80} is not a job id", fix="pass a UUID as text, such as str(uuid4())"
        ) from error


def _tenant_of(value: object) -> dict[str, Any]:
    if value is None:
        return {"tenant": None}
    if not isinstance(value, str | int) or len(str(value)) > MAX_KEY_CHARS or not is_storable(str(value)):
        raise InvalidOption(
            f"tenant={value!r:.80} is not a tenant",
            fix=f"pass its name, at most {MAX_KEY_CHARS} whole characters without NUL",
        )
    return {"tenant": str(value)}


def _unique_value(value: object) -> dict[str, Any]:
    if value is None or isinstance(value, bool | str) or callable(value):
        return {"unique": value}
    raise InvalidOption(
        f"unique must be True, text or a function of the arguments, got {value!r}",
        fix="unique=True makes the key from the arguments",
    )


def _optional(name: str, value: Duration | None) -> int | None:
    return None if value is None else to_ms(value, what=name)


def _wait_of(value: object) -> int | None:
    if value is None or value is False:
        return None
    return UNTIL_DEADLINE if value is True else to_ms(cast(Duration, value), what="wait")


def _at(value: datetime | None) -> dict[str, Any]:
    return {"due_at_ms": None if value is None else instant_ms(value), "delay_ms": 0}


_READERS: Final[Mapping[str, Any]] = {
    "delay": lambda v: {"delay_ms": _optional("delay", v) or 0, "due_at_ms": None},
    "at": _at,
    "expires_in": lambda v: {"expires_ms": _optional("expires_in", v)},
    "priority": lambda v: {"priority": None if v is None else priority_of(v)},
    "queue": lambda v: {"queue": None if v is None else queue_name(v)},
    "tenant": _tenant_of,
    "unique": _unique_value,
    "unique_for": lambda v: {"unique_for_ms": _optional("unique_for", v)},
    "unique_states": lambda v: {"unique_states": states_of(v)},
    "on_duplicate": lambda v: {"on_duplicate": None if v is None else on_duplicate_of(v)},
    "after": lambda v: {"after": () if v is None else _parents(v)},
    "if_parent_fails": lambda v: {"if_parent_fails": _one_of("if_parent_fails", v, get_args(IfParentFails))},
    "needs": lambda v: {"needs": checked_names(v, what="needs")},
    "tags": lambda v: {"tags": checked_names(v, what="tags")},
    "cost": lambda v: {"cost": amounts_from(v)},
    "timeout": lambda v: {"timeout_ms": timeout_ms_of(v, "timeout")},
    "retry": lambda v: {"retry": Retry.of(v)},
    "meta": lambda v: {"meta": meta_from(v)},
    "id": lambda v: {"id": None if v is None else _own_id(v)},
    "conn": lambda v: {"conn": v},
    "wait": lambda v: {"wait_ms": _wait_of(v)},
}
CALL_OPTIONS: Final = frozenset(_READERS)
