"""Operations on every engine: actions on many jobs that are throttled, sampled, paused, continued and taken over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet.core.errors import AmbiguousId, InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.operations import operation as operation_module
from limpet.core.operations.operation import LEASE_MS
from limpet.ops import Operator
from limpet.ops import operation_shelf as shelf_module
from limpet.ops.names import UnknownName
from limpet.ops.operation_shelf import KEPT_MS, TooManyOperations
from limpet.ops.operations import OperationOver, Operations
from limpet.ops.query import InvalidQuery
from limpet.records import OperationRecord
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


class Desk:
    """A person's operations under the bench's clock; where they would sleep, the clock moves on."""

    def __init__(self, bench: Bench, actor: str = "ada") -> None:
        self.bench = bench
        self.slept: list[float] = []
        self.operations = Operations(bench.store, actor, lambda: bench.clock.now_ms, sleep=self._sleep)
        self.operator = Operator(bench.store, actor, clock=lambda: bench.clock.now_ms)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.bench.clock.advance(max(1, round(seconds * 1000)))

    async def ran(self, verb: str, which: Any, **how: Any) -> OperationRecord:
        """Start an operation, and run it until it ends or pauses."""
        self.bench.clock.advance(1)
        return await self.operations.run((await self.operations.start(verb, which, **how)).id)

    async def lines(self, kind: str) -> list[str]:
        """The jobs that the audit log names, in its order."""
        return [entry.job or "" for entry in await self.operator.audit(limit=10_000) if entry.kind == kind]


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench)


async def dead(bench: Bench, count: int, **options: Any) -> list[bytes]:
    """Jobs that have died, oldest first."""
    ids = await bench.add_many(count, **options)
    await die(bench, count)
    return ids


async def die(bench: Bench, count: int) -> None:
    """Let the next jobs die."""
    bench.clock.advance(1)
    hand = bench.hand("undertaker")
    for job in await hand.claim(count):
        await hand.bury(job)


@pytest.mark.parametrize("verb", ["cancel", "retry", "rerun", "discard"])
async def test_an_operation_acts_once_on_each_job_that_matches(
    bench: Bench, desk: Desk, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "CHUNK", 3)
    if verb in ("retry", "discard"):
        ids = await dead(bench, 10, queue="mail")
    else:
        ids = await bench.add_many(10, queue="mail")
    if verb == "rerun":
        await bench.hand().drain()
    other = await bench.add(queue="other")
    ended = await desk.ran(verb, "queue:mail", reason="because")
    word = {"cancel": "cancelled", "retry": "retried", "rerun": "rerun", "discard": "discarded"}[verb]
    assert (ended.state, ended.matched, ended.done, ended.changed) == ("done", 10, 10, 10)
    assert ended.answers == {word: 10}
    assert ended.runner is None
    assert sorted(await desk.lines(f"job.{verb}")) == sorted(map(id_text, ids))
    (entry, *_) = [each for each in await desk.operator.audit() if each.kind == f"job.{verb}"]
    assert (entry.actor, entry.reason, entry.data["operation"]) == ("ada", "because", ended.id)
    states = await bench.states([*ids, other])
    expected = {"cancel": State.cancelled, "retry": State.ready, "rerun": State.succeeded, "discard": None}[verb]
    assert states == [expected] * 10 + [State.ready]
    await bench.check_books()


async def test_a_dry_run_counts_shows_three_and_stores_nothing(bench: Bench, desk: Desk) -> None:
    await dead(bench, 5, args=b'{"to":"ada"}')
    report = await desk.operations.preview("retry", "state:dead", patch={"to": "bob"}, per_second=1)
    assert (report.matched, len(report.samples), report.dry_run) == (5, 3, True)
    assert report.edits[0] == {"before": {"to": "ada"}, "after": {"to": "bob"}}
    assert report.samples[0].args == {"to": "bob"}
    assert await desk.operations.list() == ()
    assert await desk.operator.audit() == []


async def test_jobs_that_die_again_or_come_later_are_left_alone(bench: Bench, desk: Desk) -> None:
    await dead(bench, 4)
    bench.clock.advance(1)
    started = await desk.operations.start("retry", "state:dead", per_second=2)
    bench.clock.advance(1)
    later = await dead(bench, 2)

    async def sleeping(seconds: float) -> None:
        bench.clock.advance(round(seconds * 1000))
        await die(bench, 10)  # what was retried dies again at once

    operations = Operations(bench.store, "ada", lambda: bench.clock.now_ms, sleep=sleeping)
    ended = await operations.run(started.id)
    assert (ended.state, ended.matched, ended.answers) == ("done", 4, {"retried": 4})
    assert len(await desk.lines("job.retry")) == 4
    assert await bench.states(later) == [State.dead, State.dead]


async def test_new_jobs_of_a_rerun_queue_in_the_order_of_the_old_ones_and_are_not_run_again(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "CHUNK", 4)
    ids = await bench.add_many(9)
    await bench.hand().drain()
    ended = await desk.ran("rerun", "state:succeeded")
    assert ended.answers == {"rerun": 9}
    made = await bench.hand().drain()
    metas = {view.id: view.meta for view in await bench.everything()}
    assert [id_text(id).encode() in metas[new] for id, new in zip(ids, made, strict=True)] == [True] * 9
    assert [entry.data["new"] for entry in await desk.operator.audit() if entry.kind == "job.rerun"] == [
        id_text(id) for id in made
    ]
    again = await desk.ran("rerun", "state:succeeded")
    assert again.answers == {"rerun": 18}


async def test_a_throttle_spreads_jobs_evenly(bench: Bench, desk: Desk) -> None:
    await dead(bench, 10)
    began_ms = bench.clock.now_ms
    ended = await desk.ran("retry", "state:dead", per_second=2)
    assert ended.answers == {"retried": 10}
    # The first is free at once; each of the nine others waits half a second for the one before it.
    assert 4_500 <= bench.clock.now_ms - began_ms <= 5_100
    assert all(seconds <= 0.5 for seconds in desk.slept)
    at_ms = [entry.at for entry in await desk.operator.audit() if entry.kind == "job.retry"]
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(at_ms)]
    assert all(0.49 <= gap <= 0.51 for gap in gaps)


async def test_a_fast_throttle_takes_a_few_at_a_time(bench: Bench, desk: Desk) -> None:
    await dead(bench, 100)
    began_ms = bench.clock.now_ms
    await desk.ran("retry", "state:dead", per_second=100)
    assert 700 <= bench.clock.now_ms - began_ms <= 1_100
    assert len(desk.slept) == 3


async def test_a_sample_pauses_it_and_shows_how_its_jobs_end(bench: Bench, desk: Desk) -> None:
    await dead(bench, 9)
    paused = await desk.ran("retry", "state:dead", sample=3)
    assert (paused.state, paused.pause, paused.done) == ("paused", "sample", 3)
    assert paused.why == "the sample of 3 is done: see how its jobs end, then continue"
    assert paused.sample is not None
    assert (paused.sample.size, paused.sample.unfinished, len(paused.sample.jobs)) == (3, 3, 3)
    hand = bench.hand()
    first, second, third = await hand.claim(3)
    await hand.succeed(first)
    await hand.bury(second)
    sample = (await desk.operations.get(paused.id)).sample
    assert sample is not None
    assert (sample.succeeded, sample.dead, sample.unfinished) == (1, 1, 1)
    await hand.succeed(third)
    assert (await desk.operations.run(paused.id)).state == "paused", "no process continues what waits for a person"
    await desk.operations.resume(paused.id, reason="looks well")
    ended = await desk.operations.run(paused.id)
    assert (ended.state, ended.answers, ended.by) == ("done", {"retried": 9}, "ada")
    assert (await bench.store.count()).total(State.dead) == 1, "what died again is not retried again"


async def test_it_stops_at_the_nth_job_that_dies_again(bench: Bench, desk: Desk) -> None:
    await dead(bench, 30)

    async def sleeping(seconds: float) -> None:
        bench.clock.advance(round(seconds * 1000))
        await die(bench, 10)

    operations = Operations(bench.store, "ada", lambda: bench.clock.now_ms, sleep=sleeping)
    started = await operations.start("retry", "state:dead", per_second=4, stop_after=5)
    paused = await operations.run(started.id)
    assert (paused.state, paused.pause, paused.died_again, paused.done) == ("paused", "stop_after", 5, 5)
    assert paused.why == "5 of its jobs died again"
    assert [problem.answer for problem in paused.problems] == ["died_again"] * 5
    await operations.resume(started.id)
    again = await operations.run(started.id)
    assert (again.pause, again.died_again, again.done) == ("stop_after", 10, 10)


async def test_it_brings_back_no_more_jobs_than_it_can_watch(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "WATCHED", 4)
    await dead(bench, 10)
    most = 0

    async def sleeping(seconds: float) -> None:
        nonlocal most
        bench.clock.advance(round(seconds * 1000))
        most = max(most, (await bench.store.count()).total(State.ready))
        await bench.hand().drain()

    operations = Operations(bench.store, "ada", lambda: bench.clock.now_ms, sleep=sleeping)
    started = await operations.start("retry", "state:dead", stop_after=1)
    ended = await operations.run(started.id)
    assert (ended.state, ended.answers, ended.died_again, most) == ("done", {"retried": 10}, 0, 4)


async def test_a_person_pauses_continues_and_cancels_it(bench: Bench, desk: Desk) -> None:
    await dead(bench, 6)
    bench.clock.advance(1)
    started = await desk.operations.start("retry", "state:dead", per_second=1)
    assert started.state == "waiting"

    async def sleeping(seconds: float) -> None:
        bench.clock.advance(round(seconds * 1000))
        bob = Desk(bench, "bob").operations
        one = await bob.get(started.id)
        if one.done == 2 and one.by is None:
            assert one.state == "running"
            assert one.runner is not None
            await bob.pause(started.id, reason="lunch")
        elif one.done == 4:
            await bob.cancel(started.id[-6:], reason="enough")

    operations = Operations(bench.store, "ada", lambda: bench.clock.now_ms, sleep=sleeping)
    paused = await operations.run(started.id)
    assert (paused.state, paused.pause, paused.why, paused.by, paused.done) == ("paused", "asked", "lunch", "bob", 2)
    assert (await desk.operations.resume(started.id)).state == "waiting"
    gone = await operations.run(started.id)
    assert (gone.state, gone.why, gone.done, gone.changed) == ("cancelled", "enough", 4, 4)
    kinds = [entry.kind for entry in await desk.operator.audit() if entry.kind.startswith("operation.")]
    assert kinds == ["operation.start", "operation.pause", "operation.continue", "operation.cancel"]
    for verb in (desk.operations.pause, desk.operations.resume):
        with pytest.raises(OperationOver, match="is cancelled: there is nothing to"):
            await verb(started.id)
    assert (await desk.operations.cancel(started.id)).why == "enough"


async def test_a_silent_runner_is_replaced_after_its_lease_and_writes_nothing_more(bench: Bench, desk: Desk) -> None:
    await dead(bench, 4)
    bench.clock.advance(1)
    started = await desk.operations.start("retry", "state:dead", per_second=1)
    took, awake = asyncio.Event(), asyncio.Event()
    ada: list[str | None] = []  # the name of the first process

    async def bob_sleeps(seconds: float) -> None:
        took.set()
        await awake.wait()
        bench.clock.advance(round(seconds * 1000))

    bob = Operations(bench.store, "bob", lambda: bench.clock.now_ms, sleep=bob_sleeps)
    takeover: list[asyncio.Task[OperationRecord]] = []

    async def ada_sleeps(seconds: float) -> None:
        """First this process stands still for longer than its lease; then it sees that another one does the work."""
        runner = (await desk.operations.get(started.id)).runner
        if not takeover:
            ada.append(runner)
            bench.clock.advance(LEASE_MS - 1)
            assert await bob.waiting() == []
            bench.clock.advance(1)
            takeover.append(asyncio.create_task(bob.run(started.id)))
            await took.wait()
        else:
            awake.set()
            assert runner not in ada, "a process that was replaced took it back"
            await asyncio.sleep(0)

    operations = Operations(bench.store, "ada", lambda: bench.clock.now_ms, sleep=ada_sleeps)
    ended = await operations.run(started.id)
    assert (await takeover[0]).state == "done"
    assert (ended.state, ended.answers) == ("done", {"retried": 4})
    assert len(await desk.lines("job.retry")) == 4


async def test_two_processes_share_what_waits_and_none_runs_twice(bench: Bench, desk: Desk) -> None:
    await dead(bench, 40)
    bench.clock.advance(1)
    started = await desk.operations.start("retry", "state:dead")

    async def follow(seconds: float) -> None:
        await asyncio.sleep(0.01)

    stores = [(await bench.other()).store for _ in range(3)]
    several = [Operations(store, "bob", lambda: bench.clock.now_ms, sleep=follow) for store in stores]
    answers = await asyncio.gather(*(each.run(started.id) for each in several))
    assert {answer.state for answer in answers} == {"done"}
    assert answers[0].answers == {"retried": 40}
    assert len(await desk.lines("job.retry")) == 40


async def test_an_edit_that_one_job_cannot_take_changes_none(bench: Bench, desk: Desk) -> None:
    await dead(bench, 3, args=b'{"to":"ada"}')
    large = await dead(bench, 1, args=b'{"text":"%s"}' % (b"x" * 262_000))
    failed = await desk.ran("retry", "state:dead", patch={"to": "y" * 1_000})
    assert (failed.state, failed.done) == ("failed", 0)
    assert "the arguments" in (failed.why or "")
    assert (await bench.store.count()).total(State.dead) == 4
    await bench.store.discard(large)
    await desk.operations.cancel(failed.id)
    with pytest.raises(InvalidOption, match="exclude each other"):
        await desk.operations.start("retry", "state:dead", args={}, patch={})
    ended = await desk.ran("retry", "state:dead", patch={"to": "bob"})
    assert ended.options == {"patch": ["to"]}
    assert [view.args for view in await bench.everything()] == [b'{"to":"bob"}'] * 3
    entry = next(each for each in await desk.operator.audit() if each.kind == "job.retry")
    assert (entry.data["before"], entry.data["after"]) == ({"to": "ada"}, {"to": "bob"})


async def test_named_jobs_answer_what_became_of_each(bench: Bench, desk: Desk) -> None:
    first, second = await dead(bench, 2)
    waiting = await bench.add()
    ended = await desk.ran("retry", [id_text(first), id_text(waiting)])
    assert (ended.query, ended.matched, ended.done) == (None, 2, 2)
    assert ended.answers == {"retried": 1, "not_dead": 1}
    assert [(problem.job, problem.answer) for problem in ended.problems] == [(id_text(waiting), "not_dead")]
    assert await bench.state(second) is State.dead
    assert await desk.lines("job.retry") == [id_text(first)]


async def test_a_refused_job_is_named_with_the_holder_of_its_key(bench: Bench, desk: Desk) -> None:
    await dead(bench, 1, unique=Unique("once"))
    holder = await bench.add(unique=Unique("once"))
    ended = await desk.ran("retry", "state:dead")
    assert (ended.state, ended.changed, ended.answers) == ("done", 0, {"unique_held": 1})
    assert ended.problems[0].holder == id_text(holder)


async def test_the_id_of_another_operation_is_refused(desk: Desk) -> None:
    first = await desk.operations.start("retry", "state:dead")
    with pytest.raises(InvalidOption, match="asks for other things"):
        await desk.operations.start("discard", "state:dead", id=first.id)


async def test_the_same_id_is_the_same_operation(bench: Bench, desk: Desk) -> None:
    await dead(bench, 1)
    id = id_text(bench.id())
    first = await desk.operations.start("retry", "state:dead", id=id)
    assert first.id == id
    second = await desk.operations.start("retry", "state:dead", id=id)
    assert second.id == id
    assert len(await desk.operations.list()) == 1
    assert [entry.kind for entry in await desk.operator.audit()] == ["operation.start"]


async def test_finished_ones_are_listed_for_seven_days_and_make_room(
    bench: Bench, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "SLOTS", 3)
    monkeypatch.setattr(shelf_module, "MOST_UNFINISHED", 2)
    ended = [await desk.ran("retry", "state:dead") for _ in range(4)]
    assert [one.id for one in await desk.operations.list()] == [one.id for one in reversed(ended[1:])]
    assert await desk.operations.list(finished=False) == ()
    waiting = [await desk.operations.start("retry", "state:dead") for _ in range(2)]
    with pytest.raises(TooManyOperations, match="2 operations are not finished, and 2 is the most"):
        await desk.operations.start("retry", "state:dead")
    bench.clock.advance(KEPT_MS + 1)
    assert {one.id for one in await desk.operations.list()} == {one.id for one in waiting}
    assert len(await bench.store.controls("operation")) == 3


async def test_what_makes_no_operation_is_refused_by_name(bench: Bench, desk: Desk) -> None:
    start = desk.operations.start
    for words, asked in (
        ("'retri' is no action on jobs", start("retri", "state:dead")),
        ("per_second=0.0 is no rate", start("retry", "state:dead", per_second=0)),
        ("sample=500 is no number of jobs", start("retry", "state:dead", sample=500)),
        ("cancel takes no sample=", start("cancel", "queue:mail", sample=5)),
        ("pre_second= is no option", start("cancel", "queue:mail", pre_second=5)),
        ("1,001 jobs are named", start("cancel", ["x"] * 1_001)),
        ("is not a job id", start("cancel", "queue:mail", id="x")),
    ):
        with pytest.raises(InvalidOption, match=words):
            await asked
    with pytest.raises(InvalidQuery, match="retry acts on jobs that are dead, scheduled"):
        await start("retry", "state:running")
    with pytest.raises(InvalidQuery, match="does not say which jobs to cancel"):
        await start("cancel", "timeout")
    with pytest.raises(UnknownName, match="there is no operation 'abcd'"):
        await desk.operations.get("abcd")
    assert await desk.operations.list() == ()


async def test_an_id_that_ends_like_two_is_ambiguous(bench: Bench, desk: Desk) -> None:
    for head in ("0", "1"):
        await desk.operations.start("retry", "state:dead", id=f"0000000{head}-0000-7000-8000-00000000abcd")
    with pytest.raises(AmbiguousId, match="more than one operation's id ends in 'abcd'"):
        await desk.operations.get("abcd")
