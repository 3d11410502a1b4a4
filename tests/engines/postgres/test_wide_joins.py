"""A job that waits for very many costs each of them the same, in whatever order they end, and whoever looks back.

Counted in pages that the server touches for a verb. With LIMPET_FULL=1 (`make matrix`) there are 10,000 parents.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from statistics import mean
from typing import Any, TypeVar

import psycopg
import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.jobs.job import Job, Unique
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.bench import Bench
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.engines.postgres.pages import Pages
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import FULL, in_matrix

T = TypeVar("T")

FEW, MANY = 200, 10_000 if FULL else 2_000
SAMPLES = 50  # settlements of one parent each that are counted, one after every few
FLAT = 2  # indexes of ten thousand entries have a level or two more than those of a hundred, and more is left behind

ORDERS: dict[str, Callable[[list[Claimed]], None]] = {
    "first to last": lambda jobs: None,
    "last to first": lambda jobs: jobs.reverse(),
    "at random": lambda jobs: Random(1).shuffle(jobs),
}
DAILY = [("first to last", False), ("at random", True)]  # and whether claims look back at the lane
WAYS = [
    pytest.param(order, old, marks=[] if (order, old) in DAILY else pytest.mark.matrix("two ways say enough in a day"))
    for order in ORDERS
    for old in (False, True)
]


@pytest.fixture
async def place() -> AsyncIterator[Namespace]:
    async with fresh_namespace(shared(POSTGRES)) as namespace:
        yield namespace


@contextlib.contextmanager
def looking_back(place: Namespace) -> Iterator[None]:
    """Somebody sees the world as it was: nothing that is done meanwhile can be cleaned up."""
    with contextlib.closing(place.connect()) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        line.execute("SELECT count(*) FROM pg_class")
        yield
        line.rollback()


class Join:
    """One job after many, and what its verbs cost."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
        self.bench = bench
        self.monkeypatch = monkeypatch
        self.width = width
        self.parents = [bench.job(task="parent") for _ in range(width)]
        self.child = self.after(self.parents)
        self.hand = bench.hand("parents", tasks=("parent",))

    def after(self, parents: list[Job]) -> Job:
        return self.bench.job(task="child", after=tuple(job.id for job in parents))

    async def counted(self, verb: str, asked: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        with self.monkeypatch.context() as patch:
            pages = Pages(patch, verb)
            answer = await asked()
        return answer, pages.count

    async def running(self) -> list[Claimed]:
        jobs: list[Claimed] = []
        while len(jobs) < self.width:
            jobs += await self.hand.claim(1_000)
        return jobs

    async def succeed(self, *jobs: Claimed) -> None:
        await self.hand.settle(*(Succeed(job.id, job.token, b'"a result"') for job in jobs))

    async def settle(self, jobs: list[Claimed]) -> float:
        """All parents succeed; the pages that one of them costs on the way (the last one has to look at all)."""
        costs, step = [], self.width // SAMPLES
        for start in range(0, self.width, step):
            job, *others = jobs[start : start + step]
            costs.append((await self.counted("settle", lambda job=job: self.succeed(job)))[1])  # type: ignore[misc]
            assert await self.bench.state(self.child.id) is State.blocked
            await self.succeed(*others)
        assert await self.bench.state(self.child.id) is State.ready
        return mean(costs)

    async def claim(self) -> int:
        """What it costs to hand the child out with all it has been given."""
        hand = self.bench.hand("child", tasks=("child",))
        await hand.beat()
        answer, pages = await self.counted("claim", hand.ask)
        (job,) = answer.jobs
        assert job.inputs.keys() == set(self.child.after)
        await hand.succeed(job)
        return pages

    async def erase(self) -> None:
        """Nothing of it is kept, or the audit sees it."""
        while await self.bench.store.prune(Retention(succeeded_ms=0), now_ms=self.bench.clock.now_ms):
            pass


@pytest.mark.parametrize(("order", "old"), WAYS)
async def test_each_of_many_parents_costs_what_each_of_few_does(
    place: Namespace, monkeypatch: pytest.MonkeyPatch, order: str, old: bool
) -> None:
    bench = await place.untended_bench()
    settled, handed = [], []
    for width in (FEW, MANY):
        with looking_back(place) if old else contextlib.nullcontext():
            join = Join(bench, monkeypatch, width)
            await bench.put(*join.parents, join.child)
            jobs = await join.running()
            ORDERS[order](jobs)
            settled.append(await join.settle(jobs))
            handed.append(await join.claim() / width)
            await join.erase()
    assert settled[1] <= settled[0] * FLAT, f"{settled[1]} pages for one of {MANY:,} parents, {settled[0]} of {FEW}"
    assert handed[1] <= handed[0] * FLAT, f"{handed[1]:.1f} pages per input of {MANY:,}, {handed[0]:.1f} of {FEW}"


async def together(join: Join) -> Any:
    return await join.bench.put(*join.parents, join.child)


async def later(join: Join) -> Any:
    await join.bench.put(*join.parents)
    return await join.bench.put(join.child)


async def while_they_run(join: Join) -> Any:
    await join.bench.put(*join.parents)
    await join.running()
    return await join.bench.put(join.child)


async def when_they_have_ended(join: Join) -> Any:
    await join.bench.put(*join.parents)
    await join.succeed(*await join.running())
    return await join.bench.put(join.child)


async def of_duplicates(join: Join) -> Any:
    """Every parent is stood for by one that is there."""
    jobs = [[join.bench.job(task="parent", unique=Unique(f"u{n}")) for n in range(join.width)] for _ in range(2)]
    await join.bench.put(*jobs[0])
    return await join.bench.put(*jobs[1], join.after(jobs[1]))


@pytest.mark.parametrize(
    "enqueue",
    [
        together,
        when_they_have_ended,
        *in_matrix("moments between the first and the last", later, while_they_run, of_duplicates),
    ],
)
async def test_an_enqueue_after_many_costs_each_of_them_the_same(
    place: Namespace, monkeypatch: pytest.MonkeyPatch, enqueue: Callable[[Join], Awaitable[Any]]
) -> None:
    bench = await place.untended_bench()
    costs = []
    for width in (FEW, MANY):
        join = Join(bench, monkeypatch, width)
        _, pages = await join.counted("enqueue", lambda join=join: enqueue(join))  # type: ignore[misc]
        costs.append(pages / width)
        await join.hand.leave()
        await bench.hand("rest").drain(1_000)
    few, many = costs
    assert many <= few * FLAT, f"{many:.1f} pages for each of {MANY:,} parents, {few:.1f} for each of {FEW}"


async def test_what_a_callers_own_transaction_puts_after_many_is_filed_flat(
    place: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await place.untended_bench()
    costs = []
    for width in (FEW, MANY):
        join = Join(bench, monkeypatch, width)
        with contextlib.closing(place.connect()) as line:
            await bench.joined.enqueue_on(line, [*join.parents, join.child], now_ms=bench.clock.now_ms)
            line.commit()
        await join.hand.beat()
        _, pages = await join.counted("claim", lambda join=join: join.hand.ask(1))  # type: ignore[misc]
        costs.append(pages / width)
        await join.hand.leave()
        await bench.hand("rest").drain(1_000)
    few, many = costs
    assert many <= few * FLAT, f"{many:.1f} pages for each of {MANY:,} parents, {few:.1f} for each of {FEW}"


async def test_very_many_that_died_are_retried_and_their_child_waits_again(
    place: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await place.untended_bench()
    costs = []
    for width in (FEW, MANY):
        join = Join(bench, monkeypatch, width)
        await together(join)
        await join.hand.end("bury", *await join.running())
        assert await bench.state(join.child.id) is State.cancelled
        answers, pages = await join.counted("retry", lambda join=join: bench.retry(*join.child.after))  # type: ignore[misc]
        assert set(answers) == {"retried"}
        assert await bench.state(join.child.id) is State.blocked
        costs.append(pages / width)
        await bench.hand("rest").drain(1_000)
    few, many = costs
    # It goes in steps of 500, and each looks at the child once: a fortieth of what one look for each would be.
    assert many <= 2 * few * FLAT, f"{many:.1f} pages for each of {MANY:,} parents, {few:.1f} for each of {FEW}"
