"""Enqueue middleware: sees each job before it is stored, changes what it is asked for with, or refuses it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest

from limpet import InvalidOption, JobHandle, Limpet, NewJob, NotSerialisable, Task, UnknownQueue
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.view import JobView

request_id: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.fixture
def mail(app: Limpet) -> Task[..., None]:
    @app.task(name="mail", queue="mail", tags=["task's"], priority="high")
    def mail(to: str) -> None: ...

    return mail


async def stored(app: Limpet, job: JobHandle[Any]) -> JobView:
    (view,) = await app.store.get([id_bytes(job.id)])
    assert view is not None
    return view


async def test_it_sees_what_is_asked_for_and_changes_it(app: Limpet, mail: Task[..., None]) -> None:
    seen: list[object] = []

    @app.enqueue_middleware
    def change(job: NewJob) -> None:
        seen.append((job.task, dict(job.args), job.queue, job.priority, job.tags, job.tenant, dict(job.meta)))
        job.change(tags=[*job.tags, "eu"], tenant="acme", priority="low", queue="slow")
        seen.append((job.queue, job.priority, job.tags, job.tenant))

    job = await mail.options(meta={"a": 1}, tags=["call's"]).enqueue("ada")
    assert seen == [
        ("mail", {"to": "ada"}, "mail", 3, ("call's",), None, {"a": 1}),
        ("slow", 8, ("call's", "eu"), "acme"),
    ]
    view = await stored(app, job)
    assert (view.lane.queue, view.lane.priority, view.lane.tenant) == ("slow", 8, "acme")
    assert view.tags == ("task's", "call's", "eu")
    assert asked_meta(view.meta) == {"a": 1}


async def test_what_it_puts_into_meta_survives_what_it_changes(app: Limpet, mail: Task[..., None]) -> None:
    @app.enqueue_middleware
    def first(job: NewJob) -> None:
        job.meta["request"] = "r1"
        job.change(tags=["eu"])
        job.meta["more"] = 2

    @app.enqueue_middleware
    def second(job: NewJob) -> None:
        if "drop" in job.args["to"]:
            job.change(meta={})

    options = mail.options(meta={"a": 1})
    assert asked_meta((await stored(app, await options.enqueue("ada"))).meta) == {"a": 1, "request": "r1", "more": 2}
    assert asked_meta((await stored(app, await options.enqueue("drop"))).meta) == {}
    assert asked_meta((await stored(app, await options.enqueue("eve"))).meta)["a"] == 1, "the options are as they were"


async def test_what_it_refuses_is_not_stored(app: Limpet, mail: Task[..., None]) -> None:
    @app.enqueue_middleware
    def refuse(job: NewJob) -> None:
        if job.args["to"] == "bad":
            raise PermissionError("not today")

    flow = app.flow("f")
    flow.add(mail.job("good"))
    flow.add(mail.job("bad"))
    for ask in (mail.enqueue("bad"), app.enqueue_many([mail.job("good"), mail.job("bad")]), flow.enqueue()):
        with pytest.raises(PermissionError, match="not today"):
            await ask
    assert (await app.store.count()).enqueued == 0


async def test_what_it_says_wrong_names_the_job(app: Limpet, mail: Task[..., None]) -> None:
    @app.enqueue_middleware
    def says_wrong(job: NewJob) -> None:
        job.meta["key"] = object()

    with pytest.raises(NotSerialisable, match=r"^meta.key is a object"):
        await mail.enqueue("ada")
    with pytest.raises(NotSerialisable, match=r"jobs\[0\]: meta.key is a object"):
        await app.enqueue_many([mail.job("ada")])


@pytest.mark.parametrize("name", ["id", "conn", "after", "if_parent_fails", "wait"])
async def test_what_the_call_decides_stays(app: Limpet, mail: Task[..., None], name: str) -> None:
    @app.enqueue_middleware
    def meddles(job: NewJob) -> None:
        given: Any = {name: None}
        job.change(**given)

    with pytest.raises(InvalidOption, match=f"{name}= cannot be changed by enqueue middleware"):
        await mail.enqueue("ada")


async def test_a_queue_that_the_app_does_not_have_is_refused() -> None:
    app = Limpet("sqlite://", queues=["default"])

    @app.task
    def t() -> None: ...

    @app.enqueue_middleware
    def elsewhere(job: NewJob) -> None:
        job.change(queue="defualt")

    with pytest.raises(UnknownQueue, match="default"):
        await t.enqueue()


def test_one_that_would_be_awaited_is_refused(app: Limpet) -> None:
    async def waits(job: NewJob) -> None: ...

    with pytest.raises(InvalidOption, match="must be a plain function of one NewJob"):
        app.enqueue_middleware(waits)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("wrong", [lambda: None, lambda job, more: None])
def test_one_that_does_not_take_one_job_is_refused_when_it_is_declared(app: Limpet, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="cannot be called with one NewJob"):
        app.enqueue_middleware(wrong)
    with pytest.raises(InvalidOption, match=r"cannot be called with a JobContext and run"):
        app.middleware(lambda run: None)  # type: ignore[arg-type, misc]  # the mistake under test


def test_code_without_a_loop_is_its_own_context(app: Limpet, mail: Task[..., None]) -> None:
    found: list[str] = []

    @app.enqueue_middleware
    def note(job: NewJob) -> None:
        found.append(request_id.get())

    request_id.set("r9")
    mail.enqueue_sync("ada")
    app.run(app.enqueue_many([mail.job("ada")]))
    assert found == ["r9", "r9"]
    app.run(app.close())
