"""Jobs that wait for each other: results arrive as arguments, graphs are stored whole, named and refused by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from limpet import (
    BatchTooLarge,
    CycleFound,
    EnqueueTimeout,
    InvalidArguments,
    InvalidOption,
    JobCancelled,
    JobDead,
    JobNotFound,
    JobSpec,
    Limpet,
    NodeHandle,
    NotSerialisable,
    PayloadTooLarge,
    State,
    UnknownParent,
    WrongContext,
    chain,
    chord,
    group,
)
from limpet.core.flows.refs import MAX_INPUT_BYTES
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.view import Retention
from limpet.stores.sqlite.library import library
from tests.client.conftest import CountingStore


@dataclass
class Image:
    """A result with a type of its own."""

    name: str
    width: int


class Tasks:
    """The tasks of these tests on one app."""

    def __init__(self, app: Limpet) -> None:
        @app.task(name="shop.number", retry=1)
        def number(n: int | None = None) -> int | None:
            return n

        @app.task(name="shop.add", retry=1)
        def add(a: int, b: int = 0) -> int:
            return a + b

        @app.task(name="shop.total", retry=1)
        def total(numbers: list[int], plus: int = 0) -> int:
            return sum(numbers) + plus

        @app.task(name="shop.say", retry=1)
        def say(what: Any, more: Any = None) -> Any:
            return [what, more]

        @app.task(name="shop.image", retry=1)
        def image(name: str) -> Image:
            return Image(name, 100)

        @app.task(name="shop.album", retry=1)
        def album(images: list[Image], cover: Image | None = None) -> list[str]:
            return [image.name for image in [*images, *([cover] if cover else [])]]

        @app.task(name="shop.fail", retry=1)
        def fail(*args: Any) -> None:
            raise ValueError("no")

        self.number, self.add, self.total, self.say = number, add, total, say
        self.image, self.album, self.fail = image, album, fail


@pytest.fixture
def tasks(app: Limpet) -> Tasks:
    return Tasks(app)


async def finish(app: Limpet) -> None:
    await app.work(until_empty=True)


# -- results as arguments


async def test_the_result_of_a_job_arrives_as_the_value(app: Limpet, tasks: Tasks) -> None:
    first = await tasks.image.enqueue("a")
    second = await tasks.image.enqueue("b")
    (job,) = await app.enqueue_many([tasks.album.job([first, second], cover=first)])
    deep = await tasks.say.enqueue({"x": [first, {"y": second}]}, "plain")
    await finish(app)
    assert await job.result() == ["a", "b", "a"]
    a, b = {"name": "a", "width": 100}, {"name": "b", "width": 100}
    assert await deep.result() == [{"x": [a, {"y": b}]}, "plain"]


async def test_a_job_among_the_arguments_is_waited_for_beside_those_of_after(app: Limpet, tasks: Tasks) -> None:
    one, two, three = [await tasks.number.enqueue(n) for n in range(3)]
    job = await tasks.add.options(after=[three, one.id]).enqueue(two, one)  # type: ignore[arg-type]  # a handle
    (view,) = await app.store.get([id_bytes(job.id)])
    assert view is not None
    assert (view.state, [id_text(id) for id in view.after]) == (State.blocked, [two.id, one.id, three.id])
    await finish(app)
    assert await job.result() == 1


async def test_a_result_of_none_is_passed_on(app: Limpet, tasks: Tasks) -> None:
    job = await chain(tasks.number.job(), tasks.say.job("more")).enqueue()
    await finish(app)
    assert await job.result() == [None, "more"]


async def test_a_result_that_does_not_fit_the_parameter_is_a_dead_letter(app: Limpet, tasks: Tasks) -> None:
    job = await chain(tasks.say.job(1), tasks.add.job()).enqueue()
    await finish(app)
    with pytest.raises(JobDead, match=r"a of .* does not fit: Expected `int`, got `array`"):
        await job.result()


async def test_a_job_by_name_may_refer_to_a_parent_by_its_id(app: Limpet, tasks: Tasks) -> None:
    parent = await tasks.number.enqueue(7)
    job = await app.enqueue("shop.add", {"a": {"$job": parent.id}, "b": 1}, after=[parent])
    await finish(app)
    assert await job.result() == 8


async def test_results_that_are_too_much_together_are_refused_with_advice(app: Limpet) -> None:
    @app.task(name="big", max_result_bytes=MAX_INPUT_BYTES)
    def big() -> str:
        return "x" * (MAX_INPUT_BYTES // 2)

    @app.task(name="take")
    def take(all: list[str]) -> int:
        return len(all)

    job = await chord([big.job(), big.job()], take.job()).enqueue()
    await finish(app)
    with pytest.raises(JobDead, match=r"more than 16,777,216 bytes together .*store its result elsewhere"):
        await job.result()
    assert (await job.status()).attempt == 1


async def test_a_result_over_the_limit_is_refused_with_advice(app: Limpet) -> None:
    @app.task(name="large", max_result_bytes=100)
    def large() -> str:
        return "x" * 100

    job = await large.enqueue()
    await finish(app)
    with pytest.raises(JobDead, match=r"the result takes 102 bytes, over 100 .return an id or a URL"):
        await job.result()


# -- flows


async def test_a_flow_is_one_thing(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("report")
    one, two = flow.add(tasks.number.job(1)), flow.add(tasks.number.job(2))
    end = flow.add(tasks.add.job(one, b=two), name="sum")
    handle = await flow.enqueue()
    assert (handle.id, handle.name, end.flow) == (flow.id, "report", handle)
    status = await handle.status()
    assert (status.name, status.state, status.done, status.total, status.progress) == ("report", "running", 0, 3, 0.0)
    assert [(node.node, node.after, node.state) for node in status.nodes] == [
        ("number", (), "ready"),
        ("number-2", (), "ready"),
        ("sum", ("number", "number-2"), "blocked"),
    ]
    assert (await one.status()).flow == flow.id
    await finish(app)
    assert await handle.result() == await end.result() == 3
    assert await one.result() == 1
    status = await app.get_flow(flow.id).status()
    assert (status.state, status.counts, status.progress) == ("succeeded", {State.succeeded: 3}, 1.0)
    assert {node.id for node in status.nodes} == {one.id, two.id, end.id}


async def test_after_takes_handles_ids_names_and_lists_of_them(app: Limpet, tasks: Tasks) -> None:
    outside = await tasks.number.enqueue(1)
    flow = app.flow("order")
    last = flow.add(tasks.number.job(4), after=["third", [outside.id]], name="last")
    first = flow.add(tasks.number.job(1), after=outside, name="first")
    both = flow.add(group([tasks.number.job(2), tasks.number.job(3)]), after=first)
    flow.add(tasks.number.job(3), after=[both], name="third")
    handle = await flow.enqueue()
    after = {node.node: node.after for node in (await handle.status()).nodes}
    assert after == {
        "last": ("third",),
        "first": (),
        "number": ("first",),
        "number-2": ("first",),
        "third": ("number", "number-2"),
    }
    await finish(app)
    assert (await last.status()).state == "succeeded"


async def test_a_job_that_is_an_argument_becomes_a_node_and_one_spec_is_one_job(app: Limpet, tasks: Tasks) -> None:
    shared = tasks.number.job(5)
    flow = app.flow("nested")
    left = flow.add(tasks.add.job(shared, 1), name="left")
    right = flow.add(tasks.add.job(shared, tasks.add.job(shared, 2)), name="right")
    pair = flow.add(tasks.say.job([left, chain(shared, tasks.add.job(3))], [right]), name="pair")
    handle = await flow.enqueue()
    assert [node.node for node in (await handle.status()).nodes] == ["number", "left", "add", "right", "add-2", "pair"]
    await finish(app)
    assert await pair.result() == [[6, 8], [12]]


async def test_a_job_with_jobs_among_its_arguments_is_a_flow_by_itself(app: Limpet, tasks: Tasks) -> None:
    job = await tasks.add.job(tasks.number.job(1), tasks.number.job(2)).enqueue()
    await finish(app)
    assert await job.result() == 3
    assert len((await job.flow.status()).nodes) == 3


async def test_chains_groups_and_chords_nest(app: Limpet, tasks: Tasks) -> None:
    whole = chain(
        tasks.number.job(1),
        group([tasks.add.job(10), chain(tasks.add.job(20), tasks.add.job(100)), group([tasks.add.job(30)])]),
        tasks.say.job(),
        chord([tasks.say.job("x"), tasks.say.job("y")], tasks.say.job("end")),
    )
    job = await whole.enqueue()
    await finish(app)
    said = [[11, 121, [31]], None]
    assert await job.result() == [[[said, "x"], [said, "y"]], "end"]


async def test_a_group_is_cancelled_whole_whatever_is_stored_of_it_no_more(app: Limpet, tasks: Tasks) -> None:
    jobs = await group([tasks.number.options(delay=60 * n).job(n) for n in range(3)]).enqueue()
    await finish(app)
    await app.store.prune(Retention(succeeded_ms=0))
    assert await jobs.cancel("not today") == 2
    assert await jobs.cancel() == 0
    found = await jobs.results(return_exceptions=True)
    assert [type(error) for error in found] == [JobNotFound, JobCancelled, JobCancelled]


async def test_a_chain_that_ends_in_a_group_answers_a_group(app: Limpet, tasks: Tasks) -> None:
    handle = await chain(
        tasks.number.job(1), group([tasks.add.job(1), group([tasks.add.job(2), tasks.add.job(3)])])
    ).enqueue()
    await finish(app)
    assert await handle.results() == [2, [3, 4]]
    total = await tasks.say.enqueue(handle)
    await finish(app)
    assert await total.result() == [[2, [3, 4]], None]


async def test_an_empty_group_is_an_empty_list_and_hands_its_place_on(app: Limpet, tasks: Tasks) -> None:
    job = await chord([], tasks.total.job(1)).enqueue()
    later = await chain(tasks.number.job(1), group([]), tasks.total.job()).enqueue()
    assert [node.after for node in (await later.flow.status()).nodes] == [(), ("number",)]
    await finish(app)
    assert (await job.result(), await later.result()) == (1, 0)


async def test_a_wide_chord_gets_all_results_in_order(app: Limpet, tasks: Tasks) -> None:
    job = await chord([tasks.number.job(n) for n in range(700)], tasks.say.job()).enqueue()
    (view,) = await app.store.get([id_bytes(job.id)])
    assert view is not None
    assert view.args == b'{"what":{"$jobs":[0,700]}}'
    await finish(app)
    assert await job.result() == [list(range(700)), None]


async def test_a_flow_may_be_a_part_of_another(app: Limpet, tasks: Tasks) -> None:
    part = app.flow("part")
    one = part.add(tasks.number.job(1), name="one")
    two = part.add(tasks.add.job(one, 1), name="two")
    other = part.add(tasks.add.job(one, 2), name="other")
    flow = app.flow("whole")
    first = flow.add(tasks.number.job(0), name="first")
    ends = flow.add(part, after=first)
    assert list(ends) == [two, other]
    flow.add(tasks.total.job(ends), name="last")
    handle = await flow.enqueue()
    assert {node.node: node.after for node in (await handle.status()).nodes} == {
        "first": (),
        "part/one": ("first",),
        "part/two": ("part/one",),
        "part/other": ("part/one",),
        "last": ("part/two", "part/other"),
    }
    assert (one.flow, one.node) == (handle, "part/one")
    await finish(app)
    assert await handle.result() == 5
    with pytest.raises(WrongContext):
        part.add(tasks.number.job(1))


async def test_works_may_have_names_of_their_own(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("named")
    flow.add(chain(tasks.number.job(1), group([tasks.add.job(1)], name="fan"), name="inner"), name="outer")
    flow.add(tasks.number.job(1), name="plain")
    handle = await flow.enqueue()
    assert [node.node for node in (await handle.status()).nodes] == ["outer/number", "outer/fan/add", "plain"]
    job = await chain(tasks.number.job(1), name="mine").enqueue()
    status = await job.flow.status()
    assert (status.name, [node.node for node in status.nodes]) == ("mine", ["mine/number"])


# -- what is refused


async def test_a_circle_is_refused_with_its_nodes_named(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("round")
    flow.add(tasks.number.job(1), name="a", after="c")
    flow.add(tasks.number.job(1), name="b", after="a")
    flow.add(tasks.number.job(1), name="c", after="b")
    flow.add(tasks.number.job(1), name="d", after="c")
    with pytest.raises(CycleFound, match=r"(a → b → c → a|b → c → a → b|c → a → b → c)"):
        await flow.enqueue()
    long = app.flow("long")
    for n in range(100):
        long.add(tasks.number.job(1), name=f"n{n}", after=f"n{(n + 99) % 100}")
    with pytest.raises(CycleFound, match=r"n\d+ → n\d+ → .* → 81 more → .* → n\d+ "):
        await long.enqueue()
    assert (await app.store.count()).enqueued == 0


async def test_a_missing_parent_is_refused_with_the_path_to_it(app: Limpet, tasks: Tasks) -> None:
    nowhere = "01900000-0000-7000-8000-000000000000"
    flow = app.flow("lost")
    flow.add(tasks.number.job(1), name="fine")
    middle = flow.add(tasks.number.job(1), name="middle", after=nowhere)
    flow.add(tasks.add.job(middle), name="end")
    with pytest.raises(UnknownParent, match=f"node 'middle' of flow 'lost' .*: {nowhere} → middle → end"):
        await flow.enqueue()
    assert (await app.store.count()).enqueued == 0
    flow.add(tasks.number.job(1), after="mddle")
    with pytest.raises(UnknownParent, match="did you mean 'middle'"):
        await flow.enqueue()


async def test_a_flow_is_bounded_like_a_bulk(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("huge")
    for n in range(20_001):
        flow.add(tasks.number.job(n))
    with pytest.raises(BatchTooLarge, match="20,001 jobs"):
        await flow.enqueue()
    heavy = app.flow("heavy")
    for _ in range(70):
        heavy.add(tasks.say.job("x" * 250_000))
    with pytest.raises(BatchTooLarge, match="16,777,216"):
        await heavy.enqueue()
    wide = [group([tasks.number.job(n) for n in range(320)]), group([tasks.total.job() for _ in range(320)])]
    with pytest.raises(BatchTooLarge, match=r"102,720 others in all.*put one job between them"):
        await chain(*wide, tasks.total.job()).enqueue()
    assert (await app.store.count()).enqueued == 0


async def test_a_bad_node_is_named_and_refuses_all(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("bad")
    one = flow.add(tasks.number.job(1))
    flow.add(tasks.add.job(b=one), name="add")
    with pytest.raises(InvalidArguments, match=r"node 'add': .* misses 'a'"):
        await flow.enqueue()
    other = app.flow("bad")
    other.add(tasks.say.job(object()), name="thing")
    with pytest.raises(NotSerialisable, match="node 'thing': what is a object"):
        await other.enqueue()
    big = app.flow("bad")
    big.add(tasks.say.job("x" * 300_000), name="big")
    with pytest.raises(PayloadTooLarge, match="node 'big': "):
        await big.enqueue()
    assert (await app.store.count()).enqueued == 0


async def test_what_is_no_job_is_refused(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("wrong")
    with pytest.raises(InvalidArguments, match="flow 'wrong' is empty"):
        await flow.enqueue()
    with pytest.raises(InvalidArguments, match="not a job"):
        flow.add(tasks.number)  # type: ignore[call-overload]  # as a mistake
    with pytest.raises(InvalidArguments, match=r"chain\[1\] is a coroutine"):
        chain(tasks.number.job(1), tasks.number.enqueue(1))  # type: ignore[arg-type]  # as a mistake
    with pytest.raises(InvalidArguments, match="the chain is empty"):
        chain()  # type: ignore[call-arg]  # as a mistake
    with pytest.raises(InvalidArguments, match="the group is empty"):
        await group([]).enqueue()
    for nobody in (7, b"7"):
        with pytest.raises(InvalidOption, match=f"after={nobody!r} names no job"):
            flow.add(tasks.number.job(1), after=nobody)  # type: ignore[arg-type]  # as a mistake
    with pytest.raises(InvalidOption, match="after= names a job that is not in flow 'wrong'"):
        flow.add(tasks.number.job(1), after=tasks.number.job(2))
    for nothing in (7, tasks.number.job(1)):
        with pytest.raises(InvalidArguments, match=r"is not a list of jobs \(pass a list: group"):
            group(nothing)  # type: ignore[arg-type]  # as a mistake


async def test_a_node_stands_once(app: Limpet, tasks: Tasks) -> None:
    spec = tasks.number.job(1)
    with pytest.raises(InvalidArguments, match="twice"):
        group([spec, spec])
    flow = app.flow("twice")
    flow.add(spec, name="one")
    with pytest.raises(InvalidArguments, match="is in the flow already"):
        flow.add(spec)
    with pytest.raises(InvalidOption, match="has a node 'one' already"):
        flow.add(tasks.number.job(1), name="one")
    with pytest.raises(InvalidArguments, match="the same job stands in two places, after something else in each"):
        flow.add(chain(tasks.number.job(2), spec))
    with pytest.raises(InvalidArguments, match="the same job stands in two places"):
        flow.add(chain(spec, tasks.add.job(1)), after=flow.add(tasks.number.job(3)))
    step = tasks.add.job(b=1)
    with pytest.raises(InvalidArguments, match="the same job stands in two places"):
        await group([chain(tasks.number.job(1), step), chain(tasks.number.job(10), step)]).enqueue()
    assert len(flow) == 2  # what was refused left nothing of itself behind
    same = "01900000-0000-7000-8000-000000000001"
    flow.add(tasks.number.options(id=same).job(1))
    flow.add(tasks.number.options(id=same).job(1))
    with pytest.raises(InvalidOption, match="the same id="):
        await flow.enqueue()


async def test_chains_that_begin_alike_share_the_job(app: Limpet, tasks: Tasks) -> None:
    start, step = tasks.number.job(1), tasks.add.job(b=1)
    fan = group([chain(step, tasks.add.job(b=10)), chain(step, tasks.add.job(b=100))])
    job = await chain(start, fan, tasks.total.job()).enqueue()
    await finish(app)
    assert await job.result() == 114
    assert len((await job.flow.status()).nodes) == 5


async def test_results_in_records_are_waited_for_like_any_other(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("records")
    number = flow.add(tasks.number.job(7), name="number", after="first")
    flow.add(tasks.say.job(Image("a", number)), name="say")  # type: ignore[arg-type]  # stands for an int
    flow.add(tasks.number.job(1), name="first")
    whole = app.flow("whole")
    assert [handle.node for handle in whole.add(flow).handles if isinstance(handle, NodeHandle)] == ["records/say"]
    handle = await whole.enqueue()
    await finish(app)
    assert await handle.result() == [{"name": "a", "width": 7}, None]
    round = app.flow("round")
    a = round.add(tasks.number.job(1), name="a", after="b")
    round.add(tasks.say.job(Image("a", a)), name="b")  # type: ignore[arg-type]  # stands for an int
    with pytest.raises(CycleFound, match=r"a → b → a|b → a → b"):
        await round.enqueue()


async def test_a_chain_says_when_there_is_no_room_for_the_result(app: Limpet, tasks: Tasks) -> None:
    @app.task(name="alone")
    def alone(*, only: int = 0) -> None: ...

    with pytest.raises(InvalidArguments, match="the result of what comes before it in a chain is its first argument"):
        await chain(tasks.number.job(1), alone.job()).enqueue()
    with pytest.raises(InvalidArguments, match="takes 2 positional arguments, got 3"):
        await chain(tasks.number.job(1), tasks.add.job(1, 2)).enqueue()


async def test_a_job_that_is_not_stored_yet_is_no_argument_of_one_that_is(tasks: Tasks) -> None:
    with pytest.raises(NotSerialisable, match=r"what\[0\]: a job that is not stored yet .*flow.add"):
        await tasks.say.enqueue([tasks.number.job(1)])


async def test_a_node_cannot_be_asked_before_it_is_stored(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("later")
    node = flow.add(tasks.number.job(1), name="node")
    for question in (node.status, node.result, node.cancel):
        with pytest.raises(JobNotFound, match="node 'node' is not stored yet"):
            await question()


async def test_jobs_of_two_apps_do_not_mix(app: Limpet, tasks: Tasks) -> None:
    other = Tasks(Limpet("sqlite://"))
    with pytest.raises(InvalidOption, match="different apps"):
        chain(tasks.number.job(1), other.number.job())
    with pytest.raises(InvalidOption, match="another app"):
        app.flow("mixed").add(other.number.job())


async def test_jobs_nested_too_deeply_are_refused(app: Limpet, tasks: Tasks) -> None:
    deep: JobSpec[Any] = tasks.number.job(1)
    for _ in range(3_000):
        deep = tasks.add.job(deep)
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        app.flow("deep").add(deep)


# -- asking again, transactions, sync


async def test_a_flow_that_is_enqueued_again_is_the_same(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("again")
    one = flow.add(tasks.number.job(1))
    handle = await flow.enqueue()
    before = one.existing
    assert await flow.enqueue() == handle
    assert (before, one.existing) == (False, True)
    assert (await app.store.count()).enqueued == 1
    with pytest.raises(WrongContext, match="stored already"):
        flow.add(tasks.number.job(1))


async def test_a_chain_is_new_each_time_unless_the_store_did_not_answer(
    counting: CountingStore, forward: Callable[[float], None]
) -> None:
    app = Limpet("sqlite://", enqueue_timeout=60)
    app._connection._stores = {os.getpid(): counting}
    tasks = Tasks(app)
    work = chain(tasks.number.job(1), tasks.add.job(1))
    counting.open_gate.clear()
    asking = asyncio.create_task(work.enqueue())
    await counting.called.wait()
    forward(60)
    with pytest.raises(EnqueueTimeout, match=r"await its .enqueue.. again: they are the same jobs") as caught:
        await asking
    counting.open_gate.set()
    first = await work.enqueue()
    assert caught.value.ids[-1] == first.id
    second = await work.enqueue()
    assert first.id != second.id


async def test_a_flow_is_there_when_the_callers_transaction_commits(tmp_path: Any) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    tasks = Tasks(app)
    await app.store.open()
    conn = library.connect(f"{tmp_path}/jobs.db", isolation_level=None)
    try:
        conn.execute("BEGIN IMMEDIATE")
        gone = chord([tasks.number.job(n) for n in range(600)], tasks.total.job()).enqueue_sync(conn=conn)
        conn.execute("ROLLBACK")
        conn.execute("BEGIN IMMEDIATE")
        flow = app.flow("kept")
        node = flow.add(tasks.number.job(1))
        handle = await flow.enqueue(conn=conn)
        lost = app.flow("lost")
        lost.add(tasks.say.job(lost.add(tasks.number.job(1), after=gone, name="a")), name="b")
        with pytest.raises(UnknownParent, match=f"node 'a' of flow 'lost' waits for .*: {gone.id} → a → b"):
            await lost.enqueue(conn=conn)
        conn.execute("COMMIT")
    finally:
        conn.close()
    with pytest.raises(JobNotFound):
        await gone.status()
    assert (await handle.status()).total == 1
    await finish(app)
    assert await node.result() == 1
    await app.close()


def test_flows_from_code_without_an_event_loop() -> None:
    app = Limpet("sqlite://")
    tasks = Tasks(app)
    job = chain(tasks.number.job(1), tasks.add.job(2)).enqueue_sync()
    flow = app.flow("sync")
    flow.add(tasks.number.job(5))
    handle = flow.enqueue_sync()
    app.run(app.work(until_empty=True))
    assert (app.run(job.result(60)), app.run(handle.result(60))) == (3, 5)
    app.run(app.close())


async def test_enqueue_sync_inside_a_loop_says_what_to_do_instead(app: Limpet, tasks: Tasks) -> None:
    with pytest.raises(WrongContext, match=r"await .enqueue"):
        chain(tasks.number.job(1)).enqueue_sync()


# -- what comes out


async def test_a_flow_with_several_ends_answers_them_by_name(app: Limpet, tasks: Tasks) -> None:
    flow = app.flow("ends")
    one = flow.add(tasks.number.job(1), name="one")
    flow.add(tasks.add.job(one, 1), name="two")
    flow.add(tasks.fail.job(one), name="bad")
    handle = await flow.enqueue()
    status_before = await handle.status()
    assert status_before.state == "running"
    await finish(app)
    status = await handle.wait(timeout=60)
    assert (status.state, status.done) == ("dead", 3)
    with pytest.raises(InvalidOption, match="2 ends: two, bad"):
        await handle.result()
    with pytest.raises(JobDead):
        await handle.results()
    found = await handle.results(return_exceptions=True)
    assert found["two"] == 2
    assert isinstance(found["bad"], JobDead)


async def test_waiting_for_a_group_stops_at_the_first_that_failed(app: Limpet, tasks: Tasks) -> None:
    handle = await group([tasks.number.job(1), tasks.fail.job(), tasks.number.job(3)]).enqueue()
    await handle.jobs[2].cancel("unwanted")
    await finish(app)
    with pytest.raises(JobDead):
        await handle.results()
    values = await handle.results(return_exceptions=True)
    assert values[0] == 1
    assert [type(value) for value in values[1:]] == [JobDead, JobCancelled]
    assert await handle.cancel() == 0
