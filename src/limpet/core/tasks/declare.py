"""Decides whether what `@app.task(...)` says can work; whatever cannot is refused by name, at import."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, TypedDict, cast, get_args

from limpet.core.endings.overrides import ClassifyOption
from limpet.core.endings.retry import MOST_ATTEMPTS, Retry, RetryFunction
from limpet.core.errors import InvalidOption, InvalidTask
from limpet.core.flows.steps import STEPS_OPTIONS, StepsOption
from limpet.core.jobs.job import OnDuplicate, Policy
from limpet.core.jobs.options import timeout_ms_of
from limpet.core.jobs.state import State
from limpet.core.jobs.unique import UniqueOption
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.limits.unit import Amounts, Cost, cost_from
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.naming import checked_names, did_you_mean, nearest
from limpet.core.tasks.payload import Signature
from limpet.core.tasks.queue import Queue
from limpet.core.tasks.template import Template
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.foreign_words import OPTIONS

Executor = Literal["async", "thread", "process"]
OnLostLease = Literal["stop", "go_on"]
TenantOption = str | Callable[[Mapping[str, object]], str | None] | None
RetryOption = Retry | int | Sequence[Duration] | RetryFunction | None
CostOption = int | Amounts | Mapping[str, Any] | Callable[..., int | Amounts | Mapping[str, Any]]
CostFunction = Callable[[Mapping[str, object]], Cost]  # of the arguments

_MOST_BYTES: Final = 1 << 30  # more than any engine keeps in one row
_HARD_GAP_MS: Final = 10_000  # a handler told to stop gets this long to do so


class Inject:
    """`db: Pool = Inject(pool)`: the worker passes the resource; callers and stored arguments never hold it.

    Typed as anything, since it stands where the resource's own type is annotated.
    """

    resource: object

    def __new__(cls, resource: object) -> Any:
        self = object.__new__(cls)
        self.resource = resource
        return self

    def __repr__(self) -> str:
        return f"Inject({self.resource!r})"


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes."""

    name: str | None
    aliases: Iterable[str]
    queue: str | Queue
    priority: str | int
    timeout: Duration | None
    hard_timeout: Duration | None
    retry: RetryOption
    tenant: TenantOption
    limits: Iterable[Limit | Budget]
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
    classify: ClassifyOption
    max_payload_bytes: int
    max_result_bytes: int
    steps: StepsOption
    redact: Iterable[str]
    on_lost_lease: OnLostLease | None


TASK_OPTIONS: Final = frozenset(TaskOptions.__annotations__)


def default_name(fn: Callable[..., Any]) -> str:
    """module.qualname; in a script, the file's stem stands for `__main__`, so worker and producer agree."""
    if isinstance(fn, partial):
        raise InvalidTask(f"{fn!r} has no name of its own", fix="pass name=")
    module = getattr(fn, "__module__", None) or "unknown"
    if module in ("__main__", "__mp_main__"):  # the latter in a spawned child of a script
        main = sys.modules.get(module)
        spec = getattr(main, "__spec__", None)  # there when it was run with -m: that is how others import it
        code = getattr(inspect.unwrap(fn), "__code__", None)
        file = code.co_filename if code is not None else getattr(main, "__file__", None) or "main"
        module = spec.name.removesuffix(".__main__") if spec else os.path.splitext(os.path.basename(file))[0]
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def aliases_of(aliases: Iterable[str], name: str) -> tuple[str, ...]:
    """The former names of a task, the oldest first."""
    found = checked_names(aliases, what="aliases")
    if name in found:
        raise InvalidTask(f"aliases= of {name!r} holds its own name", fix="name only what it was called before")
    return found


def injected_of(fn: Callable[..., Any]) -> dict[str, object]:
    """The parameters that the worker fills, each with its resource."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{fn!r} has no signature that can be read", fix="wrap it in a def") from error
    if parameters and next(iter(parameters)).name == "self":  # as where tasks are bound
        raise InvalidTask(
            f"{getattr(fn, '__qualname__', repr(fn))!r} has a parameter self, which nothing fills", fix=OPTIONS["bind"]
        )
    found = {p.name: p for p in parameters if isinstance(p.default, Inject)}
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for p in found.values():
        if p.kind is p.POSITIONAL_ONLY or (variadic and p.kind is not p.KEYWORD_ONLY):
            raise InvalidTask(
                f"the injected parameter {p.name!r} cannot be passed by name",
                fix="make it keyword-only: put it after *",
            )
    return {name: p.default.resource for name, p in found.items()}


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind decorators and partial applications."""
    found: Callable[..., Any] = inspect.unwrap(fn)
    while isinstance(found, partial):
        found = inspect.unwrap(found.func)
    return found


