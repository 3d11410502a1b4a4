"""Decides what a declared task is, and turns one call of it into a job: the only place where that happens."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from holdfast.core.classify import Classifier
from holdfast.core.codec import MAX_BYTES
from holdfast.core.duration import Duration, to_ms
from holdfast.core.errors import InvalidOption, InvalidTask
from holdfast.core.gate import GateRule
from holdfast.core.job import Job, Lane, OnDuplicate, Policy, Unique
from holdfast.core.limit import Breaker, Limit, Template, checked_key, did_you_mean
from holdfast.core.options import (
    PLAIN,
    Options,
    checked_cost,
    checked_name,
    checked_names,
    on_duplicate_of,
    priority_of,
    states_of,
    timeout_ms_of,
)
from holdfast.core.payload import Signature
from holdfast.core.retry import Retry, RetryFunction
from holdfast.core.state import State
from holdfast.core.unique import UniqueOption, unique_of

__all__ = ["PLAIN", "Inject", "Injected", "Options", "TaskOptions", "TaskSpec", "build_job"]

Executor = Literal["async", "thread", "process"]
GroupOption = str | Callable[[Mapping[str, object]], str | None] | None
CostOption = int | Callable[[Mapping[str, object]], int]

_HARD_GAP_MS: Final = 10_000  # a handler told to stop gets this long to do so
_CACHED: Final = 10_000  # lanes remembered per task; a tenant's key is hashed once, not once per job


class Injected:
    """Marks a parameter that the worker fills from a resource."""

    __slots__ = ("resource",)

    def __init__(self, resource: object) -> None:
        self.resource = resource

    def __repr__(self) -> str:
        return f"Inject({self.resource!r})"


def Inject(resource: object) -> Any:
    """`db: Pool = Inject(pool)`: the worker passes the resource; callers and stored arguments never hold it."""
    return Injected(resource)


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str | None
    queue: str
    priority: str | int
    timeout: Duration | None
    hard_timeout: Duration | None
    retry: Retry | int | Sequence[Duration] | RetryFunction | None
    group: GroupOption
    limits: Iterable[Limit]
    breaker: Breaker | bool | None
    needs: Iterable[str]
    tags: Iterable[str]
    unique: UniqueOption
    unique_for: Duration | None
    unique_states: Iterable[State | str] | None
    on_duplicate: OnDuplicate
    executor: Executor | None
    max_lost: int
    cost: CostOption
    classifiers: Iterable[Classifier]
    max_payload_bytes: int
    max_result_bytes: int


_NAMES: Final = frozenset(TaskOptions.__annotations__)


@dataclass(frozen=True, eq=False)
class TaskSpec:
    """One declared task: what it runs, and how its jobs queue, fail and are told apart."""

    name: str
    fn: Callable[..., Any]
    executor: Executor
    signature: Signature
    queue: str
    priority: int
    policy: Policy
    retry: Retry
    group: GroupOption = None
    limits: tuple[Limit, ...] = ()
    breaker: Breaker | None = None
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    unique: UniqueOption = None
    unique_for_ms: int | None = None
    unique_states: frozenset[State] | None = None
    on_duplicate: OnDuplicate = "existing"
    cost: CostOption = 1
    classifiers: tuple[Classifier, ...] = ()
    injected: Mapping[str, object] = field(default_factory=dict)
    max_payload_bytes: int = MAX_BYTES
    _lanes: dict[object, tuple[Lane, tuple[GateRule, ...]]] = field(default_factory=dict, init=False, repr=False)
    _policies: dict[object, Policy] = field(default_factory=dict, init=False, repr=False)
    _plain: tuple[Lane, tuple[GateRule, ...]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        varies = self.group or self.unique or any(not limit.template.constant for limit in self.limits)
        if not varies and not self.tags and self.cost == 1:
            object.__setattr__(self, "_plain", _lane(self, {}, PLAIN))

    @classmethod
    def declare(cls, fn: Callable[..., Any], **options: Unpack[TaskOptions]) -> TaskSpec:
        """A task from a function and its options; whatever cannot work is refused here, by name.

        >>> def greet(name: str) -> str: return f"hello {name}"
        >>> TaskSpec.declare(greet, name="greet", queue="mail", priority="high").priority
        3
        """
        for given in options:
            if given not in _NAMES:
                raise InvalidOption(f"@task has no option {given!r}", fix=did_you_mean(given, _NAMES))
        injected = _injected(fn)
        signature = Signature.of(fn, injected=frozenset(injected))
        name = checked_name(options.get("name") or default_name(fn), what="name")
        retry = Retry.of(options.get("retry", Retry()))
        limits = _limits(options.get("limits", ()), signature)
        _check_group(options.get("group"), signature)
        breaker = options.get("breaker")
        spec = cls(
            name=name,
            fn=fn,
            executor=_executor(fn, options.get("executor")),
            signature=signature,
            queue=checked_name(options.get("queue", "default"), what="queue"),
            priority=priority_of(options.get("priority", "normal")),
            policy=_policy(retry, options),
            retry=retry,
            group=options.get("group"),
            limits=limits,
            breaker=Breaker() if breaker is True else breaker or None,
            needs=checked_names(options.get("needs", ()), what="needs"),
            tags=checked_names(options.get("tags", ()), what="tags"),
            unique=_unique(options.get("unique"), signature),
            unique_for_ms=_optional_ms(options.get("unique_for"), "unique_for"),
            unique_states=states_of(options.get("unique_states")),
            on_duplicate=on_duplicate_of(options.get("on_duplicate", "existing")),
            cost=_cost(options.get("cost", 1)),
            classifiers=tuple(options.get("classifiers", ())),
            injected=injected,
            max_payload_bytes=_bytes(options.get("max_payload_bytes", MAX_BYTES), "max_payload_bytes"),
        )
        if spec.breaker is not None and not isinstance(spec.breaker, Breaker):
            raise InvalidOption(f"breaker={spec.breaker!r} is not a Breaker", fix="pass Breaker(...) or True")
        return spec

    @classmethod
    def named(cls, name: str, *, queue: str = "default") -> TaskSpec:
        """A task known by name only: any JSON object fits, and some worker will know what to do with it."""

        def nowhere(*args: object, **kwargs: object) -> None:
            raise InvalidTask(f"{name!r} is known by name only", fix="run it by a worker that declares it")

        return cls(
            name=checked_name(name, what="task"),
            fn=nowhere,
            executor="thread",
            signature=Signature.open(name),
            queue=checked_name(queue, what="queue"),
            priority=priority_of("normal"),
            policy=Policy(),
            retry=Retry(),
        )

    def learns(self, lane: Lane) -> str | None:
        """The key that a 429 without a key of its own holds for a job of `lane`: the limit marked so, if any."""
        keyed = [limit for limit in self.limits if not limit.template.constant]
        for limit in self.limits:
            if limit.learns and limit.template.constant:
                return limit.template.fill({"task": self.name})
            if limit.learns and len(keyed) == len(lane.keys):
                return lane.keys[keyed.index(limit)]
        return None


def build_job(
    spec: TaskSpec,
    values: Mapping[str, Any],
    options: Options = PLAIN,
    *,
    id: bytes,
    flow: bytes | None = None,
    meta: bytes = b"",
) -> tuple[Job, tuple[GateRule, ...]]:
    """The job of one call and the gates it names; `values` come from `spec.signature.bind`."""
    args = spec.signature.encode(values, max_bytes=spec.max_payload_bytes)
    if options is PLAIN and spec._plain is not None:
        lane, rules = spec._plain
        if flow is None and not meta:
            return Job(id, lane, spec.policy, args), rules
    else:
        lane, rules = _lane(spec, values, options)
    cost = spec.cost if options.cost is None else options.cost
    return Job(
        id,
        lane,
        _policy_for(spec, options),
        args,
        delay_ms=options.delay_ms,
        due_at_ms=options.due_at_ms,
        expires_ms=options.expires_ms,
        unique=_unique_for(spec, values, options),
        after=options.after,
        if_parent_fails=options.if_parent_fails,
        cost=cost if isinstance(cost, int) else checked_cost(cost(values)),
        tags=(*spec.tags, *(tag for tag in options.tags if tag not in spec.tags)),
        meta=meta,
        flow=flow,
    ), rules


def _lane(spec: TaskSpec, values: Mapping[str, Any], options: Options) -> tuple[Lane, tuple[GateRule, ...]]:
    queue = options.queue or spec.queue
    priority = spec.priority if options.priority is None else options.priority
    group = _group(spec, values) if options.group is None else options.group
    keys: tuple[str, ...] = ()
    if spec.limits:
        places = {"task": spec.name, "queue": queue, "group": group}
        seen = {**places, **spec.signature.defaults, **values}
        keys = tuple(limit.template.fill(seen) for limit in spec.limits)
    known = (queue, priority, group, options.needs, keys)
    found = spec._lanes.get(known)
    if found is None:
        if len(spec._lanes) >= _CACHED:
            spec._lanes.clear()
        found = spec._lanes[known] = _new_lane(spec, queue, priority, group, options.needs, keys)
    return found


def _new_lane(
    spec: TaskSpec, queue: str, priority: int, group: str | None, needs: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[Lane, tuple[GateRule, ...]]:
    rules = [limit.rule(key) for limit, key in zip(spec.limits, keys, strict=True)]
    breaker = None
    if spec.breaker is not None:
        breaker = spec.breaker.key(spec.name)
        rules.append(spec.breaker.rule(spec.name))
    fixed = [limit.template.constant for limit in spec.limits]
    lane = Lane(
        queue=queue,
        task=spec.name,
        priority=priority,
        group=group,
        needs=tuple(sorted({*spec.needs, *needs})),
        limits=tuple(key for key, constant in zip(keys, fixed, strict=True) if constant),
        keys=tuple(key for key, constant in zip(keys, fixed, strict=True) if not constant),
        breaker=breaker,
    )
    return lane, tuple(rules)


def _group(spec: TaskSpec, values: Mapping[str, Any]) -> str | None:
    chosen = spec.group
    if chosen is None:
        return None
    if isinstance(chosen, str):
        value = values.get(chosen, spec.signature.defaults.get(chosen))
        return None if value is None else Template(f"{{{chosen}}}").fill({chosen: value})
    said = chosen(values)
    if said is not None and not isinstance(said, str):
        raise InvalidOption(f"group= of {spec.name!r} answered {said!r}", fix="let it answer text or None")
    return None if said is None else checked_key(said, what="the group")


def _policy_for(spec: TaskSpec, options: Options) -> Policy:
    if options.retry is None and options.timeout_ms is ...:
        return spec.policy
    known = (options.retry, options.timeout_ms)
    found = spec._policies.get(known)
    if found is None:
        if len(spec._policies) >= _CACHED:
            spec._policies.clear()
        found = spec._policies[known] = options.applied_to(spec.policy)
    return found


def _unique_for(spec: TaskSpec, values: Mapping[str, Any], options: Options) -> Unique | None:
    option: UniqueOption = options.unique
    if option is None and spec.unique is not None:
        option = spec.unique
        if isinstance(option, str):
            places = {"task": spec.name, "queue": options.queue or spec.queue}
            option = Template(option).fill({**places, **spec.signature.defaults, **values})
    return unique_of(
        option,
        task=spec.name,
        values=values,
        for_ms=spec.unique_for_ms if options.unique_for_ms is None else options.unique_for_ms,
        states=options.unique_states or spec.unique_states,
        on_duplicate=options.on_duplicate or spec.on_duplicate,
    )


# -- declarations, checked


def default_name(fn: Callable[..., Any]) -> str:
    """module.qualname; in a script, the file's stem stands for `__main__`, so worker and producer agree."""
    module = getattr(fn, "__module__", None) or "unknown"
    if module == "__main__":
        main = sys.modules.get("__main__")
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None) or inspect.unwrap(fn).__code__.co_filename
        module = spec.name.removesuffix(".__main__") if spec else os.path.splitext(os.path.basename(file))[0]
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def _injected(fn: Callable[..., Any]) -> dict[str, object]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{fn!r} has no signature that can be read", fix="wrap it in a def") from error
    found = {p.name: p for p in parameters if isinstance(p.default, Injected)}
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for p in found.values():
        if p.kind is p.POSITIONAL_ONLY or (variadic and p.kind is not p.KEYWORD_ONLY):
            raise InvalidTask(
                f"the injected parameter {p.name!r} cannot be passed by name",
                fix="make it keyword-only: put it after *",
            )
    return {name: p.default.resource for name, p in found.items()}


