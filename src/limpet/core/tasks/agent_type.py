"""Decides what a type is: a task without code, whose jobs agents do, and which contract its arguments and results keep.

Types come from the configuration file, from the command line and over HTTP, never from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.flows.refs import REF, REFS
from limpet.core.jobs.job import Jitter
from limpet.core.jobs.options import priority_of
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.limits.period import Period
from limpet.core.limits.unit import cost_from
from limpet.core.settings import Seconds
from limpet.core.tasks.contract import Schema, check_schema, faults
from limpet.core.tasks.declare import policy_of
from limpet.core.tasks.naming import checked_name, checked_names, refuse_unknown
from limpet.core.tasks.payload import Signature
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import to_ms

LEASE_MS: Final = 600_000  # an agent thinks for minutes between signs of life
DESCRIPTION_CHARS: Final = 2_000

T = TypeVar("T")


class RetryTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a failed job is tried again: 60 s, doubled each time. An agent costs money: it must not be asked at once."""

    attempts: int = 5
    base: Seconds = 60
    factor: float = 2
    cap: Seconds = 3_600
    jitter: Jitter = "equal"


class BreakerTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When the type is cut off: after five failures without a success between them, as slow as they may come."""

    failures: int = 5
    within: Seconds = 86_400
    cooldown: Seconds = 300
    probe_after: Seconds = 60
    name: str | None = None


class LimitTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A limit that jobs of the type pass."""

    key: str
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    learns: bool = False
    buckets: dict[str, str] = {}
    adaptive: bool | str = False


class BudgetTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A budget that jobs of the type share: `key = "team:{team}"` is one for each team."""

    key: str
    per: Period = "day"
    usd: float | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: int | None = None


class TypeTable(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of [types."name"]."""

    queue: str = "default"
    priority: int | str = "normal"
    capabilities: list[str] = []
    lease: Seconds = 600
    timeout: Seconds | bool = 86_400  # false: none
    retry: RetryTable | int = RetryTable()
    breaker: BreakerTable | bool = BreakerTable()
    description: str = ""
    arguments: dict[str, Any] | bool = True
    result: dict[str, Any] | bool = True
    limits: list[LimitTable] = []
    budgets: list[BudgetTable] = []
    cost: dict[str, float] = {}


_TABLES: Final[dict[str, type[Struct]]] = {"retry": RetryTable, "breaker": BreakerTable}
_LISTS: Final[dict[str, type[Struct]]] = {"limits": LimitTable, "budgets": BudgetTable}


class TypeSource(Struct, frozen=True, omit_defaults=True):
    """Who said what of a type: the file, and by key what operators have changed at run time, which wins."""

    file: dict[str, Any] | None = None
    set: dict[str, Any] = {}

    def table(self) -> dict[str, Any]:
        """Both together."""
        return {**(self.file or {}), **self.set}