def is_async(fn: Callable[..., Any]) -> bool:
    """True for what must be awaited: an async function, or an object whose call is one."""
    plain = plain_function(fn)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)


def executor_of(fn: Callable[..., Any], asked: str | None) -> Executor:
    """Where it runs: async functions in the loop, others in a thread, unless asked otherwise."""
    plain = plain_function(fn)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidTask(f"{fn!r} is a generator", fix="return a value; report steps with current_job().progress()")
    in_loop = is_async(fn)
    if asked is None:
        return "async" if in_loop else "thread"
    if asked not in get_args(Executor):
        raise InvalidOption(f"executor={asked!r} is unknown", fix=did_you_mean(str(asked), get_args(Executor)))
    if asked == "async" and not in_loop:
        raise InvalidTask(f"{fn!r} is not async and would block the loop", fix='use executor="thread" or async def')
    if asked == "thread" and in_loop:
        raise InvalidTask(f"{fn!r} is async and needs no thread", fix='leave executor= out, or use "process"')
    return cast(Executor, asked)


def limits_of(limits: Iterable[Limit | Budget], signature: Signature) -> tuple[tuple[Limit, ...], tuple[Budget, ...]]:
    """The limits and the budgets, with every key template checked against the parameters."""
    one = isinstance(limits, Limit | Budget) or not isinstance(limits, Iterable)
    found = cast(tuple[Limit | Budget, ...], (limits,) if one else tuple(limits))
    for limit in found:
        if not isinstance(limit, Limit | Budget):
            raise InvalidOption(
                f"limits= holds {limit!r}", fix='pass Limit("key", rate="10/m") or Budget("key", usd=5)'
            )
        limit.template.check(signature.parameters)
    keys = [rule.key.removeprefix("limit:") for limit in found for rule in limit.rules(limit.key)]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InvalidTask(f"two limits have the key {twice!r}", fix="put rate and concurrency into one Limit")
    return (
        tuple(limit for limit in found if isinstance(limit, Limit)),
        tuple(limit for limit in found if isinstance(limit, Budget)),
    )


def tenant_of(tenant: TenantOption, signature: Signature) -> TenantOption:
    """What names the tenant: a parameter, or a function of the arguments."""
    if tenant is None or (callable(tenant) and not isinstance(tenant, str)):
        return tenant
    if tenant not in signature.parameters:
        raise InvalidTask(
            f"tenant={tenant!r} is not a parameter of {signature.label}()",
            fix=did_you_mean(str(tenant), signature.parameters),
        )
    return tenant


def breaker_of(breaker: Breaker | bool | None, signature: Signature) -> Breaker | None:
    """True is a breaker with the default numbers, named after the task. A template fits the parameters."""
    if breaker is None or isinstance(breaker, bool):
        return Breaker() if breaker else None
    if not isinstance(breaker, Breaker):
        raise InvalidOption(f"breaker={breaker!r} is not a Breaker", fix="pass Breaker(...) or True")
    if breaker.template is not None:
        breaker.template.check(signature.parameters)
    return breaker


def unique_option(options: TaskOptions, signature: Signature) -> UniqueOption:
    """The key of every job of the task; text may be a template."""
    unique = options.get("unique")
    if not unique:
        for name in ("unique_for", "unique_states", "on_duplicate"):
            if options.get(name) is not None:
                raise InvalidOption(f"{name}= does nothing without unique=", fix=f"add unique=True beside {name}=")
    if isinstance(unique, str):
        Template(unique).check(signature.parameters)
    elif unique is not None and not isinstance(unique, bool) and not callable(unique):
        raise InvalidOption(
            f"unique must be True, text or a function of the arguments, got {unique!r}",
            fix="unique=True makes the key from the arguments",
        )
    return unique or None


