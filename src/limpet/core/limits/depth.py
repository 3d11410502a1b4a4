"""Decides what a limit of waiting jobs means, and how it is said that a queue takes no new jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from limpet.core.errors import InvalidOption, QueueDraining, QueueFull
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Lane

MOST: Final = 1_000_000_000

Crowd = tuple[str, str | None]  # a queue, and one tenant of its jobs or (None) all of them


def checked_depth(value: object, *, what: str) -> int:
    """How many jobs may wait; one that takes none is a drain."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InvalidOption(
            f"{what}: the number must be an integer from 1 to {MOST:,}", fix="to refuse all new jobs: limpet drain"
        )
    return value


def crowds(lanes: Iterable[Lane], rules: Mapping[str, GateRule | None]) -> dict[Crowd, tuple[int, int]]:
    """Of jobs that go to these lanes: how many may wait where they would, and how many there are of them.

    `rules` are those of the gates "queue:Q"; what no rule bounds is left out.
    """
    found: dict[Crowd, tuple[int, int]] = {}
    for lane, count in Counter(lanes).items():
        rule = rules.get(f"queue:{lane.queue}")
        for tenant, most in _bounds(lane, rule):
            found[lane.queue, tenant] = most, found.get((lane.queue, tenant), (most, 0))[1] + count
    return found


def _bounds(lane: Lane, rule: GateRule | None) -> Iterable[tuple[str | None, int]]:
    if rule is not None and rule.depth is not None:
        yield None, rule.depth
    if rule is not None and rule.tenant_depth is not None and lane.tenant is not None:
        yield lane.tenant, rule.tenant_depth


def queue_full(queue: str, tenant: str | None, waiting: int, most: int, brought: int) -> QueueFull:
    """The refusal of `brought` new jobs where `waiting` of at most `most` wait."""
    whose, flag = ("", "--depth") if tenant is None else (f" for tenant {tenant!r}", "--tenant-depth")
    jobs = "one more" if brought == 1 else f"{brought:,} more"
    return QueueFull(
        f"queue {queue!r} is full{whose}: its depth is {most:,}, {waiting:,} wait, and this call brings {jobs}",
        fix=f"wait for room (wait=True), add workers, or raise it: limpet limits set queue:{queue} {flag} {2 * most}",
        queue=queue,
        tenant=tenant,
        room=max(0, most - waiting),
    )


def queue_draining(gate: str, index: int | None = None) -> QueueDraining:
    """The refusal of new jobs by everything, a queue or a task that only works off what it has.

    `index` says which of several jobs it was.
    """
    kind, _, name = gate.partition(":")
    which = "--all" if kind == "all" else name if kind == "queue" else f"--task {name}"
    item = "" if index is None else f" (item {index})"
    what = "everything" if kind == "all" else f"{kind} {name}"
    return QueueDraining(f"{what} is draining and takes no new jobs{item}", fix=f"limpet resume {which}")