def _executor(fn: Callable[..., Any], asked: str | None) -> Executor:
    plain = inspect.unwrap(fn)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidTask(f"{fn!r} is a generator", fix="return a value; report steps with current_job().progress()")
    is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)
    if asked is None:
        return "async" if is_async else "thread"
    if asked not in get_args(Executor):
        raise InvalidOption(f"executor={asked!r} is unknown", fix=did_you_mean(str(asked), get_args(Executor)))
    if asked == "async" and not is_async:
        raise InvalidTask(f"{fn!r} is not async and would block the loop", fix='use executor="thread" or async def')
    if asked == "thread" and is_async:
        raise InvalidTask(f"{fn!r} is async and needs no thread", fix='leave executor= out, or use "process"')
    return asked  # type: ignore[return-value]  # get_args has just proven it


def _limits(limits: Iterable[Limit], signature: Signature) -> tuple[Limit, ...]:
    if isinstance(limits, Limit):
        limits = (limits,)
    found = tuple(limits)
    for limit in found:
        if not isinstance(limit, Limit):
            raise InvalidOption(f"limits= holds {limit!r}", fix='pass Limit("key", rate="10/m")')
        limit.template.check(signature.parameters)
    keys = [limit.key for limit in found]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InvalidTask(f"two limits have the key {twice!r}", fix="put rate and concurrency into one Limit")
    return found


