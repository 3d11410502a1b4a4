"""A call becomes a stored job, or is refused at the door with the fix; never something in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from limpet import (
    BatchTooLarge,
    InvalidArguments,
    InvalidOption,
    InvalidTask,
    JobHandle,
    Limpet,
    NotSerialisable,
    PayloadTooLarge,
    State,
    UnknownParent,
    UnknownQueue,
)
from limpet.core.errors import UsageError
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.view import JobView


async def _view(app: Limpet, job: JobHandle[Any]) -> JobView:
    (view,) = await app.store.get([id_bytes(job.id)])
    assert view is not None
    return view


async def _count(app: Limpet) -> int:
    return (await app.store.count()).enqueued


async def test_arguments_are_stored_by_name_and_defaults_are_not_filled_in(app: Limpet) -> None:
    @app.task(name="send", queue="mail", priority="critical")
    async def send(customer: str, to: str, cc: str = "") -> None: ...

    job = await send.enqueue("acme", to="a@b.c")
    view = await _view(app, job)
    assert msgspec.json.decode(view.args) == {"customer": "acme", "to": "a@b.c"}
    assert (view.lane.queue, view.lane.priority, view.state) == ("mail", 0, State.ready)
    assert UUID(job.id).version == 7
    assert not job.existing
    assert job.task == "send"


async def test_options_apply_to_the_copy_alone(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    later = t.options(delay=60, priority="low", tags=["eu"], queue="slow")
    at = datetime.now(UTC) + timedelta(hours=1)
    views = [
        await _view(app, job)
        for job in (await t.enqueue(1), await later.enqueue(2), await later.options(at=at, priority=1).enqueue(3))
    ]
    assert [view.state for view in views] == [State.ready, State.scheduled, State.scheduled]
    assert [view.lane.priority for view in views] == [5, 8, 1]
    assert [view.lane.queue for view in views] == ["default", "slow", "slow"]
    assert views[2].tags == ("eu",)
    assert views[2].due_at_ms == int(at.timestamp() * 1000)


async def test_the_same_id_again_is_the_same_job(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    first = await t.enqueue(1)
    again = await t.options(id=first.id).enqueue(1)
    assert again == first
    assert again.existing
    assert await _count(app) == 1


async def test_a_duplicate_by_key_or_content_answers_the_job_that_is_there(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    first = await t.options(unique="k").enqueue(1)
    second = await t.options(unique="k").enqueue(2)
    content = await t.options(unique=True).enqueue(7)
    same = await t.options(unique=True).enqueue(n=7)
    assert (second, second.existing) == (first, True)
    assert (same, same.existing) == (content, True)


async def test_after_takes_handles_and_ids_and_refuses_unknown_parents(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    parent = await t.enqueue(1)
    child = await t.options(after=[parent]).enqueue(2)
    grandchild = await t.options(after=[child.id]).enqueue(3)
    assert (await _view(app, child)).state is State.blocked
    assert (await _view(app, grandchild)).after == (id_bytes(child.id),)
    with pytest.raises(UnknownParent):
        await t.options(after=["019a0000-0000-7000-8000-000000000000"]).enqueue(4)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.enqueue("acme", nope=1), InvalidArguments),
        (lambda t: t.enqueue(), InvalidArguments),
        (lambda t: t.enqueue("acme", 2, 3), InvalidArguments),
        (lambda t: t.enqueue("acme", value="not a number"), InvalidArguments),
        (lambda t: t.enqueue(object()), NotSerialisable),
        (lambda t: t.enqueue("x" * 300_000), PayloadTooLarge),
        (lambda t: t.enqueue("x" * 50_000_000), PayloadTooLarge),
    ],
)
async def test_bad_input_stops_at_the_door(app: Limpet, call: Any, error: type[UsageError]) -> None:
    @app.task(name="t")
    def t(customer: str, value: int = 0) -> None: ...

    with pytest.raises(error) as caught:
        await call(t)
    assert caught.value.fix
    assert await _count(app) == 0


def test_unknown_options_are_refused_with_advice() -> None:
    app = Limpet("sqlite://")

    @app.task
    def t() -> None: ...

    with pytest.raises(InvalidOption, match="delay"):
        t.options(dealy=3)  # type: ignore[call-arg]  # what a typo does at run time
    with pytest.raises(InvalidOption, match="queue"):
        app.task(quue="x")(lambda: None)  # type: ignore[call-overload]  # what a typo does at run time


def test_a_retry_function_of_one_call_is_refused_not_ignored() -> None:
    app = Limpet("sqlite://")

    @app.task
    def t() -> None: ...

    with pytest.raises(InvalidOption) as caught:
        t.options(retry=lambda attempt, error: 1.0)
    assert "@app.task" in caught.value.fix


def test_a_name_that_is_taken_is_refused() -> None:
    app = Limpet("sqlite://")

    @app.task(name="t")
    def first() -> None: ...

    with pytest.raises(InvalidTask, match="'t'"):
        app.task(name="t")(lambda: None)


async def test_declared_queues_refuse_others_everywhere() -> None:
    app = Limpet("sqlite://", queues=["mail", "default"])

    @app.task(queue="mail")
    def t() -> None: ...

    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        app.task(queue="mial")(lambda: None)
    with pytest.raises(UnknownQueue):
        t.options(queue="other")
    with pytest.raises(UnknownQueue):
        await app.enqueue("elsewhere", {}, queue="other")
    with pytest.raises(UnknownQueue):
        await app.work(["other"])
    await app.close()


async def test_one_text_where_a_list_of_queues_is_meant_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not a list"):
        Limpet("sqlite://", queues="mail")
    with pytest.raises(InvalidOption, match="not a list"):
        await Limpet("sqlite://").work("mail")


async def test_many_jobs_are_one_step_in_order_with_duplicates_marked(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    keyed = t.options(unique="k")
    jobs = await app.enqueue_many([t.job(0), keyed.job(1), t.options(priority=0).job(2), keyed.job(3)])
    assert [job.existing for job in jobs] == [False, False, False, True]
    assert jobs[3] == jobs[1]
    assert (await _view(app, jobs[2])).lane.priority == 0
    assert await app.enqueue_many([]) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda t: t.job(object()), NotSerialisable),
        (lambda t: t.job(), InvalidArguments),
        (lambda t: t.options(after=["019a0000-0000-7000-8000-000000000000"]).job(1), UnknownParent),
        (lambda t: t.enqueue(1), InvalidArguments),
        (lambda t: "t", InvalidArguments),
    ],
)
async def test_a_bad_job_refuses_the_whole_batch_and_is_named_by_its_index(
    app: Limpet, bad: Any, error: type[UsageError]
) -> None:
    @app.task(name="t")
    def t(n: Any) -> None: ...

    with pytest.raises(error, match=r"\b2\b"):
        await app.enqueue_many([t.job(0), t.job(1), bad(t), t.job(3)])
    assert await _count(app) == 0


async def test_job_refuses_wrong_arguments_at_the_call() -> None:
    app = Limpet("sqlite://")

    @app.task
    def t(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match="nope"):
        t.job(1, nope=2)


async def test_a_batch_over_the_bound_is_refused_unless_it_may_be_chunked(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    with pytest.raises(BatchTooLarge) as caught:
        await app.enqueue_many(t.job(n) for n in range(20_001))
    assert "atomic=False" in caught.value.fix
    assert await _count(app) == 0
    jobs = await app.enqueue_many((t.job(n) for n in range(12_001)), atomic=False)
    assert len({job.id for job in jobs}) == 12_001
    assert await _count(app) == 12_001


@pytest.mark.parametrize("place", [5_003, 5_500])
async def test_a_chunk_that_is_refused_says_what_is_stored_already(app: Limpet, place: int) -> None:
    @app.task(name="t")
    def t(n: Any) -> None: ...

    orphan = t.options(after=["019a0000-0000-7000-8000-000000000000"])
    with pytest.raises(UnknownParent, match=r"in jobs\[5000:6000\], counted from 5000: .*5,000 jobs before are stored"):
        await app.enqueue_many(((orphan if n == place else t).job(n) for n in range(6_000)), atomic=False)
    with pytest.raises(NotSerialisable, match=rf"jobs\[{place}\].*the 5,000 jobs before are stored"):
        await app.enqueue_many((t.job(object() if n == place else n) for n in range(6_000)), atomic=False)
    assert await _count(app) == 10_000


async def test_a_batch_of_too_many_bytes_is_refused(app: Limpet) -> None:
    @app.task(name="t")
    def t(text: str) -> None: ...

    with pytest.raises(BatchTooLarge, match="bytes"):
        await app.enqueue_many(t.job("x" * 250_000) for _ in range(70))
    assert await _count(app) == 0
    assert len(await app.enqueue_many((t.job("x" * 250_000) for _ in range(70)), atomic=False)) == 70


async def test_a_batch_that_waits_for_too_many_is_refused(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    waits = t.options(after=[f"01900000-0000-7000-8000-{n:012x}" for n in range(10_001)])
    with pytest.raises(BatchTooLarge, match="wait for more than 100,000 others in all"):
        await app.enqueue_many(waits.job(n) for n in range(10))
    with pytest.raises(UnknownParent):  # each is a chunk of its own
        await app.enqueue_many((waits.job(n) for n in range(10)), atomic=False)


async def test_asking_again_with_the_same_ids_stores_nothing_twice(app: Limpet) -> None:
    @app.task(name="t")
    def t(n: int) -> None: ...

    first = await app.enqueue_many([t.job(n) for n in range(3)])
    again = await app.enqueue_many([t.job(n) for n in range(3)], ids=[job.id for job in first])
    assert again == first
    assert all(job.existing for job in again)
    with pytest.raises(InvalidOption, match="2 ids"):
        await app.enqueue_many([t.job(n) for n in range(3)], ids=[job.id for job in first[:2]])


async def test_by_name_a_known_task_checks_its_arguments(app: Limpet) -> None:
    @app.task(name="t", queue="mail")
    def t(n: int) -> None: ...

    job = await app.enqueue("t", {"n": 3}, priority="high")
    assert ((await _view(app, job)).lane.queue, (await _view(app, job)).lane.priority) == ("mail", 3)
    with pytest.raises(InvalidArguments, match="misses 'n'"):
        await app.enqueue("t")
    with pytest.raises(InvalidOption):
        await app.enqueue("t", {"n": 1}, dealy=3)  # type: ignore[call-arg]  # what a typo does at run time


async def test_by_name_an_unknown_task_is_accepted_and_waits(app: Limpet) -> None:
    job = await app.enqueue("nobody.knows", {"a": [1, {"b": None}]})
    assert (await job.status()).state == "ready"
    assert "no worker is alive" in str(await job.explain())
    with pytest.raises(PayloadTooLarge):
        await app.enqueue("nobody.knows", {"a": "x" * 300_000})
    with pytest.raises(NotSerialisable):
        await app.enqueue("nobody.knows", {"a": object()})


async def test_the_payload_limit_is_the_apps(tmp_path: Path) -> None:
    app = Limpet("sqlite://", max_payload_bytes=100)

    @app.task(name="t")
    def t(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match="100"):
        await t.enqueue("x" * 200)
    with pytest.raises(PayloadTooLarge, match="100"):
        await app.enqueue("unknown", {"text": "x" * 200})
    await app.close()