def policy_of(retry: Retry, options: TaskOptions) -> Policy:
    """What jobs of the task carry for `decide`."""
    soft = timeout_ms_of(options.get("timeout", timedelta(minutes=30)), "timeout")
    hard = None if soft is None else soft + _HARD_GAP_MS
    if "hard_timeout" in options:
        hard = timeout_ms_of(options["hard_timeout"], "hard_timeout")
    if soft is not None and hard is not None and hard < soft:
        timeout = f"timeout={options['timeout']!r}" if "timeout" in options else "timeout, which is 30m by default"
        raise InvalidOption(
            f"hard_timeout={options.get('hard_timeout')!r} ends before {timeout}",
            fix="set both, hard_timeout later than timeout; without hard_timeout it is timeout + 10 s",
        )
    max_lost = options.get("max_lost", 10)
    if isinstance(max_lost, bool) or not isinstance(max_lost, int) or not 1 <= max_lost <= MOST_ATTEMPTS:
        raise InvalidOption(f"max_lost must be an integer ≥ 1, got {max_lost!r}", fix="1 means at most once")
    return Policy(
        **retry.policy_fields(),
        timeout_ms=soft,
        hard_timeout_ms=hard,
        max_lost=max_lost,
        max_result_bytes=size_of(options.get("max_result_bytes", MAX_BYTES), "max_result_bytes"),
    )


def optional_ms(value: Duration | None, what: str) -> int | None:
    """A duration, or None for none."""
    return None if value is None else to_ms(value, what=what)


def cost_of(cost: CostOption, signature: Signature, budgets: Sequence[Budget] = ()) -> Cost | CostFunction:
    """What every job of the task costs, or the function that says so."""
    if callable(cost):
        return _cost_function(cost, signature)
    found = cost_from(cost)
    for why in filter(None, (budget.too_dear(found) for budget in budgets)):
        raise InvalidTask(
            f"no job of {signature.label}() can ever start: {why}", fix="lower cost=, or raise the budget"
        )
    return found


def _cost_function(fn: Callable[..., Any], signature: Signature) -> CostFunction:
    """`fn` gets the arguments by name, defaults included; or all of them as one mapping, when it names none of them."""
    if is_async(fn):
        raise InvalidTask(f"cost={fn!r} is async", fix="what a job costs is said by a plain function of its arguments")
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # some built-in ones have none that can be read
        parameters = []
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = {*signature.parameters}
    if inspect.isfunction(fn) and not parameters:
        raise InvalidTask(
            f"cost={fn!r} takes no arguments", fix="write the number itself, or take the arguments by name"
        )
    alone = names[0] if len(names) == 1 and names[0] not in known else None
    if not takes_all and (not names or (alone is not None and nearest(alone, known) is None)):
        return lambda values: cost_from(fn(values))
    strange = [p.name for p in parameters if p.name in names and p.name not in known and p.default is p.empty]
    if strange and not signature.takes_more_kwargs:
        raise InvalidTask(
            f"cost= asks for {strange[0]!r}, which is not a parameter of {signature.label}()",
            fix=did_you_mean(strange[0], known),
        )

    def said(values: Mapping[str, object]) -> Cost:
        given = {**signature.defaults, **values}
        return cost_from(fn(**(given if takes_all else {name: given[name] for name in names if name in given})))

    return said


def steps_of(steps: StepsOption) -> StepsOption:
    """How recorded steps are told apart: by their names and their order, or by their names alone."""
    if steps not in STEPS_OPTIONS:
        raise InvalidOption(f"steps={steps!r} is unknown", fix=did_you_mean(str(steps), STEPS_OPTIONS))
    return steps


def on_lost_lease_of(asked: OnLostLease | None) -> OnLostLease | None:
    """Whether a handler of a worker that is cut off stops before its lease may be lost; None: under a limit of one."""
    if asked is not None and asked not in get_args(OnLostLease):
        raise InvalidOption(f"on_lost_lease={asked!r} is unknown", fix=did_you_mean(str(asked), get_args(OnLostLease)))
    return asked


def size_of(value: int, what: str) -> int:
    """A number of bytes."""
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= _MOST_BYTES:
        raise InvalidOption(
            f"{what} must be a number of bytes from 2 to {_MOST_BYTES:,}, got {value!r}",
            fix="write it in bytes: 256 KiB is 262_144",
        )
    return value
