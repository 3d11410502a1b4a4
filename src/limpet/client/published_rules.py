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
        self._redaction = Redaction()
        self._read: tuple[Store, float] | None = None

    async def publish(self, store: Store) -> None:
        """Store the rules that are not there. Those that only other programs have stay: hiding is never undone so."""
        wanted = self._declared()
        known = read_rules(await store.controls(KIND)) if wanted else {}
        for one in wanted:
            if (there := known.get(one.name)) is None or there.removed:
                await store.put_control(one.control())

    async def redaction(self) -> Redaction:
        """What is hidden: by this program, and by all others as they have published it."""
        store, now_s = self._connection.store, self._clock()
        if self._read is None or self._read[0] is not store or now_s - self._read[1] > _FRESH_S:
            stored = await store.controls(KIND)
            self._redaction = redaction_from([*(one.control() for one in self._declared()), *stored])
            self._read = store, now_s
        return self._redaction

    def _declared(self) -> list[PublishedRule]:
        everywhere = [PublishedRule(rule.text) for rule in self._redact]
        return everywhere + [
            PublishedRule(rule.text, task=name) for name, spec in self._specs.items() for rule in spec.own_rules
        ]
