"""Decides what a declared task is, and turns one call of it into a job: the only place where that happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from functools import cached_property
from typing import Any, Unpack

from msgspec.structs import replace

from limpet.core.endings.overrides import classifiers_of
from limpet.core.endings.retry import Retry
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import InvalidArguments, InvalidOption, InvalidTask, UsageError
from limpet.core.flows.steps import StepsOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job, Lane, OnDuplicate, Policy, Unique
from limpet.core.jobs.meta import with_meta
from limpet.core.jobs.options import (
    CALL_OPTIONS,
    PLAIN,
    Options,
    on_duplicate_of,
    priority_of,
    states_of,
)
from limpet.core.jobs.state import State
from limpet.core.jobs.unique import UniqueOption, unique_of
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.limits.unit import ONE, Cost
from limpet.core.redaction.redaction import Hidden
from limpet.core.redaction.rule import Rule, parse_rule, parse_rules
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.declare import (
    TASK_OPTIONS,
    CostFunction,
    Executor,
    Inject,
    OnLostLease,
    TaskOptions,
    TenantOption,
    aliases_of,
    breaker_of,
    cost_of,
    default_name,
    executor_of,
    injected_of,
    limits_of,
    on_lost_lease_of,
    optional_ms,
    policy_of,
    size_of,
    steps_of,
    tenant_of,
    unique_option,
)
from limpet.core.tasks.lane import CACHED, lane_of, new_lane
from limpet.core.tasks.naming import checked_name, checked_names, did_you_mean
from limpet.core.tasks.payload import Signature, refuse_look_alikes_in
from limpet.core.tasks.queue import NO_QUEUES, Queue, queue_name
from limpet.core.tasks.secret_keys import refuse_keys, refuse_templates
from limpet.core.tasks.template import Template
from limpet.core.text.foreign_words import option_of_others

__all__ = ["PLAIN", "Inject", "Options", "TaskOptions", "TaskSpec", "build_job"]


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
    tenant: TenantOption = None
    limits: tuple[Limit, ...] = ()
    budgets: tuple[Budget, ...] = ()
    breaker: Breaker | None = None
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    unique: UniqueOption = None
    unique_for_ms: int | None = None
    unique_states: frozenset[State] | None = None
    on_duplicate: OnDuplicate = "existing"
    cost: Cost | CostFunction | None = ONE  # None: a function of code that is not here says it
    classifiers: tuple[Classifier, ...] = ()
    injected: Mapping[str, object] = field(default_factory=dict)
    max_payload_bytes: int = MAX_BYTES
    steps: StepsOption = "in-order"
    on_lost_lease: OnLostLease | None = None  # None: stop under a limit of one
    queues: Mapping[str, Queue] = field(default_factory=dict)  # what the app declares about queues
    aliases: tuple[str, ...] = ()  # its former names, the oldest first
    alias_of: str | None = None  # the task's name today, where this is the same task under a former one
    redact: tuple[Rule, ...] = ()  # what no face may show of its jobs, beside the secrets of its signature
    redact_all: tuple[Rule, ...] = ()  # and of all jobs of the app
    # Limits, then budgets: the order of their gates in a lane, in every caller.
    ceilings: tuple[Limit | Budget, ...] = field(default=(), init=False, repr=False)
    lanes: dict[object, tuple[Lane, tuple[GateRule, ...]]] = field(default_factory=dict, init=False, repr=False)
    _policies: dict[object, Policy] = field(default_factory=dict, init=False, repr=False)
    templates: dict[str, Template] = field(default_factory=dict, init=False, repr=False)
    _plain: tuple[Lane, tuple[GateRule, ...]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ceilings", (*self.limits, *self.budgets))
        if isinstance(self.tenant, str):
            self.templates["tenant"] = Template(f"{{{self.tenant}}}")
        if isinstance(self.unique, str):
            self.templates["unique"] = Template(self.unique)
        keyed = self.breaker is not None and self.breaker.keyed
        varies = self.tenant or self.unique or keyed or any(not limit.template.constant for limit in self.ceilings)
        if not varies and not self.tags and self.cost == ONE:
            object.__setattr__(self, "_plain", lane_of(self, {}, PLAIN))

    @classmethod
    def declare(
        cls,
        fn: Callable[..., Any],
        queues: Mapping[str, Queue] = NO_QUEUES,
        redact_all: tuple[Rule, ...] = (),
        /,
        **options: Unpack[TaskOptions],
    ) -> TaskSpec:
        """A task from a function and its options; whatever cannot work is refused here, by name.

        `queues` are those that the app declares, by name; `redact_all` is what it hides of all its jobs.

        >>> def greet(name: str) -> str: return f"hello {name}"
        >>> TaskSpec.declare(greet, name="greet", queue="mail", priority="high").priority
        3
        """
        for option in options:
            if option not in TASK_OPTIONS:
                meant = option_of_others(option, CALL_OPTIONS, "it is said for a call: .options({}=...).enqueue(...)")
                fix = meant or did_you_mean(option, TASK_OPTIONS)
                raise InvalidOption(f"@task has no option {option!r}", fix=fix)
        injected = injected_of(fn)
        signature = Signature.of(fn, injected=frozenset(injected))
        signature.prepare()
        name = checked_name(options.get("name") or default_name(fn), what="name")
        given = options.get("queue", "default")
        if isinstance(given, Queue) and given.name not in queues:
            queues = {given.name: given}
        queue = queue_name(given)
        declared = queues.get(queue)
        usual = None if declared is None else declared.retry
        retry = Retry.of(options.get("retry", Retry() if usual is None else usual))
        limits, budgets = limits_of(options.get("limits", ()), signature)
        spec = cls(
            name=name,
            fn=fn,
            executor=executor_of(fn, options.get("executor")),
            signature=signature,
            queue=queue,
            priority=priority_of(options.get("priority", "normal")),
            policy=policy_of(retry, options),
            retry=retry,
            tenant=tenant_of(options.get("tenant"), signature),
            limits=limits,
            budgets=budgets,
            breaker=breaker_of(options.get("breaker"), signature),
            needs=checked_names(options.get("needs", ()), what="needs"),
            tags=checked_names(options.get("tags", ()), what="tags"),
            unique=unique_option(options, signature),
            unique_for_ms=optional_ms(options.get("unique_for"), "unique_for"),
            unique_states=states_of(options.get("unique_states")),
            on_duplicate=on_duplicate_of(options.get("on_duplicate", "existing")),
            cost=cost_of(options.get("cost", 1), signature, budgets),
            classifiers=classifiers_of(options.get("classify", ())),
            injected=injected,
            max_payload_bytes=size_of(options.get("max_payload_bytes", MAX_BYTES), "max_payload_bytes"),
            steps=steps_of(options.get("steps", "in-order")),
            on_lost_lease=on_lost_lease_of(options.get("on_lost_lease")),
            queues=queues,
            aliases=aliases_of(options.get("aliases", ()), name),
            redact=parse_rules(options.get("redact", ())),
            redact_all=redact_all,
        )
        templates = [*spec.templates.values(), *(one.template for one in spec.ceilings)]
        templates += [spec.breaker.template] if spec.breaker is not None and spec.breaker.template is not None else []
        refuse_templates(templates, (*redact_all, *spec.own_rules), signature.label)
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

    @property
    def own_rules(self) -> tuple[Rule, ...]:
        """The rules for its jobs alone: those that it declares, and those of the secrets in its signature."""
        return (*self.redact, *map(parse_rule, self.signature.secrets))

    @cached_property
    def hidden(self) -> Hidden:
        """What no face may show of its jobs; asked for once all names in its signature are defined."""
        return Hidden((*self.redact_all, *self.own_rules))

    @property
    def scope(self) -> str:
        """The name by which gates, unique keys and schedules of all its names go: the oldest one.

        It is the only name that a program knows which enqueues jobs and has the code of before.
        """
        return self.aliases[0] if self.aliases else self.name

    def under_aliases(self) -> Iterator[TaskSpec]:
        """The same task under each of its former names, for jobs that are stored under those."""
        for alias in self.aliases:
            yield dataclass_replace(self, name=alias, alias_of=self.name)

    @property
    def pattern(self) -> Lane:
        """Where its jobs queue, with what depends on their arguments as it is written."""
        keys = (one.template.fill({"task": self.scope}) if one.template.constant else one.key for one in self.ceilings)
        breaker_key = self.breaker.name if self.breaker is not None and self.breaker.keyed else None
        return new_lane(self, self.queue, self.priority, None, (), tuple(keys), breaker_key)[0]

    def must_stop(self, together: int) -> bool:
        """Whether a handler stops before its lease may be lost, if `together` jobs may run at once (0: any)."""
        return together == 1 if self.on_lost_lease is None else self.on_lost_lease == "stop"

    def learns(self, lane: Lane) -> str | None:
        """The key that a 429 without a key of its own holds for a job of `lane`: the limit marked so, if any."""
        if not any(limit.learns for limit in self.limits):
            return None
        return next((keys[0] for limit, keys in self._keys(lane) if isinstance(limit, Limit) and limit.learns), None)

    def filled(self, lane: Lane, said: str) -> str:
        """The key that a handler means for a job of `lane`: a limit's own template stands for the key made of it."""
        own = (keys[0] for limit, keys in self._keys(lane) if isinstance(limit, Limit) and limit.key == said)
        return next(own, said)

    def caps(self, lane: Lane) -> Iterator[tuple[Budget, GateRule]]:
        """The budgets of a lane, each with every gate that it means there."""
        for budget, keys in self._keys(lane):
            if isinstance(budget, Budget):
                for key, rule in zip(keys, budget.rules(""), strict=True):
                    yield budget, replace(rule, key=f"limit:{key}")

    def _keys(self, lane: Lane) -> Iterator[tuple[Limit | Budget, tuple[str, ...]]]:
        """Each limit and budget with its keys in a lane, but for those that a lane of another declaration lacks."""
        left = {True: [*lane.limits], False: [*lane.keys]}
        for one in self.ceilings:
            heads = [rule.key.removeprefix("limit:") for rule in one.rules("")]
            mine = left[one.template.constant]
            # Of two that were filled alike the lane has one.
            bases = (
                key.removeprefix(heads[0]) for key in (*mine, *lane.limits, *lane.keys) if key.startswith(heads[0])
            )
            base = next(filter(one.template.made, bases), None)
            if base is not None:
                keys = tuple(head + base for head in heads)
                left[one.template.constant] = [key for key in mine if key not in keys]
                yield one, keys


