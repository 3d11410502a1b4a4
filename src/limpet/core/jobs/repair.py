"""Decides what is wrong with a store's books: where it counts or lists something else than its records say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from limpet.core.jobs.state import State
from limpet.core.limits.account import Account

Kind = Literal["count", "total", "slots", "probe", "lease", "index", "vanished", "unreadable"]

NAMED: Final = 20  # jobs that one difference names


class Difference(Struct, frozen=True):
    """One thing that the books say, and what the records say of it.

    count: jobs of a queue and task in a state, or of a tenant that wait in a queue. total: a sum that only grows.
    slots, probe: what a gate counts as taken. lease, index: the number of wrong entries; the right number is 0.
    vanished: jobs that left traces and no record. unreadable: jobs whose records cannot be read, and that are not in
    the dead letters.
    """

    kind: Kind
    what: str  # the counter, the gate, or the sort of entry
    found: int
    right: int = 0
    jobs: tuple[bytes, ...] = ()  # the first of those concerned, where they are known


def wrong(kind: Kind, what: str, ids: Iterable[bytes] = (), count: int | None = None) -> list[Difference]:
    """These wrong entries as one difference; none without entries."""
    jobs = tuple(ids)
    found = len(jobs) if count is None else count
    return [Difference(kind, what, found, 0, jobs[:NAMED])] if found else []


def count_name(queue: str, task: str, state: State) -> str:
    """How a counter is named."""
    return f"{state.value} jobs of task {task} in queue {queue}"


def tenant_name(queue: str, tenant: str, state: str = "waiting") -> str:
    """How a counter of a tenant is named."""
    return f"{state} jobs of tenant {tenant} in queue {queue}"


def off_balance(stored: Mapping[State, int], totals: Mapping[str, int]) -> Difference | None:
    """What a total must be so that enqueued = live + dead + succeeded + cancelled + discarded; None when it is so.

    Jobs that have vanished count as discarded. Where more are known than were ever enqueued, they were enqueued.
    """
    held = sum(count for state, count in stored.items() if state not in (State.succeeded, State.cancelled))
    missing = totals["enqueued"] - held - totals["succeeded"] - totals["cancelled"] - totals["discarded"]
    if not missing:
        return None
    name, more = ("discarded", missing) if missing > 0 else ("enqueued", -missing)
    return Difference("total", name, totals[name], totals[name] + more)


def of_accounts(accounts: Iterable[Account]) -> list[Difference]:
    """Gates that count other slots than running jobs hold, or wait for a probe that no job is."""
    found: list[Difference] = []
    for account in accounts:
        gate = account.gate
        if account.leaked:
            found.append(Difference("slots", gate.key, gate.used, account.slots))
        if account.stuck:
            found.append(Difference("probe", gate.key, 1))
    return found
