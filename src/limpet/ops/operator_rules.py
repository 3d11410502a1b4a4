"""Corrects what rules jobs: pauses, limits, breakers, shares, hooks, and how long finished jobs stay."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.core.gate import Gate
from limpet.core.jobs.retention import Keep
from limpet.core.records.hook import HookRecord
from limpet.core.records.limit import ChangeRecord
from limpet.core.records.queue import RetentionChange, RetentionRecord, WeightChange, WeightRecord
from limpet.ops import hooks
from limpet.ops.bulk import Decision
from limpet.ops.limits import LimitChange, kept_numbers
from limpet.ops.names import unknown_gate_note
from limpet.ops.operator_questions import Questions
from limpet.ops.retention import clear_retention, retention, set_retention
from limpet.ops.weights import set_weight, weights
from limpet.stores.asking import gate_of


class RuleCorrections(Questions):
    """What people do to queues, limits and breakers, in an `Operator`."""

    actor: str

    # -- shares

    async def weights(self) -> list[WeightRecord]:
        """Queues and tenants whose turns serve more than one job."""
        return await weights(self.store)

    async def set_weight(self, name: str, weight: int, *, reason: str = "") -> WeightChange:
        """Let one turn of `queue:NAME` or `tenant:NAME` serve this number of jobs; the default is 1."""
        decision = Decision("weight.set", self.actor, reason, {"name": name, "weight": weight})
        found = await set_weight(self.store, name, weight)
        await self.store.append([decision.entry(self._asked_ms)])
        return found

    # -- hooks

    async def hooks(self) -> tuple[HookRecord, ...]:
        """The published hooks: which ends they hear of, how many of their jobs wait, and who runs them."""
        return await hooks.hooks(self.store)

    async def remove_hook(self, name: str, *, reason: str = "") -> ChangeRecord:
        """No end is told to this hook any more, until a worker that declares it starts. Jobs that it has stay."""
        decision = Decision("hook.remove", self.actor, reason, {"name": name})
        await hooks.remove(self.store, name)
        await self.store.append([decision.entry(self._asked_ms)])
        return ChangeRecord(key=name, changed=(name,), state="removed", notes=("jobs that it has stay",))

    # -- how long finished jobs stay

    async def retention(self) -> list[RetentionRecord]:
        """Queues whose finished jobs stay for another time than those of all others."""
        return await retention(self.store)

    async def set_retention(self, queue: str, keep: Keep, *, reason: str = "") -> RetentionChange:
        """Keep finished jobs of a queue so long, by how they ended: {"succeeded": "7d", "dead": None} (None: for ever).

        It wins over what code and settings files say until it is cleared.
        """
        decision = Decision("retention.set", self.actor, reason, {"queue": queue})
        found = await set_retention(self.store, queue, keep)
        said = {state: found.keep[state] for state, who in found.set_by.items() if who == "operator"}
        await self.store.append([decision.entry(self._asked_ms, keep=said)])
        return found

    async def clear_retention(self, queue: str, *, reason: str = "") -> RetentionChange:
        """Forget what was set for a queue."""
        decision = Decision("retention.clear", self.actor, reason, {"queue": queue})
        found = await clear_retention(self.store, queue)
        await self.store.append([decision.entry(self._asked_ms)])
        return found

    # -- correcting gates

    async def pause(self, key: str, *, reason: str = "", new: bool = False) -> ChangeRecord:
        """Stop claims of `key`: `all`, `queue:NAME` or `task:NAME`. Running jobs continue.

        A pause without a reason leaves one that is there as it is; with a reason it takes its place.
        """
        before = await gate_of(self.store, await self.gates.met(key, new=new))
        gate = await self.gates.pause(key, reason=reason, new=new)
        note = ""
        if before is not None and before.paused is not None:
            old = f"paused by {before.paused.by}{f': {before.paused.reason}' if before.paused.reason else ''}"
            note = f"it was {old}; {'that stays' if gate.paused == before.paused else 'this replaces it'}"
        return _changed([gate], "paused", note)

    async def resume(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Undo a pause or a drain."""
        return _changed([await self.gates.resume(key, reason=reason)], "resumed")

    async def drain(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Refuse new jobs of `all`, `queue:NAME` or `task:NAME` and work off the rest; what is empty ends paused."""
        return _changed([await self.gates.drain(key, reason=reason)], "draining")

    async def set_limit(self, key: str, change: LimitChange, *, reason: str = "", new: bool = True) -> ChangeRecord:
        """Set a rate, a ceiling, buckets or budgets by hand; they win over what the code declares until cleared."""
        rules = await self.gates.limit_rules(key, change)
        notes = [await unknown_gate_note(self.store, rule.key) for rule in rules]
        return _changed(await self.gates.set_limit(key, change, reason=reason, new=new), "set", *notes)

    async def clear_limit(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Forget what an operator set for a limit, its buckets and its budgets: the code's declaration rules again.

        If no operator has set it, forget a declaration that is no longer in the code.
        """
        found = await self.gates.clear_limit(key, reason=reason)
        return _changed(found, "cleared", *await kept_numbers(self.store, found))

    async def trip(
        self, breaker: str, *, for_ms: int | None = None, reason: str = "", new: bool = False
    ) -> ChangeRecord:
        """Open a breaker by hand: for a time, after which a probe is let through, or until it is reset."""
        return _changed([await self.gates.trip(breaker, for_ms=for_ms, reason=reason, new=new)], "open")

    async def reset(self, breaker: str, *, reason: str = "") -> ChangeRecord:
        """Close a breaker and forget its failures; also the breaker of a limit (`limit:KEY`) or task (`task:NAME`)."""
        return _changed([await self.gates.reset(breaker, reason=reason)], "closed")


def _changed(gates: Sequence[Gate], state: str, *notes: str) -> ChangeRecord:
    keys = tuple(gate.key for gate in gates)
    return ChangeRecord(key=keys[0], changed=keys, state=state, notes=tuple(note for note in notes if note))
