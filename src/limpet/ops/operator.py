"""Runs what people ask of a store: the one operator API under the CLI, HTTP, the dashboard and MCP."""

from __future__ import annotations

from collections.abc import Callable

from limpet.core.records.log import FindingRecord, RepairReport
from limpet.core.settings import ServerTable
from limpet.core.text.storable import checked_text
from limpet.ops.alerts import Alerts
from limpet.ops.bulk import Decision
from limpet.ops.desk import Desk
from limpet.ops.doctor import doctor
from limpet.ops.gates import Gates
from limpet.ops.operations import Operations
from limpet.ops.operator_jobs import JobCorrections
from limpet.ops.operator_rules import RuleCorrections
from limpet.ops.redaction import Redactions
from limpet.ops.repair import repair
from limpet.ops.tokens import Tokens
from limpet.stores.base import Store


class Operator(JobCorrections, RuleCorrections):
    """Asks about work and corrects it, in the name of `actor`; every change leaves a line in the audit log.

    With `leases=False` no token of a lease is told: for callers who may look at jobs and not end them.

    >>> operator = Operator(store, "ada")                                    # doctest: +SKIP
    >>> await operator.retry("state:dead error:Timeout", reason="provider is back")  # doctest: +SKIP
    """

    def __init__(
        self, store: Store, actor: str, *, clock: Callable[[], int] | None = None, leases: bool = True
    ) -> None:
        self.store = store
        self._tells_leases = leases
        self.actor = checked_text(actor, what="actor")
        self._clock = clock
        self.gates = Gates(store, self.actor, clock)
        self.tokens = Tokens(store, self.actor, clock)
        self.desk = Desk(store, self.actor, clock)
        self.redaction = Redactions(store, self.actor, clock)
        self.operations = Operations(store, self.actor, clock)
        self.alerts = Alerts(store, self.actor, clock)

    async def doctor(self, server: ServerTable | None = None) -> list[FindingRecord]:
        """What is wrong, or could be, with the engine, the queues and the tasks' own declarations.

        With the settings of a server, with these too.
        """
        return [FindingRecord.of(each) for each in await doctor(self.store, now_ms=self.now_ms(), server=server)]

    async def repair(self, *, reason: str = "", dry_run: bool = False) -> RepairReport:
        """Set counters, slots and indexes by the stored records, while workers continue; `dry_run` only compares.

        A total is changed so that the sum of all jobs holds: vanished jobs count as discarded.
        """
        decision = Decision("store.repair", self.actor, reason)
        return await repair(self.store, decision, dry_run=dry_run, now_ms=self._asked_ms)