class AgentType:
    """A type as its table says; `check` looks at its contracts, too."""

    def __init__(self, name: str, table: Mapping[str, Any], where: str = "") -> None:
        where = where or f"types.{name}"
        self.name = checked_name(name, what="the name of a type")
        self.table = read_table(table, where)
        self._where = where
        self.lease_ms = self._said("lease", lambda: _some_ms(self.table.lease, "lease"))
        if len(self.table.description) > DESCRIPTION_CHARS:
            raise InvalidOption(f"{where}: the description is too long", fix=f"use {DESCRIPTION_CHARS:,} characters")
        self.spec = self._said("", self._make_spec)

    def check(self) -> None:
        """Refuse contracts that are none, or whose checks have no bound."""
        check_schema(self.table.arguments, f"{self._where}: arguments")
        check_schema(self.table.result, f"{self._where}: result")

    @property
    def known(self) -> dict[str, Any]:
        """The table as it is kept."""
        found: dict[str, Any] = msgspec.to_builtins(self.table)
        return found

    def refuse_result(self, result: bytes | None) -> None:
        """Refuse a result that breaks the contract, naming what is missing."""
        value = None if result is None else msgspec.json.decode(result)
        wrong = faults(value, self.table.result, what=f"the result of {self.name}")
        if wrong:
            raise InvalidArguments(
                f"the result breaks the contract of {self.name}: {'; '.join(wrong)}",
                fix="you still hold the job: complete it again with a whole result, or fail it",
            )

    def _make_spec(self) -> TaskSpec:
        table = self.table
        spec = TaskSpec.named(self.name, queue=checked_name(table.queue, what="queue"))
        retry = self._retry()
        timeout = None if table.timeout is False else table.timeout
        if timeout is True:
            raise InvalidOption("timeout=true is no time", fix='write "2h", or false for none')
        signature = _Contracted.open(self.name)
        signature.contract = table.arguments
        return replace(
            spec,
            signature=signature,
            priority=priority_of(table.priority),
            needs=checked_names(table.capabilities, what="capabilities"),
            retry=retry,
            policy=policy_of(retry, {"timeout": timeout}),
            breaker=self._breaker(),
            limits=tuple(Limit(**_given(each)) for each in table.limits),
            budgets=tuple(Budget(**_given(each)) for each in table.budgets),
            cost=cost_from(table.cost) if table.cost else spec.cost,
        )

    def _retry(self) -> Retry:
        given = self.table.retry
        if isinstance(given, int):
            given = RetryTable(attempts=given)
        return Retry(given.attempts, given.base, given.factor, given.cap, given.jitter)

    def _breaker(self) -> Breaker | None:
        given = BreakerTable() if self.table.breaker is True else self.table.breaker
        if isinstance(given, bool):
            return None
        return Breaker(given.name, given.failures, given.within, given.cooldown, given.probe_after)

    def _said(self, key: str, make: Callable[[], T]) -> T:
        """What `make` answers; a refusal says where the table is."""
        try:
            return make()
        except InvalidOption as error:
            raise InvalidOption(f"{self._where}: {error.message}", fix=error.fix) from error


class _Contracted(Signature):
    """Takes what its contract lets through."""

    contract: Schema = True

    def encode(self, values: Mapping[str, Any], **more: Any) -> tuple[bytes, tuple[bytes, ...]]:
        raw, parents = super().encode(values, **more)
        if self.contract is not True:
            refuse_arguments(self.label, self.contract, msgspec.json.decode(raw), refers=bool(parents))
        return raw, parents

    def schema(self) -> dict[str, Any]:
        return dict(self.contract) if isinstance(self.contract, Mapping) else super().schema()


def refuse_arguments(name: str, contract: Schema, args: Any, *, refers: bool) -> None:
    """Refuse arguments that break the contract; what `refers` to other jobs is not known before they have ended."""
    wrong = faults(args, contract, what=f"the arguments of {name}", open_at=_is_ref if refers else None)
    if wrong:
        raise InvalidArguments(
            f"{name} cannot take these arguments: {'; '.join(wrong)}",
            fix=f"limpet types show {name} says what it takes",
        )


def read_table(table: Mapping[str, Any], where: str) -> TypeTable:
    """A table as it was written; an unknown key or a value of the wrong kind is refused by name."""
    if not isinstance(table, Mapping):
        raise InvalidOption(f"{where} is {table!r:.60}, not a table", fix='write queue = "eng" and other keys below it')
    refuse_unknown(table, TypeTable.__struct_fields__, where)
    for name, kind in _TABLES.items():
        if isinstance(inner := table.get(name), Mapping):
            refuse_unknown(inner, kind.__struct_fields__, f"{where}.{name}")
    for name, kind in _LISTS.items():
        for inner in each if isinstance(each := table.get(name), list) else ():
            if isinstance(inner, Mapping):
                refuse_unknown(inner, kind.__struct_fields__, f"{where}.{name}")
    try:
        return msgspec.convert(table, TypeTable)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"{where}: {error}", fix="see the page about types in the docs for each key") from error


def changed(source: TypeSource, changes: Mapping[str, Any], where: str) -> TypeSource:
    """The source with what an operator changes by key; null takes a change back."""
    refuse_unknown(changes, TypeTable.__struct_fields__, where)
    kept = {**source.set, **changes}
    return TypeSource(source.file, {key: value for key, value in kept.items() if value is not None})


def _given(table: Struct) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.__struct_fields__ if getattr(table, name) is not None}


def _some_ms(value: Seconds, what: str) -> int:
    ms = to_ms(value, what=what)
    if ms < 1_000:
        raise InvalidOption(f"{what}={value!r} is too short", fix="give an agent a second or more")
    return ms


def _is_ref(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint((REF, REFS))
