"""Hooks in an app: declared beside tasks, run by its workers with the record of the job that ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from limpet import Cancel, Dead, Inject, InvalidOption, InvalidTask, JobRecord, Limpet, Queue, Retry, current_job
from limpet.core.endings.hook import KIND, QUEUE, read_hook
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Retention, Term
from limpet.ops import Operator
from limpet.runtime.settings import WorkerPlan, WorkerSettings


@pytest.fixture
def app() -> Limpet:
    app = Limpet("sqlite://", queues=["default", "mail"])

    @app.task(name="work", retry=1)
    async def work(how: str) -> str:
        if how == "die":
            raise Dead("no such thing")
        if how == "cancel":
            raise Cancel("no use")
        return "done"

    @app.task(name="mail", queue="mail", aliases=["post"])
    async def mail() -> None:
        raise Dead("no such address")

    return app


def hears(app: Limpet, *, sync: bool) -> list[JobRecord]:
    """What a hook for all ends is called with."""
    heard: list[JobRecord] = []

    async def listen(job: JobRecord) -> None:
        heard.append(job)

    def listen_in_thread(job: JobRecord) -> None:
        heard.append(job)

    app.on_finished(listen_in_thread if sync else listen)
    return heard


async def run(app: Limpet, *hows: str) -> list[str]:
    """Run jobs of the task `work` to their end, and their hooks; the ids."""
    async with app:
        await app.publish()
        ids = [(await app.enqueue("work", {"how": how})).id for how in hows]
        await app.work(until_empty=True)
        return ids


@pytest.mark.parametrize("sync", [False, True])
async def test_a_hook_is_called_with_the_record_of_each_job_that_has_ended(app: Limpet, sync: bool) -> None:
    heard = hears(app, sync=sync)
    ids = await run(app, "die", "work", "cancel")
    by_id = {job.id: job for job in heard}
    assert list(map(by_id.__getitem__, ids)) == [by_id[id] for id in ids]
    assert len(heard) == 3
    died, worked, cancelled = (by_id[id] for id in ids)
    assert (died.state, died.error, died.reason) == ("dead", "limpet.Dead", "no such thing")
    assert (worked.state, worked.error, worked.reason) == ("succeeded", None, None)
    assert (cancelled.state, cancelled.reason) == ("cancelled", "no use")
    assert died.args == {"how": "die"}
    assert (died.task, died.queue, died.attempt) == ("work", "default", 1)
    assert died.finished_at is not None


async def test_on_dead_hears_of_deaths_alone(app: Limpet) -> None:
    heard: list[str] = []

    @app.on_dead
    async def alert(job: JobRecord) -> None:
        assert current_job().task == "hook:tests.client.test_hooks.test_on_dead_hears_of_deaths_alone.<locals>.alert"
        heard.append(job.id)

    died, *_ = await run(app, "die", "work", "cancel")
    assert heard == [died]
    assert asyncio.iscoroutinefunction(alert), "it is still the function itself"


@pytest.mark.parametrize("name", ["mail", "post"])
async def test_a_hook_may_be_for_some_tasks_and_queues_and_knows_all_their_names(app: Limpet, name: str) -> None:
    @app.on_dead(name="of-mail", tasks=[name], queues=[Queue("mail")])
    def alert(job: JobRecord) -> None: ...

    async with app:
        await app.publish()
        (control,) = await app.store.controls(KIND)
        hook = read_hook(control.value)
    assert hook is not None
    assert (hook.name, hook.states) == ("of-mail", (State.dead,))
    assert (set(hook.tasks), hook.queues) == ({"mail", "post"}, ("mail",))


async def test_a_hook_is_published_once_and_again_when_it_changes(app: Limpet) -> None:
    app.on_dead(name="alert")(print_nothing)
    other = Limpet("sqlite://")
    other.on_finished(name="alert", states=["dead", "cancelled"])(print_nothing)
    async with app:
        for hooks in (app, app, other):
            await hooks._registry.hooks.publish(app.store)
        (control,) = await app.store.controls(KIND)
    hook = read_hook(control.value)
    assert hook is not None
    assert (control.version, hook.states) == (2, (State.dead, State.cancelled))


def print_nothing(job: JobRecord) -> None: ...


async def test_a_job_that_was_retried_meanwhile_is_told_as_it_died(app: Limpet) -> None:
    heard = hears(app, sync=False)
    async with app:
        await app.publish()
        job = await app.enqueue("work", {"how": "die"})
        await app.work(until_empty=True, hooks=False)
        assert heard == []
        died_at = (await job.status()).finished_at
        await Operator(app.store, "ada").retry(job.id)
        await app.work(queues=[QUEUE], until_empty=True)
    (record,) = heard
    assert (record.state, record.finished_at, record.attempt) == ("dead", died_at, 1)
    assert (record.error, record.reason, record.args) == ("limpet.Dead", "no such thing", {"how": "die"})


async def test_a_job_that_is_gone_is_told_as_it_ended(app: Limpet) -> None:
    heard = hears(app, sync=False)
    async with app:
        await app.publish()
        job = await app.enqueue("work", {"how": "cancel"}, tenant="acme", priority="high")
        await app.work(until_empty=True, hooks=False)
        known = await job.status()
        assert await app.store.prune(Retention(cancelled_ms=0))
        await app.work(until_empty=True)
    (record,) = heard
    for name in (
        "id",
        "state",
        "task",
        "queue",
        "priority",
        "tenant",
        "attempt",
        "reason",
        "enqueued_at",
        "finished_at",
    ):
        assert getattr(record, name) == getattr(known, name), name
    assert record.args is None


async def test_a_hook_gets_what_tasks_get(app: Limpet) -> None:
    @app.resource
    async def words() -> AsyncIterator[list[str]]:
        yield heard

    heard: list[str] = []

    @app.on_dead
    async def alert(job: JobRecord, found: list[str] = Inject(words)) -> None:
        found.append(job.id)

    assert await run(app, "die") == heard


async def test_a_hook_that_fails_is_tried_again_and_dies_without_a_hook_of_its_own(app: Limpet) -> None:
    tries: list[int] = []

    @app.on_dead(retry=Retry(attempts=2, base=0))
    async def alert(job: JobRecord) -> None:
        tries.append(current_job().attempt)
        raise RuntimeError("no network")

    async with app:
        await app.publish()
        await app.enqueue("work", {"how": "die"})
        await app.work(until_empty=True)
        dead = (await app.store.find(Query(terms=(Term("queue", QUEUE),)))).jobs
    assert tries == [1, 2]
    assert [(job.state, job.reason) for job in dead] == [("dead", "no network")]


async def test_a_worker_of_some_queues_runs_hooks_too(app: Limpet) -> None:
    heard = hears(app, sync=False)
    async with app:
        await app.publish()
        job = await app.enqueue("mail")
        await app.work(queues=["mail"], until_empty=True)
    assert [record.id for record in heard] == [job.id]


def test_what_a_worker_serves(app: Limpet) -> None:
    def served(**settings: Any) -> tuple[str, ...] | None:
        return WorkerPlan(store=app.store, parts=app.parts(), settings=WorkerSettings(**settings)).serves.queues

    assert served() == ("default", "mail")
    hears(app, sync=False)
    assert served() == ("default", QUEUE, "mail")
    assert served(queues=("mail",)) == ("mail", QUEUE)
    assert served(queues=("mail",), hooks=False) == ("mail",)
    assert served(hooks=False) == ("default", "mail")


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (
            lambda app: app.on_finished(states=["ready"]),
            "states must be some of succeeded, dead, cancelled, got 'ready'",
        ),
        (lambda app: app.on_finished(states=[]), "states names no state"),
        (lambda app: app.on_finished(states="gone"), "got 'gone'"),
        (lambda app: app.on_dead(state="dead"), "a hook has no option 'state'"),
        (lambda app: app.on_dead(name="work"), "the app has a task 'work' already"),
        (lambda app: app.on_dead(tasks="mail"), "tasks"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_declared(
    app: Limpet, declare: Callable[[Limpet], Any], said: str
) -> None:
    with pytest.raises((InvalidTask, InvalidOption), match=said):
        declare(app)(print_nothing)
    app.on_dead(print_nothing)  # what was refused has left no name behind


def test_a_hook_must_take_one_job(app: Limpet) -> None:
    def none() -> None: ...
    def two(job: JobRecord, more: int) -> None: ...

    for fn in (none, two):
        with pytest.raises(InvalidTask, match="cannot be called with one job"):
            app.on_dead(fn)


def test_the_queue_of_hooks_takes_no_tasks() -> None:
    with pytest.raises(InvalidTask, match=r"the queue 'limpet\.hooks' is for hooks alone"):
        Limpet("sqlite://").task(queue=QUEUE)(print_nothing)


def test_a_name_is_taken_once(app: Limpet) -> None:
    app.on_dead(print_nothing)
    with pytest.raises(InvalidTask, match="already"):
        app.on_finished(print_nothing)
    with pytest.raises(InvalidTask, match="already"):
        app.task(name="hook:tests.client.test_hooks.print_nothing")(asyncio.sleep)