def build_job(
    spec: TaskSpec,
    values: Mapping[str, Any],
    options: Options = PLAIN,
    *,
    id: bytes,
    flow: bytes | None = None,
    meta: bytes = b"",
) -> tuple[Job, tuple[GateRule, ...]]:
    """The job of one call and the gates it names; `values` come from `spec.signature.bind`.

    `meta` is what Limpet itself says about the job there.

    Jobs among the values become parents: their results arrive there.
    """
    args, parents = spec.signature.encode(values, max_bytes=spec.max_payload_bytes)
    if options is PLAIN and spec._plain is not None:
        lane, rules = spec._plain
        if flow is None and not meta and not parents:
            return Job(id, lane, spec.policy, args), rules
    else:
        lane, rules = lane_of(spec, values, options)
    cost = _cost_for(spec, values, options, waits=bool(parents))
    unique, after = _unique_for(spec, values, options), _after(options, args, parents)
    if after and unique is not None and unique.on_duplicate != "existing":
        # The job that is there would take these arguments, and neither wait nor have the results that they refer to.
        raise InvalidOption(
            f"on_duplicate={unique.on_duplicate!r} of a job that waits for others",
            fix="leave it out, or let the last of those enqueue this job",
        )
    if spec.hidden:
        key = None if unique is None or spec.unique is True or options.unique is True else unique.key
        refuse_keys(spec.hidden, spec.name, args, lane, unique=key, tags=options.tags)
    return Job(
        id,
        lane,
        _policy_for(spec, options),
        args,
        delay_ms=options.delay_ms,
        due_at_ms=options.due_at_ms,
        expires_ms=options.expires_ms,
        unique=unique,
        after=after,
        if_parent_fails=options.if_parent_fails,
        cost=cost.plain,
        tags=(*spec.tags, *(tag for tag in options.tags if tag not in spec.tags)),
        meta=with_meta(meta, options.meta) if options.meta else meta,
        flow=flow,
        costs=cost.units,
    ), rules