def _check_group(group: GroupOption, signature: Signature) -> None:
    if group is None or (callable(group) and not isinstance(group, str)):
        return
    if group not in signature.parameters:
        raise InvalidTask(
            f"group={group!r} is not a parameter of {signature.label}()",
            fix=did_you_mean(str(group), signature.parameters),
        )


def _unique(unique: UniqueOption, signature: Signature) -> UniqueOption:
    if isinstance(unique, str):
        Template(unique).check(signature.parameters)
    elif unique is not None and not isinstance(unique, bool) and not callable(unique):
        raise InvalidOption(f"unique={unique!r} is no key", fix="use True, text, or a function of the arguments")
    return unique or None


def _policy(retry: Retry, options: TaskOptions) -> Policy:
    soft = timeout_ms_of(options.get("timeout", timedelta(minutes=30)), "timeout")
    hard = None if soft is None else soft + _HARD_GAP_MS
    if "hard_timeout" in options:
        hard = timeout_ms_of(options["hard_timeout"], "hard_timeout")
    if soft is not None and hard is not None and hard < soft:
        raise InvalidOption(
            f"hard_timeout={options.get('hard_timeout')!r} ends before timeout={options.get('timeout')!r}",
            fix="the hard one is the later one; by default it is timeout + 10",
        )
    max_lost = options.get("max_lost", 10)
    if isinstance(max_lost, bool) or not isinstance(max_lost, int) or max_lost < 1:
        raise InvalidOption(f"max_lost={max_lost!r} is no count", fix="use 1 or more; 1 is at most once")
    return Policy(
        **retry.policy_fields(),
        timeout_ms=soft,
        hard_timeout_ms=hard,
        max_lost=max_lost,
        max_result_bytes=_bytes(options.get("max_result_bytes", MAX_BYTES), "max_result_bytes"),
    )


def _optional_ms(value: Duration | None, what: str) -> int | None:
    return None if value is None else to_ms(value, what=what)


def _cost(cost: CostOption) -> CostOption:
    return cost if callable(cost) else checked_cost(cost)


def _bytes(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        raise InvalidOption(f"{what}={value!r} is no size", fix="pass a number of bytes")
    return value
