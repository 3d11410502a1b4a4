"""Decides whether the demo kept its promises: the plan, the store and the ledger of effects must tell one story."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from limpet.cli.demo.folder import Folder
from limpet.cli.demo.ledger import Ledger
from limpet.cli.demo.plan import GREEDY, Plan, Wanted
from limpet.cli.demo.tasks import PROVIDER
from limpet.core.gate import Gate
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Counts, JobView
from limpet.stores.asking import examined
from limpet.stores.base import Store

CHUNK: Final = 500


class Facts(Struct, frozen=True):
    """What can be seen when all is over."""

    counts: Counts
    views: dict[str, JobView | None]  # by the plan's ids
    effects: list[str]
    runs: list[tuple[str, int]]
    breaker: Gate | None
    notes: list[dict[str, Any]]
    leaked: int = 0  # slots that a limit counts and no job holds, or the reverse


class Jobs(Struct, frozen=True):
    planned: int
    enqueued: int
    succeeded: int
    dead: int
    discarded: int
    cancelled: int
    unfinished: int
    lost: int  # planned, and nowhere


class Effects(Struct, frozen=True):
    recorded: int
    lost: int  # succeeded without an effect
    duplicated: int  # more effects than jobs
    unexpected: int  # of a job that did not succeed, or that was not planned
    runs: int
    repeated: int  # runs that found their effect done
    leases_run_twice: int


class Wait(Struct, frozen=True):
    p50: int
    p95: int


class Waits(Struct, frozen=True):
    """From enqueue to the claim that counted, in milliseconds."""

    emails: Wait
    pdfs: Wait
    small_tenants: Wait
    greedy_tenant: Wait


class Workers(Struct, frozen=True):
    started: int
    terminated: int
    killed: int
    recovered_leases: int
    refused_settlements: int
    attempts_spent_by_kills: int


class Spell(Struct, frozen=True):
    """One time that the breaker was open, in seconds after the demo began."""

    opened_s: float
    closed_s: float | None


class DeadLetters(Struct, frozen=True):
    before: int
    corrected: int
    discarded: int
    after: int


class Summary(Struct, frozen=True):
    """The demo in numbers; `wrong` names the numbers that are not as expected."""

    ok: bool
    wrong: list[str]
    seed: int
    scale: float
    resumed: int
    seconds: float
    jobs: Jobs
    effects: Effects
    waits_ms: Waits
    workers: Workers
    breaker_openings: int
    breaker: list[Spell]
    dead_letters: DeadLetters


async def gather_facts(store: Store, ledger: Ledger, folder: Folder, plan: Plan) -> Facts:
    """Ask the store for every job of the plan, and the ledger for everything."""
    views: dict[str, JobView | None] = {}
    ids = [wanted.id for wanted in plan.jobs]
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        views.update(zip(chunk, await store.get([id_bytes(id) for id in chunk]), strict=True))
    accounts = {account.gate.key: account for account in await examined(store).accounts()}
    breaker = accounts.get(f"breaker:{PROVIDER}")
    return Facts(
        await store.count(),
        views,
        ledger.effects(),
        ledger.runs(),
        breaker.gate if breaker is not None else None,
        folder.notes(),
        sum(abs(account.leaked) for account in accounts.values()),
    )


def verify(plan: Plan, facts: Facts) -> Summary:
    """The numbers, and which of them are wrong."""
    jobs, effects = _jobs(plan, facts), _effects(facts)
    waits, workers = _waits(plan, facts), _workers(plan, facts)
    letters, spells = _dead_letters(plan, facts), _spells(plan, facts)
    resumed = _noted(facts, "resumed")
    wrong = [
        *_wrong_jobs(plan, facts, jobs),
        *_wrong_effects(effects),
        *_wrong_letters(plan, letters),
        *_wrong_rest(facts, workers, spells),
        # After a kill of the driver no worker ran for a while, so waits say nothing about the order of work.
        *([] if resumed else _wrong_waits(waits)),
    ]
    last_at_ms = max((note["at_ms"] for note in facts.notes), default=plan.made_at_ms)
    return Summary(
        ok=not wrong,
        wrong=wrong,
        seed=plan.seed,
        scale=plan.scale,
        resumed=resumed,
        seconds=round((last_at_ms - plan.made_at_ms) / 1000, 1),
        jobs=jobs,
        effects=effects,
        waits_ms=waits,
        workers=workers,
        breaker_openings=0 if facts.breaker is None else facts.breaker.opened,
        breaker=spells,
        dead_letters=letters,
    )


# -- the numbers


def _jobs(plan: Plan, facts: Facts) -> Jobs:
    counts = facts.counts
    nowhere = sum(facts.views[wanted.id] is None for wanted in plan.jobs)
    return Jobs(
        planned=len(plan.jobs),
        enqueued=counts.enqueued,
        succeeded=counts.succeeded,
        dead=counts.total(State.dead),
        discarded=counts.discarded,
        cancelled=counts.cancelled,
        unfinished=sum(n for (_, _, state), n in counts.now.items() if state not in FINISHED),
        lost=nowhere - counts.discarded,
    )


def _effects(facts: Facts) -> Effects:
    happened = Counter(facts.effects)
    succeeded = {id for id, view in facts.views.items() if view is not None and view.state is State.succeeded}
    return Effects(
        recorded=len(facts.effects),
        lost=len(succeeded - happened.keys()),
        duplicated=sum(count - 1 for count in happened.values()),
        unexpected=len(happened.keys() - succeeded),
        runs=len(facts.runs),
        repeated=len(facts.runs) - len({job for job, _ in facts.runs}),
        leases_run_twice=len(facts.runs) - len(set(facts.runs)),
    )


def _waits(plan: Plan, facts: Facts) -> Waits:
    def of(wanted: Iterable[Wanted]) -> Wait:
        views = (facts.views[each.id] for each in wanted if each.fate == "succeeds")
        # What a killed worker ran was claimed again after its lease, which says nothing about the order of work.
        return _percentiles(
            view.claimed_at_ms - view.enqueued_at_ms
            for view in views
            if view is not None and view.claimed_at_ms is not None and not view.lost
        )

    return Waits(
        emails=of(plan.emails),
        pdfs=of(plan.pdfs),
        small_tenants=of(wanted for wanted in plan.rows if wanted.args["tenant"] != GREEDY),
        greedy_tenant=of(wanted for wanted in plan.rows if wanted.args["tenant"] == GREEDY),
    )


def _percentiles(values: Iterable[int]) -> Wait:
    ordered = sorted(values) or [0]
    p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return Wait(p50, p95)


def _workers(plan: Plan, facts: Facts) -> Workers:
    # Nothing but webhooks ever fails and is tried again, so a second attempt was spent by a kill.
    steady = (*plan.emails, *plan.pdfs, *plan.rows)
    views = [facts.views[wanted.id] for wanted in steady if wanted.fate == "succeeds"]
    return Workers(
        started=_noted(facts, "worker.started"),
        terminated=_noted(facts, "worker.terminated"),
        killed=_noted(facts, "worker.killed"),
        recovered_leases=facts.counts.lost,
        refused_settlements=facts.counts.stale,
        attempts_spent_by_kills=sum(view.attempt - 1 for view in views if view is not None and view.attempt > 1),
    )


def _spells(plan: Plan, facts: Facts) -> list[Spell]:
    spells: list[Spell] = []
    for note in facts.notes:
        at_s = round((note["at_ms"] - plan.made_at_ms) / 1000, 1)
        if note["kind"] == "breaker.opened":
            spells.append(Spell(at_s, None))
        elif note["kind"] == "breaker.closed" and spells:
            spells[-1] = Spell(spells[-1].opened_s, at_s)
    return spells


def _dead_letters(plan: Plan, facts: Facts) -> DeadLetters:
    corrected = [facts.views[wanted.id] for wanted in plan.fated("corrected")]
    return DeadLetters(
        before=sum(note["dead"] for note in facts.notes if note["kind"] == "review.began"),
        corrected=sum(view is not None and view.state is State.succeeded for view in corrected),
        discarded=facts.counts.discarded,
        after=facts.counts.total(State.dead),
    )


def _noted(facts: Facts, kind: str) -> int:
    return sum(note["kind"] == kind for note in facts.notes)


# -- what they should be


def _expected(what: str, found: int, should_be: int) -> Iterator[str]:
    if found != should_be:
        yield f"{what}: {found:,}, should be {should_be:,}"


def _wrong_jobs(plan: Plan, facts: Facts, jobs: Jobs) -> Iterator[str]:
    ends = {"succeeds": State.succeeded, "corrected": State.succeeded, "discarded": None, "left": State.dead}
    yield from _expected("jobs enqueued", jobs.enqueued, jobs.planned)
    yield from _expected("jobs lost", jobs.lost, 0)
    yield from _expected("jobs not finished", jobs.unfinished, 0)
    yield from _expected("jobs cancelled", jobs.cancelled, 0)
    yield from _expected("succeeded + dead + discarded", jobs.succeeded + jobs.dead + jobs.discarded, jobs.enqueued)
    found = [(wanted, facts.views[wanted.id]) for wanted in plan.jobs]
    astray = [wanted for wanted, view in found if (None if view is None else view.state) != ends[wanted.fate]]
    if astray:
        yield f"jobs that ended otherwise than planned: {len(astray):,}, the first is {astray[0].task} {astray[0].id}"


def _wrong_effects(effects: Effects) -> Iterator[str]:
    yield from _expected("effects lost", effects.lost, 0)
    yield from _expected("effects duplicated", effects.duplicated, 0)
    yield from _expected("effects of jobs that did not succeed", effects.unexpected, 0)
    yield from _expected("leases that ran a job twice", effects.leases_run_twice, 0)


def _wrong_letters(plan: Plan, letters: DeadLetters) -> Iterator[str]:
    bad = plan.fated("corrected", "discarded", "left")
    yield from _expected("dead letters before the review", letters.before, len(bad))
    yield from _expected("dead letters corrected", letters.corrected, len(plan.fated("corrected")))
    yield from _expected("dead letters discarded", letters.discarded, len(plan.fated("discarded")))
    yield from _expected("dead letters after the review", letters.after, len(plan.fated("left")))


def _wrong_rest(facts: Facts, workers: Workers, spells: Sequence[Spell]) -> Iterator[str]:
    yield from _expected("attempts spent by deployments and kills", workers.attempts_spent_by_kills, 0)
    yield from _expected("slots of limits that were not given back", facts.leaked, 0)
    for note in facts.notes:
        if note["kind"] == "worker.terminated" and note["code"] > 0:
            yield f"exit code of a worker after SIGTERM: {note['code']}, should be 0"
    if not spells:
        yield "breaker openings: 0, should be at least 1"
    elif spells[-1].closed_s is None or facts.breaker is None or facts.breaker.breaker_open:
        yield "breaker: open, should be closed"


def _wrong_waits(waits: Waits) -> Iterator[str]:
    pairs = (
        ("emails (critical)", waits.emails.p50, "the rows (low)", waits.greedy_tenant.p50),
        ("small tenants' rows", waits.small_tenants.p95, "the greedy tenant's", waits.greedy_tenant.p95),
    )
    for name, wait_ms, other, other_ms in pairs:
        if wait_ms > other_ms:
            yield f"wait of {name}: {wait_ms} ms, should be below that of {other} ({other_ms} ms)"
