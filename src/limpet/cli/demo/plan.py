"""Decides which jobs the demo asks for, from a seed: the same plan gives the same jobs under the same ids."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

Task = Literal["email.welcome", "pdf.export", "export.row", "webhook.deliver"]
Fate = Literal["succeeds", "corrected", "discarded", "left"]  # what becomes of it, the operator's word included

TASKS: Final[tuple[Task, ...]] = ("email.welcome", "pdf.export", "export.row", "webhook.deliver")
GREEDY: Final = "globex"
SMALL: Final = ("acme", "initech", "umbrella", "hooli", "soylent")
PLANS: Final = ("basic", "team")  # the templates that PDF exports can use

# Mistakes that a person has to look at; few, and the same at every scale.
CORRECTED, DISCARDED, LEFT, BROKEN_PDFS = 8, 2, 2, 2


class Wanted(Struct, frozen=True):
    """One job of the plan."""

    id: str
    task: Task
    args: Mapping[str, str | int]
    fate: Fate = "succeeds"
    fix: Mapping[str, str] = {}  # what the operator changes before it is tried again


class Plan(Struct, frozen=True, dict=True):
    """The whole demo in three numbers; `made_at_ms` makes the ids of one plan unlike those of the last."""

    seed: int
    scale: float
    made_at_ms: int

    def _count(self, full: int, least: int) -> int:
        return max(least, round(full * self.scale))

    def _id(self, task: Task, index: int) -> str:
        """A uuid7: the plan's instant, then the task, the place and a hash, so that ids grow with the place."""
        noise = blake2b(f"{self.seed}:{task}:{index}".encode(), digest_size=5).digest()
        low = 0b10 << 62 | index << 40 | int.from_bytes(noise, "big")
        raw = self.made_at_ms << 80 | (0x7000 | TASKS.index(task)) << 64 | low
        text = f"{raw:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    @cached_property
    def emails(self) -> tuple[Wanted, ...]:
        """Welcome emails; a few addresses have no @."""
        count = self._count(3_000, 60)
        rng = random.Random(f"{self.seed}:email")
        mistakes: dict[Fate, int] = {"corrected": CORRECTED, "discarded": DISCARDED, "left": LEFT}
        fates = [fate for fate, times in mistakes.items() for _ in range(times)]
        bad = dict(zip(rng.sample(range(count), len(fates)), fates, strict=True))
        made = []
        for index in range(count):
            good = f"user{index}@example.com"
            fate: Fate = bad.get(index, "succeeds")
            args = {"customer": rng.choice(SMALL), "to": good if fate == "succeeds" else good.replace("@", " at ")}
            fix = {"to": good} if fate == "corrected" else {}
            made.append(Wanted(self._id("email.welcome", index), "email.welcome", args, fate, fix))
        return tuple(made)

    @cached_property
    def pdfs(self) -> tuple[Wanted, ...]:
        """Slow exports; two ask for a missing template."""
        count = self._count(120, 12)
        rng = random.Random(f"{self.seed}:pdf")
        broken = set(rng.sample(range(count), BROKEN_PDFS))
        return tuple(
            Wanted(
                self._id("pdf.export", index),
                "pdf.export",
                {"customer": rng.choice(SMALL), "template": "gold" if index in broken else rng.choice(PLANS)},
                "left" if index in broken else "succeeds",
            )
            for index in range(count)
        )

    @cached_property
    def rows(self) -> tuple[Wanted, ...]:
        """The greedy tenant's rows first, then a few of every other tenant: a fair queue serves both."""
        tenants = [GREEDY] * self._count(10_000, 400)
        tenants += [tenant for tenant in SMALL for _ in range(self._count(40, 2))]
        return tuple(
            Wanted(self._id("export.row", index), "export.row", {"tenant": tenant, "row": index})
            for index, tenant in enumerate(tenants)
        )

    @cached_property
    def webhooks(self) -> tuple[Wanted, ...]:
        """Deliveries to the flaky provider."""
        return tuple(
            Wanted(self._id("webhook.deliver", index), "webhook.deliver", {"order": index})
            for index in range(self._count(300, 40))
        )

    @cached_property
    def jobs(self) -> tuple[Wanted, ...]:
        """Everything."""
        return self.emails + self.pdfs + self.rows + self.webhooks

    def fated(self, *fates: Fate) -> list[Wanted]:
        """The jobs that end so."""
        return [wanted for wanted in self.jobs if wanted.fate in fates]
