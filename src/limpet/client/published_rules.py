"""Publishes what an app hides before its first job, and reads what all programs of the namespace hide."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from limpet.client.producer import Connection
from limpet.core.redaction.published import KIND, PublishedRule, read_rules, redaction_from
from limpet.core.redaction.redaction import Redaction
from limpet.core.redaction.rule import Rule
from limpet.core.tasks.task import TaskSpec
from limpet.stores.base import Store

# A rule that another program or a person has added is heeded by this one's records within this time.
_FRESH_S: Final = 5.0


class PublishedRules:
    """The redaction rules of a namespace, as one app declares and sees them."""

    def __init__(
        self,
        connection: Connection,
        specs: Mapping[str, TaskSpec],
        redact: Sequence[Rule],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._specs = specs
        self._redact = redact
        self._clock = clock
        self._told: tuple[Store, int] | None = None  # which store knows the rules of how many tasks
        self._redaction = Redaction()
        self._read: tuple[Store, float] | None = None

    async def publish(self, store: Store) -> None:
        """Store the rules that are not there. Those that only other programs have stay: hiding is never undone so."""
        tasks = len(self._specs)
        wanted = self._declared()
        if wanted:
            known = read_rules(await store.controls(KIND))
            for one in wanted:
                if (there := known.get(one.name)) is None or there.removed:
                    await store.put_control(one.control())
        self._told = store, tasks

    @property
    def is_due(self) -> bool:
        """Once for each store, before its first job, and again when more tasks have been declared."""
        told = self._told
        return told is None or told[0] is not self._connection.store or told[1] != len(self._specs)

    async def tell(self) -> None:
        """Publish what the store of this process may not know."""
        await self.publish(self._connection.store)

    def forget(self) -> None:
        """The store is another one than before."""
        self._told = self._read = None

    async def redaction(self) -> Redaction:
        """What is hidden, by all programs."""
        store, now_s = self._connection.store, self._clock()
        if self._read is None or self._read[0] is not store or now_s - self._read[1] > _FRESH_S:
            if self.is_due:
                await self.tell()
            self._redaction = redaction_from(await store.controls(KIND))
            self._read = store, now_s
        return self._redaction

    def _declared(self) -> list[PublishedRule]:
        everywhere = [PublishedRule(rule.text) for rule in self._redact]
        return everywhere + [
            PublishedRule(rule.text, task=name) for name, spec in self._specs.items() for rule in spec.own_rules
        ]