def _after(options: Options, args: bytes, parents: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those whose results are among the arguments come first: there the arguments look for them."""
    if not parents:
        if options.after:
            refuse_look_alikes_in(args)
        return options.after
    return tuple(dict.fromkeys((*parents, *options.after)))


def _cost_for(spec: TaskSpec, values: Mapping[str, Any], options: Options, *, waits: bool) -> Cost:
    """What one call costs: as the task says, but for the units that the call names itself.

    A function of arguments that are still to come (it `waits` for other jobs) may not be able to tell.
    """
    cost = spec.cost
    if cost is None:
        if options.cost is None:
            raise InvalidArguments(
                f"what a job of {spec.name!r} costs is said by a function of its code, which is not here",
                fix="say it with cost= (--cost usd=0.02), or enqueue the job where the code is (--app)",
            )
        cost = ONE
    elif not isinstance(cost, Cost):
        try:
            cost = cost(values)
        except Exception as error:
            if not waits or isinstance(error, UsageError):
                error.add_note(f"This is what cost= of the task {spec.name!r} makes of the arguments.")
                raise
            if options.cost is None:
                raise InvalidArguments(
                    f"cost= of {spec.name!r} failed ({type(error).__name__}: {error}): it reads another job's result, "
                    "which is not known yet",
                    fix="say what this job costs with .options(cost=...)",
                ) from error
            cost = ONE
    return cost if options.cost is None else cost.replaced(options.cost)


def _policy_for(spec: TaskSpec, options: Options) -> Policy:
    if options.retry is None and options.timeout_ms is ...:
        return spec.policy
    known = (options.retry, options.timeout_ms)
    found = spec._policies.get(known)
    if found is None:
        if len(spec._policies) >= CACHED:
            spec._policies.clear()
        found = spec._policies[known] = options.applied_to(spec.policy)
    return found


def _unique_for(spec: TaskSpec, values: Mapping[str, Any], options: Options) -> Unique | None:
    option: UniqueOption = options.unique
    if option is None and spec.unique is not None:
        option = spec.unique
        if isinstance(option, str):
            places = {"task": spec.scope, "queue": options.queue or spec.queue}
            option = spec.templates["unique"].fill({**places, **spec.signature.defaults, **values})
    if not option:
        _refuse_idle(spec, options)
        return None
    return unique_of(
        option,
        task=spec.scope,
        values=values,
        for_ms=spec.unique_for_ms if options.unique_for_ms is None else options.unique_for_ms,
        states=options.unique_states or spec.unique_states,
        on_duplicate=options.on_duplicate or spec.on_duplicate,
    )


def _refuse_idle(spec: TaskSpec, options: Options) -> None:
    """A setting of a key that the job does not have would silently do nothing."""
    asked = (options.unique_for_ms, options.unique_states, options.on_duplicate)
    for name, value in zip(("unique_for", "unique_states", "on_duplicate"), asked, strict=True):
        if value is not None:
            raise InvalidOption(
                f"{name}= does nothing for this job of {spec.name!r}, which has no unique key",
                fix=f"add unique=True beside {name}=, or to the task",
            )
