"""Runs what is asked of gates and changes them, in the name of an actor: limits, budgets, breakers, pauses, drains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS, Gate, GateChange, GateRule, Pause, is_counting
from limpet.core.limits.budget import base_of
from limpet.core.tasks.template import checked_key
from limpet.core.text.storable import checked_text
from limpet.ops.breakers import GatePage, breaker_page
from limpet.ops.bulk import Decision
from limpet.ops.declared import declared_rule, meant_gate, with_declared
from limpet.ops.limits import (
    LimitChange,
    breaker_gate_key,
    cleared,
    gates_of_limit,
    limit_gate_key,
    limits_beginning,
)
from limpet.ops.names import Kind, require
from limpet.stores.asking import all_gates, gate_of
from limpet.stores.base import Store


class Gates:
    """Gates as the store knows them; the operator API tells people of them as records."""

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None) -> None:
        self.store = store
        self.actor = actor
        self._clock = clock

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    def now_ms(self) -> int:
        """The instant that levels are told for."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    # -- asking

    async def limits(self, begins: str = "") -> list[Gate]:
        """Limits, and queues and tasks that have a ceiling of their own or were pushed back; 10,000 limits at most.

        Limits of live workers are listed before their first job, except keys made from a job's arguments.
        With `begins`, those whose keys begin so, and their buckets and budgets.
        """
        checked_text(begins, what="begins")
        now_ms = self.now_ms()
        return [
            gate
            for gate in (await limits_beginning(self.store, begins) if begins else await self._gates())
            if gate.key.startswith("limit:")
            or gate.held_until_ms > now_ms
            or is_counting(gate, now_ms)
            or gate.rule.depth is not None
            or gate.rule.tenant_depth is not None
        ]

    async def breakers(self, begins: str = "", *, limit: int = 100, cursor: str | None = None) -> GatePage:
        """A page of breakers that have been declared, tripped or counted, and of other gates that are open as one.

        Open and half-open ones come first, then ones that have counted failures, then closed ones; each by key.
        Breakers of live workers are listed before their first job; one by key while it is open or has counted failures.
        """
        return await breaker_page(self.store, begins, limit, cursor)

    async def _gates(self) -> list[Gate]:
        return await with_declared(self.store, await all_gates(self.store))

    # -- changing

    async def pause(self, key: str, *, reason: str = "", new: bool = False) -> Gate:
        """Stop claims of `key`: `all`, `queue:NAME` or `task:NAME`. Running jobs continue.

        A pause without a reason leaves one that is there as it is; with a reason it takes its place.
        """
        key = await self.met(key, new=new)
        before = await gate_of(self.store, key)
        if before is not None and before.paused is not None and not reason:
            return before
        pause = Pause(self.actor, reason, self.now_ms())
        return await self._change(GateChange(key, pause=pause), "pause", reason)

    async def resume(self, key: str, *, reason: str = "") -> Gate:
        """Undo a pause or a drain."""
        key = await self.met(key, new=False)
        return await self._change(GateChange(key, resume=True), "resume", reason)

    async def drain(self, key: str, *, reason: str = "") -> Gate:
        """Refuse new jobs of `all`, `queue:NAME` or `task:NAME` and work off the rest; what is empty ends paused."""
        if key.partition(":")[0] not in ("all", "queue", "task"):
            raise InvalidOption(f"{key!r} cannot be drained", fix="all, queue:NAME or task:NAME")
        key = await self.met(key, new=False)
        return await self._change(GateChange(key, drain=True), "drain", reason)

    async def set_limit(self, key: str, change: LimitChange, *, reason: str = "", new: bool = True) -> tuple[Gate, ...]:
        """Set a rate, a ceiling, buckets or budgets by hand; they win over what the code declares until cleared.

        Answers the gates that changed: the limit's own, one for each bucket, one for each budget.
        """
        gate = await self.met(limit_gate_key(key), new=new)
        asked = await change.rules(self.store, gate)
        changes = [(GateChange(rule.key, rule=rule), facts) for rule, facts in asked]
        return await self._change_all(changes, "limit.set", reason)

    async def limit_rules(self, key: str, change: LimitChange) -> list[GateRule]:
        """What `set_limit` would set."""
        gate = await self.met(limit_gate_key(key), new=True)
        return [rule for rule, _ in await change.rules(self.store, gate)]

    async def clear_limit(self, key: str, *, reason: str = "") -> tuple[Gate, ...]:
        """Forget what an operator set for a limit, its buckets and its budgets: the code's declaration rules again.

        If no operator has set it, forget a declaration that is no longer in the code.
        """
        gate = await meant_gate(self.store, limit_gate_key(key))
        found = await gates_of_limit(self.store, gate)
        if not found:
            await self.met(gate, new=False)
        meant = [one.key for one in found if not one.declared] or [one.key for one in found] or [gate]
        return await self._change_all([(await cleared(self.store, one), {}) for one in meant], "limit.clear", reason)

    async def trip(self, breaker: str, *, for_ms: int | None = None, reason: str = "", new: bool = False) -> Gate:
        """Open a breaker by hand: for a time, after which a probe is let through, or until it is reset."""
        gate = await self.met(f"breaker:{breaker}", new=new)
        declared = None if await gate_of(self.store, gate) else await declared_rule(self.store, gate)
        trip_ms = FOREVER_MS if for_ms is None else for_ms
        change = GateChange(gate, rule=declared, declared=declared is not None, trip_ms=trip_ms)
        return await self._change(change, "trip", reason, for_ms=for_ms)

    async def reset(self, breaker: str, *, reason: str = "") -> Gate:
        """Close a breaker and forget its failures; also the breaker of a limit (`limit:KEY`) or task (`task:NAME`)."""
        gate = await self.met(breaker_gate_key(breaker), new=False)
        return await self._change(GateChange(gate, reset=True), "reset", reason)

    async def _change(self, change: GateChange, verb: str, reason: str, **data: object) -> Gate:
        return (await self._change_all([(change, data)], verb, reason))[0]

    async def _change_all(
        self, changes: Sequence[tuple[GateChange, Mapping[str, object]]], verb: str, reason: str
    ) -> tuple[Gate, ...]:
        entries = []  # before the change: what cannot be logged is not done
        for change, data in changes:
            facts = {"key": change.key, **{name: value for name, value in data.items() if value is not None}}
            kind = verb if "." in verb else f"{change.key.partition(':')[0]}.{verb}"  # queue.pause, breaker.trip
            entries.append(Decision(kind, self.actor, reason, facts).entry(self._asked_ms))
        gates = await self.store.change_gates([change for change, _ in changes], now_ms=self._asked_ms)
        await self.store.append(entries)
        return tuple(gates)

    async def met(self, gate: str, *, new: bool) -> str:
        """The gate that is meant; one that nothing uses is refused, since that is most likely a typing error."""
        kind, _, name = gate.partition(":")
        if kind not in ("all", "queue", "task", "limit", "breaker") or (kind != "all" and not name):
            raise InvalidOption(
                f"{gate!r} names nothing that can be paused, limited or tripped",
                fix="all, queue:NAME, task:NAME, limit:KEY or breaker:NAME",
            )
        checked_key(base_of(name)[2] if kind == "limit" else name, what=f"the name after '{kind}:'")
        meant = await meant_gate(self.store, gate)
        if not new and kind != "all":
            await require(self.store, cast(Kind, kind), meant.partition(":")[2])
        return meant
