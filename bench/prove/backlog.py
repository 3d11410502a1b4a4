"""Lays out a large store by the ordinary verbs: jobs that died of some dozens of causes, and as many that are ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Final

from msgspec import Struct

from limpet.core.endings.failure import cause_of
from limpet.core.endings.transition import Bury, Failure
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.stores.base import Store

Progress = Callable[[int, int], None]

CHUNK: Final = 5_000  # jobs per call that enqueues
TTL_MS: Final = 3_600_000  # a lease that no pause of a busy machine outlives
BEAT_EVERY: Final = 200  # claims
SWEEP_S: Final = 1.0  # as often as a worker sweeps: on PostgreSQL that sums up what was counted
LAST_SWEEPS: Final = 20
TENANTS: Final = 40
RARE_EVERY: Final = 10_000  # one job in this number is of the rare task
RARE: Final = "invoices.reissue"
POLICY: Final = Policy(attempts=1)
# Queue, task, priority, and whether its jobs are of tenants.
TASKS: Final = (
    ("mail", "mail.welcome", 5, False),
    ("mail", "mail.receipt", 5, True),
    ("mail", "mail.digest", 8, False),
    ("billing", "billing.charge", 3, True),
    ("billing", "billing.refund", 5, False),
    ("media", "media.thumbnail", 5, False),
    ("media", "media.transcode", 8, True),
    ("reports", "reports.export", 8, True),
    ("search", "search.index", 5, False),
    ("sync", "sync.crm", 5, False),
    ("hooks", "hooks.deliver", 5, True),
    ("ai", "ai.summarise", 5, True),
)
ERRORS: Final = (
    ("TimeoutError", "no answer from the provider after 30 s for customer {}"),
    ("smtplib.SMTPRecipientsRefused", "550 mailbox of customer {} is unknown"),
    ("KeyError", "'customer {} has no address'"),
    ("httpx.HTTPStatusError", "500 Internal Server Error for https://api.example.com/v1/customers/{}"),
)
TRACEBACK: Final = "Traceback (most recent call last):\n" + "".join(
    f'  File "/app/tasks/{name}.py", line {line}, in {name}\n    return await client.{name}(customer, amount=amount)\n'
    for name, line in (("deliver", 41), ("connect", 118), ("request", 263))
)


class Filled(Struct, frozen=True):
    """What a phase stored, and how long it took."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds


def lane(number: int) -> Lane:
    """Where job `number` queues."""
    if number % RARE_EVERY == RARE_EVERY // 2:
        return Lane("billing", RARE)
    queue, task, priority, shared = TASKS[number % len(TASKS)]
    tenant = f"tenant-{number // len(TASKS) % TENANTS}" if shared else None
    return Lane(queue, task, priority, tenant)


def jobs(count: int) -> Iterator[Job]:
    """As different as the jobs of a shop are."""
    ids = IdMaker()
    lanes: dict[Lane, Lane] = {}
    for number in range(count):
        place = lane(number)
        place = lanes.setdefault(place, place)  # its hashes are worked out once
        args = b'{"customer":"c%d","amount":%d,"currency":"EUR"}' % (number % 10_000, number * 7 % 1_000)
        tags = ("trial",) if number % 25 == 0 else ()
        yield Job(ids.make(time.time_ns() // 1_000_000), place, POLICY, args, tags=tags)


class Sweeper:
    """Does for the store what any worker does beside its jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_s = 0.0

    async def sweep(self) -> None:
        """Sweep, if it is time."""
        if time.monotonic() >= self._next_s:
            await self._store.expire()
            self._next_s = time.monotonic() + SWEEP_S

    async def finish(self) -> None:
        """Leave nothing to be summed up, as after a quiet moment."""
        for _ in range(LAST_SWEEPS):
            await self._store.expire()


async def enqueue(store: Store, count: int, progress: Progress) -> Filled:
    """Store `count` ready jobs."""
    at_s, coming, done, sweeper = time.perf_counter(), jobs(count), 0, Sweeper(store)
    while batch := list(islice(coming, CHUNK)):
        await store.enqueue(batch)
        await sweeper.sweep()
        progress(done := done + len(batch), count)
    await sweeper.finish()
    return Filled(count, time.perf_counter() - at_s)


async def bury(store: Store, count: int, progress: Progress) -> Filled:
    """Claim `count` jobs as a worker does, and let each of them die."""
    at_s, beat, seq, done = time.perf_counter(), Beat("prove", TTL_MS, Serves()), 0, 0
    limit, sweeper = store.features.batch, Sweeper(store)
    while done < count:
        if seq % BEAT_EVERY == 0:
            await store.beat(beat)
        seq += 1
        await sweeper.sweep()
        claim = await store.claim(ClaimRequest("prove", Serves(), limit, limit, seq))
        ends = [Bury(job.id, job.token, _failure(job, done + place)) for place, job in enumerate(claim.jobs)]
        settled = await store.settle("prove", seq, ends)
        if any(each.answer != "done" for each in settled) or not (ends or claim.again):
            raise SystemExit(f"prove: {done} of {count} jobs have died, and the next ones cannot")
        progress(done := done + len(ends), count)
    await store.leave("prove")
    await sweeper.finish()
    return Filled(count, time.perf_counter() - at_s)


def _failure(job: Claimed, number: int) -> Failure:
    """One of four errors of each task, the first ones more often."""
    name, text = ERRORS[min(number % 7, len(ERRORS) - 1)]
    message = text.format(number % 10_000)
    return Failure("permanent", name, message, TRACEBACK + f"{name}: {message}", _cause(job.lane.task, text))


@cache
def _cause(task: str, text: str) -> str:
    return cause_of(task, message=text)
